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

from diffcache_openstack.agent.images import borrowing
from diffcache_openstack.agent.state import borrowed_files
from diffcache_openstack.common import exceptions
from diffcache_openstack.sites import views
from tests import base
from tests.unit.agent import fakes
from tests.unit.agent.state import test_borrowed_files

CONTENT = b'content of an image' * 1000


class BorrowingTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.network = fakes.Network()
        self.repository = fakes.Host(self.directory, self.network, 'repo')
        self.host = fakes.Host(self.directory, self.network, 'h1', 10)
        self.repository.put(CONTENT)
        self.host.view = fakes.site_view([self.host, self.repository],
                                         {'image': CONTENT}, [])
        self.key = fakes.key_of(CONTENT)
        self.base = self.write_file('_base/abc', CONTENT)
        self.files = borrowed_files.BorrowedFiles(
            self.directory / 'borrowed.json', self.host.held.root
            / views.MANIFESTS, self.host.plane,
            test_borrowed_files.outputs_of(self.base.parent), self.verify)
        self.addCleanup(self.files.close)
        self.verified = 0
        self.borrowing = borrowing.Borrowing(
            self.files, self.host.builder, self.host.state,
            self.host.transfers, self.host.new_throttle)

    def verify(self, key, path):
        self.verified += 1
        fakes.Inspector().deep(key, path, None)

    def offer(self, name='abc'):
        return self.borrowing.offer(self.host.view.image('image'),
                                    self.base.with_name(name))

    def test_a_delivered_file_is_used_and_announced(self):
        self.files.note_delivered(self.key, self.base.stat())
        self.assertTrue(self.offer())
        self.assertTrue(self.host.state.report_due.is_set())
        self.borrowing.work()
        self.assertEqual({self.key: 'h1'}, self.network.claims)
        self.assertEqual(0, self.verified)

    def test_another_file_is_verified_with_a_manifest(self):
        self.assertFalse(self.offer())
        self.assertEqual(frozenset(), self.files.keys())
        self.borrowing.work()
        self.assertEqual({self.key}, self.files.keys())
        self.assertEqual('h1', self.network.claims[self.key])
        self.assertTrue(self.host.held.manifest(self.key.id).exists())

    def test_one_with_other_content_is_read_once(self):
        self.base.write_bytes(b'other')
        for _ in range(2):
            self.offer()
            self.borrowing.work()
            self.borrowing.work()
        self.assertEqual((2, frozenset()), (self.verified, self.files.keys()))

    def test_it_waits_for_its_manifest(self):
        self.network.down.add('http://repo')
        self.offer()
        self.borrowing.work()
        self.assertEqual(frozenset(), self.files.keys())
        self.network.down.clear()
        self.borrowing.work()
        self.assertEqual({self.key}, self.files.keys())

    def test_one_of_a_withdrawn_image_is_not_used(self):
        self.offer()
        self.host.view = fakes.site_view([self.host, self.repository], {}, [])
        self.borrowing.work()
        self.assertEqual((0, frozenset()), (self.verified, self.files.keys()))

    def test_what_cannot_be_opened_is_refused(self):
        for name in ('missing', 'x' * 300):
            self.assertRaises(exceptions.InvalidInput, self.offer, name)

    def test_so_many_wait_at_a_time(self):
        self.patch(borrowing, '_MOST_WAITING', 0)
        self.assertRaises(exceptions.ServiceUnavailable, self.offer)

    def test_a_removed_file_is_reported(self):
        self.files.note_delivered(self.key, self.base.stat())
        self.offer()
        self.borrowing.work()
        self.host.state.report_due.clear()
        self.base.unlink()
        self.borrowing.work()
        self.assertTrue(self.host.state.report_due.is_set())
