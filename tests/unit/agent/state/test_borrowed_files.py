#    Licensed under the Apache License, Version 2.0 (the "License"); you may
#    not use this file except in compliance with the License. You may obtain
#    a copy of the License at
#
#         http://www.apache.org/licenses/LICENSE-2.0
#
#    Unless required by applicable law or agreed to in writing, software
#    distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
#    WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
#    License for the specific language governing permissions and limitations
#    under the License.

import os

from diffcache_openstack.agent.images.delivery import outputs
from diffcache_openstack.agent.state import borrowed_files
from diffcache_openstack.agent.state import holdings
from diffcache_openstack.common import exceptions
from tests import base
from tests.unit.agent import fakes

CONTENT = b'content of an image' * 1000
LATER = 2 * 10 ** 18


class BorrowedTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.plane = fakes.Plane(fakes.Network(), 'host')
        self.readers = 0
        self.plane.readers = lambda kind, object_id: self.readers
        self.verified = []
        self.key = fakes.key_of(CONTENT)
        self.base = self.write_file('_base/abc', CONTENT)
        self.files = self.open_files()

    def open_files(self):
        found = borrowed_files.BorrowedFiles(
            self.directory / 'borrowed.json', self.directory / 'manifests',
            self.plane,
            outputs_of(self.base.parent), self.verify)
        self.addCleanup(found.close)
        return found

    def restart(self):
        self.files.close()
        self.plane.borrowed.clear()
        self.files = self.open_files()
        self.verified.clear()
        return self.files.load()

    def verify(self, key, path):
        self.verified.append(key)
        fakes.Inspector().deep(key, path, None)

    def deliver(self):
        self.files.note_delivered(self.key, self.base.stat())
        return self.files.add_delivered(self.key, self.base)

    def read(self):
        with self.files.lease(self.key) as path:
            return path.read_bytes()

    def test_a_delivered_file_is_used_unread(self):
        self.assertTrue(self.deliver())
        self.assertEqual({self.key: CONTENT}, self.plane.borrowed)
        self.assertEqual({self.key}, self.files.keys())
        self.assertEqual({self.key: self.base}, self.files.paths())
        self.assertGreaterEqual(self.files.sizes()[self.key], len(CONTENT))
        self.assertEqual(CONTENT, self.read())
        self.assertEqual([], self.verified)

    def test_a_file_that_is_used_already(self):
        self.deliver()
        os.utime(self.base)
        self.assertTrue(self.files.add_delivered(self.key, self.base))
        self.assertEqual([], self.verified)
        self.base.unlink()
        self.base.write_bytes(CONTENT)
        self.assertFalse(self.files.add_delivered(self.key, self.base))

    def test_a_file_of_another_origin_is_verified(self):
        self.assertFalse(self.files.add_delivered(self.key, self.base))
        self.files.add(self.key, self.base)
        self.assertEqual([self.key], self.verified)
        self.assertEqual(CONTENT, self.read())
        other = self.write_file('_base/other', b'other')
        self.assertRaises(exceptions.IntegrityError, self.files.add,
                          fakes.key_of(b'else'), other)
        self.assertEqual({self.key}, self.files.keys())

    def test_an_exchanged_file_is_not_taken_for_the_delivered_one(self):
        self.files.note_delivered(self.key, self.base.stat())
        kept = self.base.rename(self.base.with_name('kept'))
        self.base.write_bytes(CONTENT)
        self.assertFalse(self.files.add_delivered(self.key, self.base))
        kept.write_bytes(CONTENT + b'x')
        self.assertFalse(self.files.add_delivered(self.key, kept))

    def test_only_what_all_users_may_read(self):
        self.base.chmod(0o640)
        self.assertRaises(exceptions.InvalidInput, self.deliver)
        self.base.chmod(0o644)
        os.symlink(self.base, self.base.with_name('link'))
        self.assertRaises(exceptions.Conflict, self.files.add, self.key,
                          self.base.with_name('link'))
        self.assertRaises(exceptions.InvalidInput, self.files.add, self.key,
                          self.write_file('elsewhere', CONTENT))
        self.assertEqual(frozenset(), self.files.keys())

    def test_a_removed_file_is_kept_while_peers_read_it(self):
        self.deliver()
        self.base.unlink()
        self.readers = 1
        self.assertFalse(self.files.check())
        self.assertEqual(CONTENT, self.read())
        self.readers = 0
        self.assertTrue(self.files.check())
        self.assertEqual({}, self.plane.borrowed)
        self.assertRaises(exceptions.ObjectMissing, self.read)

    def test_a_removed_file_gives_way_on_a_full_disk(self):
        self.deliver()
        held = holdings.Holdings(self.directory / 'objects', None,
                                 fakes.Inspector(), self.plane.readers,
                                 self.files)
        self.assertFalse(held.free_disk())
        self.base.unlink()
        self.readers = 1
        self.assertTrue(held.free_disk())
        self.assertEqual(frozenset(), self.files.keys())

    def test_a_touched_file_is_verified_now_and_then(self):
        self.deliver()
        for _ in range(3):
            os.utime(self.base)
            self.assertFalse(self.files.check())
        self.assertEqual([self.key], self.verified)
        self.assertEqual(CONTENT, self.read())

    def test_a_changed_file_is_withdrawn(self):
        self.deliver()
        self.base.write_bytes(CONTENT[:-1] + b'X')
        self.assertTrue(self.files.check())
        self.assertEqual({}, self.plane.borrowed)
        self.deliver()
        self.base.write_bytes(CONTENT + b'X')
        self.verified.clear()
        self.assertTrue(self.files.check())
        self.assertEqual([], self.verified)

    def test_a_file_that_was_read_changed_is_withdrawn(self):
        self.deliver()
        self.plane.changed.append(self.key)
        self.assertTrue(self.files.check())
        self.assertEqual(frozenset(), self.files.keys())
        self.assertEqual({}, self.restart())
        self.assertEqual(frozenset(), self.files.keys())

    def test_a_restart_finds_an_unchanged_file_unread(self):
        self.deliver()
        self.assertEqual({}, self.restart())
        self.assertEqual({self.key: CONTENT}, self.plane.borrowed)
        self.assertEqual([], self.verified)

    def test_a_restart_leaves_a_touched_file_to_be_verified(self):
        self.deliver()
        os.utime(self.base, ns=(LATER, LATER))
        self.assertEqual({self.key: self.base}, self.restart())
        self.assertEqual({}, self.plane.borrowed)

    def test_a_restart_forgets_what_is_gone_or_another_file(self):
        self.deliver()
        self.base.rename(self.base.with_name('former'))
        self.base.write_bytes(CONTENT)
        self.assertEqual({}, self.restart())
        self.base.unlink()
        self.assertEqual({}, self.restart())
        self.assertEqual(frozenset(), self.files.keys())

    def test_a_list_that_cannot_be_read_is_ignored(self):
        for text in ('', '{', '[]', '{"files": 1}', '{"files": [["x"]]}',
                     '{"files": [["x", "y", "a", 1, 1, 1]]}',
                     '{"files": [["x", "y", 1]]}', '{"files": ["x"]}'):
            (self.directory / 'borrowed.json').write_text(text)
            self.assertEqual({}, self.restart())
        self.assertTrue(self.deliver())

    def test_the_number_of_files_is_limited(self):
        self.patch(borrowed_files, 'MOST_FILES', 1)
        self.deliver()
        self.deliver()
        other = self.write_file('_base/other', b'other')
        self.assertRaises(exceptions.ServiceUnavailable, self.files.add,
                          fakes.key_of(b'other'), other)
        self.assertEqual({self.key}, self.files.keys())


def outputs_of(directory):
    found = outputs.Outputs([str(directory)])
    return lambda path: found.find(path).open()
