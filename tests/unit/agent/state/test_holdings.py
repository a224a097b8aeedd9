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
import errno
import fcntl
import os

import hypothesis
from hypothesis import strategies

from diffcache_openstack.agent.state import holdings
from diffcache_openstack.common import exceptions
from diffcache_openstack.sites import views
from tests import base
from tests.unit.agent import fakes

BLOCK = 4096


def block(letter: str, count: int = 1) -> bytes:
    return letter.encode() * (BLOCK * count)


class Unreadable:
    """Inspects in a process that has no descriptors left."""

    def quick(self, key, path, manifest):
        raise OSError(errno.EMFILE, 'Too many open files')

    deep = quick


class HoldingsTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.readers = {}
        self.held = self.new_holdings()
        self.held.scan()

    def new_holdings(self, capacity=4 * BLOCK):
        return holdings.Holdings(
            self.directory / 'objects', capacity, fakes.Inspector(),
            lambda kind, object_id: self.readers.get(object_id, 0))

    def put(self, content, kind=views.IMAGES, age=0.0):
        key = fakes.key_of(content, kind)
        if kind == views.IMAGES:
            self.held.manifest(key.id).write_bytes(b'm')
        with self.held.room_for(key, len(content)):
            self.held.path(key).write_bytes(content)
            self.held.added(key)
        self.held._last_used[key] -= age
        return key

    def want(self, *keys):
        self.held.want([holdings.PlacedObject(k, n) for n,
                        k in enumerate(keys)])

    def test_a_new_start_finds_what_was_held(self):
        kept = self.put(block('a'))
        patch = self.put(block('p'), views.PATCHES)
        again = self.new_holdings()
        again.scan()
        self.assertIn(kept, again)
        self.assertIn(patch, again)
        self.assertEqual(2 * BLOCK, again.used())

    def test_accounts_for_no_more_than_was_set_aside(self):
        key = fakes.key_of(b'sparse', views.IMAGES)
        self.held.manifest(key.id).write_bytes(b'm')
        with self.held.room_for(key, BLOCK // 2):
            self.held.path(key).write_bytes(bytes(BLOCK))
            self.held.added(key)
        self.assertEqual(BLOCK // 2, self.held.used())

    def test_two_that_bring_one_object_set_its_room_aside_once(self):
        key = fakes.key_of(block('a', 3))
        with self.held.room_for(key, 3 * BLOCK):
            with self.held.room_for(key, 3 * BLOCK):
                self.assertEqual(BLOCK, self.held.spare())
            self.assertEqual(BLOCK, self.held.spare())
        self.assertEqual(4 * BLOCK, self.held.spare())

    def test_takes_what_room_was_set_aside_for(self):
        content = block('a', 2)
        key = fakes.key_of(content)
        self.held.manifest(key.id).write_bytes(b'm')
        for staged in (self.held.staging('x'), self.held.staging('y')):
            staged.write_bytes(content)
            with self.held.room_for(key, len(content)):
                self.held.take(key, staged)
        self.assertEqual(content, self.held.path(key).read_bytes())
        # What was held already stays as it is.
        self.assertTrue(self.held.staging('y').exists())
        self.assertFalse(self.held.staging('x').exists())
        self.assertEqual(2 * BLOCK, self.held.used())

    def test_scan_quarantines_an_image_without_manifest(self):
        key = self.put(block('a'))
        self.held.manifest(key.id).unlink()
        again = self.new_holdings()
        again.scan()
        self.assertNotIn(key, again)
        self.assertFalse(again.path(key).exists())
        self.assertEqual([f'images-{key.id}'],
                         os.listdir(again.root / 'quarantine'))

    def test_scan_after_a_kill_while_a_patch_was_created(self):
        """The agent did not start: patches are created in a directory."""
        scratch = self.held.staging('.patch.1234.tmp')
        scratch.mkdir()
        (scratch / 'block').write_bytes(b'half a patch')
        elsewhere = self.directory / 'elsewhere'
        elsewhere.mkdir()
        self.held.staging('link').symlink_to(elsewhere)
        self.held.scan()
        self.assertEqual([], list((self.held.root / 'staging').iterdir()))
        self.assertTrue(elsewhere.exists())

    def test_scan_keeps_resumable_parts_and_removes_strays(self):
        part = self.held.root / 'images' / f'.{"0" * 64}.part'
        part.write_bytes(b'half')
        stray = self.held.root / 'images' / '.image.1234.tmp'
        stray.write_bytes(b'x')
        staged = self.held.staging('output')
        staged.write_bytes(b'x')
        self.held.scan()
        self.assertTrue(part.exists())
        self.assertFalse(stray.exists())
        self.assertFalse(staged.exists())

    def test_parts_of_what_is_no_longer_wanted_go(self):
        part = self.held.root / 'images' / f'.{"0" * 64}.part'
        part.write_bytes(b'half')
        self.want(views.Key(views.IMAGES, '0' * 64))
        self.assertTrue(part.exists())
        self.want()
        self.assertFalse(part.exists())

    def test_a_plan_leaves_the_manifest_that_is_being_fetched(self):
        """Its part was removed, and the transfer failed as damaged."""
        part = self.held.root / 'manifests' / f'.{"0" * 64}.part'
        with part.open('wb') as writer:
            fcntl.flock(writer, fcntl.LOCK_EX)
            self.want()
            self.assertTrue(part.exists())
        self.want()
        self.assertFalse(part.exists())

    def test_parts_that_cannot_be_locked_go(self):
        folder = self.held.root / 'images'
        (folder / f'.{"0" * 64}.part').symlink_to(self.directory / 'gone')
        (folder / f'.{"1" * 64}.part.old').mkdir()
        self.want()
        self.assertEqual([], list(folder.iterdir()))

    def test_evicts_only_as_much_as_it_takes_oldest_first(self):
        old = self.put(block('a', 2), age=100)
        newer = self.put(block('b'), age=50)
        wanted = self.put(block('c'), age=200)
        self.want(wanted)
        added = self.put(block('d'))
        self.assertNotIn(old, self.held)
        self.assertFalse(self.held.path(old).exists())
        for key in (newer, wanted, added):
            self.assertIn(key, self.held)

    def test_nothing_is_evicted_without_need(self):
        first = self.put(block('a'))
        self.want()
        self.put(block('b'))
        self.assertIn(first, self.held)

    def test_what_is_leased_is_not_evicted(self):
        key = self.put(block('a', 4))
        self.want()
        with self.held.lease(key) as path:
            self.assertRaises(exceptions.NoSpace, self.put, block('b'))
            self.assertTrue(path.exists())
        self.put(block('b'))
        self.assertNotIn(key, self.held)

    def test_what_a_peer_reads_is_not_evicted(self):
        key = self.put(block('a', 4))
        self.want()
        self.readers[key.id] = 1
        error = self.assertRaises(exceptions.NoSpace, self.put, block('b'))
        self.assertIn('cache_capacity', str(error))
        self.readers[key.id] = 0
        self.put(block('b'))

    def test_reservations_count(self):
        self.want()
        with self.held.room_for(views.Key(views.PATCHES, 'a' * 64), 3 * BLOCK):
            self.assertRaises(exceptions.NoSpace, self.put, block('b', 2))
        self.put(block('b', 2))

    def test_manifests_need_no_room(self):
        held = self.put(block('a', 4))
        key = views.Key(views.MANIFESTS, 'b' * 64)
        with self.held.room_for(key, 10 * BLOCK):
            self.assertIn(held, self.held.readable())
        image = views.Key(views.IMAGES, 'b' * 64)
        with self.assertRaises(exceptions.NoSpace):
            with self.held.room_for(image, 10 * BLOCK):
                self.fail('there is no room for it')

    def test_lease_of_what_vanished(self):
        key = self.put(block('a'))
        self.held.path(key).unlink()
        with self.assertRaisesRegex(exceptions.ObjectMissing, key.id):
            with self.held.lease(key):
                self.fail('leased')
        self.assertNotIn(key, self.held)

    def test_verify_quarantines_what_is_damaged(self):
        key = self.put(block('a'))
        self.assertTrue(self.held.verify(key))
        self.held.path(key).write_bytes(block('b'))
        self.assertFalse(self.held.verify(key))
        self.assertNotIn(key, self.held)
        self.assertFalse(self.held.path(key).exists())

    def test_an_error_that_says_nothing_of_an_object_leaves_it(self):
        key = self.put(block('a'))
        self.held.inspector = Unreadable()
        self.assertFalse(self.held.verify(key))
        self.assertIn(key, self.held)
        again = self.new_holdings()
        again.inspector = Unreadable()
        again.scan()
        self.assertNotIn(key, again)
        self.assertTrue(again.path(key).exists())

    def test_quarantine_is_bounded(self):
        for letter in 'abcd':
            self.held.quarantine(self.put(block(letter)), 'test')
        self.assertEqual(holdings.QUARANTINE_KEPT,
                         len(os.listdir(self.held.root / 'quarantine')))

    def test_full_disk_drops_all_that_is_unwanted(self):
        wanted, unwanted = self.put(block('a')), self.put(block('b'))
        self.want(wanted)
        self.assertTrue(self.held.free_disk())
        self.assertEqual([wanted.id], os.listdir(self.held.root / 'images'))
        self.assertNotIn(unwanted, self.held)
        self.assertFalse(self.held.free_disk())

    @hypothesis.given(strategies.lists(strategies.tuples(
        strategies.integers(0, 5), strategies.integers(1, 3),
        strategies.booleans())))
    @hypothesis.settings(max_examples=40)
    def test_never_above_capacity_and_never_drops_the_wanted(self, steps):
        held = self.new_holdings()
        for path in (held.root / 'images').iterdir():
            path.unlink()
        held.scan()
        self.held = held
        wanted = set()
        for number, blocks, is_wanted in steps:
            content = block(chr(97 + number), blocks)
            key = fakes.key_of(content)
            if is_wanted:
                wanted.add(key)
            self.want(*wanted)
            before = wanted & held.keys()
            if key not in held:
                try:
                    self.put(content)
                except exceptions.NoSpace:
                    self.assertNotIn(key, held)
            self.assertLessEqual(held.used(), 4 * BLOCK)
            self.assertLessEqual(before, held.keys())
