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
"""Heads of stores, and what killed writers left."""

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.catalogue import blob_names
from diffcache_openstack.versions.store.commits import heads
from diffcache_openstack.versions.store.upkeep import pruning
from diffcache_openstack.versions.store.upkeep import verification
from tests.unit.versions import fixture


class TestHeads(fixture.VersionsTestCase):

    blocks = 3

    def test_the_last_head_counts_though_pointers_lag(self):
        first = self.save()
        for name in ('latest-0', 'latest-1'):
            self.store.delete(name)
        self.write_blocks(self.disk, 1)
        second = self.save()
        self.assertEqual([first.id, second.id],
                         list(self.access.head().versions))

    def test_a_torn_head_that_no_pointer_names_does_not_count(self):
        first = self.save()
        self.store.create(blob_names.of_head(2), b'half a head')
        self.assertEqual([first.id], list(self.access.head().versions))

    def test_others_commit_more_than_is_kept_while_it_is_read(self):
        self.save()
        read, others = self.store.read, store_access.StoreAccess(
            file.FileStore(self.directory / 'store'))

        def commit(name, *part):
            if name == blob_names.of_head(1):
                self.patch(self.store, 'read', read)
                for _ in range(heads.KEPT + 1):
                    others.commit(others.head())
            return read(name, *part)

        self.patch(self.store, 'read', commit)
        self.assertEqual(heads.KEPT + 2, self.access.head().number)

    def test_a_head_that_is_missing(self):
        self.save()
        self.store.delete(blob_names.of_head(1))
        error = self.assertRaises(exceptions.IntegrityError, self.access.head)
        self.assertIn('head-0000000001 is missing', str(error))

    def test_two_writers_do_not_both_win(self):
        self.save()
        one, other = self.access.head(), self.access.head()
        self.access.commit(one)
        self.assertRaises(exceptions.Busy, self.access.commit, other)

    def test_what_killed_writers_left_goes_with_the_next(self):
        self.save()
        self.store.create('pack-00000009-dead', b'orphan')
        self.assertEqual(1, verification.verify(self.access).orphans)
        pruning.prune(self.access)
        self.assertFalse(self.store.exists('pack-00000009-dead'))

    def test_what_killed_saves_left_goes_with_the_next(self):
        self.save()
        dead = self.write_file('store/.writers/staging-x/puts',
                               b'{"pack-00000009-dead": "x"}').parent
        self.store.create('pack-00000009-dead', b'orphan')
        with self.store.staging() as live:
            (live / 'puts').write_text('{"pack-00000010-live": "x"}')
            self.store.create('pack-00000010-live', b'uncommitted')
            self.save()
            pruning.prune(self.access)
            self.assertTrue(self.store.exists('pack-00000010-live'))
        self.assertFalse(self.store.exists('pack-00000009-dead'))
        self.assertFalse(dead.exists())

    def test_an_empty_store_says_so(self):
        empty = store_access.StoreAccess(self.store)
        self.assertRaises(exceptions.NotFound, empty.head)
