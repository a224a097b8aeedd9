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
"""What diffcached reads a version from."""

import json
import os

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.restore import descriptions
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.upkeep import key_rotation
from diffcache_openstack.versions.store.upkeep import pruning
from tests.unit.versions import fixture


class TestDescriptions(fixture.VersionsTestCase):

    def described(self, version) -> tuple[descriptions.Described, dict]:
        found = descriptions.describe(self.access, version.id)
        self.addCleanup(found.close)
        return found, json.loads(found.path.read_bytes())

    @staticmethod
    def descriptors(document: dict) -> list[int]:
        paths = [pack[name] for pack in document['packs']
                 for name in ('index', 'data')]
        paths += [each['path'] for each in document['maps']]
        return [int(path.rpartition('/')[2]) for path in paths]

    def test_only_what_the_version_needs(self):
        first = self.save()
        other = self.write_file('other', self.blocks_of(50))
        self.save(other, series='b')
        _, document = self.described(first)
        self.assertEqual(1, len(document['packs']))
        self.assertEqual(1, len(document['maps']))
        self.assertEqual((first.size, list(first.root), {}),
                         (document['size'], document['root'],
                          document['keys']))

    def test_processes_that_are_started_inherit_all_of_it(self):
        found, document = self.described(self.save())
        own = int(found.path.name)
        for descriptor in (own, *self.descriptors(document)):
            self.assertTrue(os.get_inheritable(descriptor))

    def test_what_is_pruned_meanwhile_can_be_read(self):
        version = self.save()
        [pack] = self.access.head().packs.values()
        expected = self.store.read(pack.blob)
        _, document = self.described(version)
        pruning.delete(self.access, [version.id])
        pruning.prune(self.access)
        self.assertFalse(self.store.exists(pack.blob))
        [described] = document['packs']
        with open(described['data'], 'rb') as stream:
            self.assertEqual(expected, stream.read())

    def test_closing_it_leaves_nothing_open(self):
        before = sorted(os.listdir('/proc/self/fd'))
        descriptions.describe(self.access, self.save().id).close()
        self.assertEqual(before, sorted(os.listdir('/proc/self/fd')))

    def test_keys_are_in_it_and_former_ones(self):
        one, other = b'1' * 32, b'2' * 32
        self.access = store_access.StoreAccess(self.store, one)
        version = self.save()
        self.access = key_rotation.rotate(self.access, other)
        _, document = self.described(version)
        self.assertEqual({'1': one.hex(), '2': other.hex()},
                         document['keys'])
        self.assertEqual((2, [1]), (
            document['key_number'],
            [pack['key'] for pack in document['packs']]))

    def test_a_store_without_files_is_refused(self):
        self.access = store_access.StoreAccess(
            fixture.RemoteStore(self.directory / 'remote'))
        version = self.save()
        error = self.assertRaises(exceptions.InvalidInput,
                                  descriptions.describe, self.access,
                                  version.id)
        self.assertIn('restore the version', str(error))

    def test_with_paths_for_other_processes(self):
        version = self.save()
        output = self.directory / 'description'
        self.assertTrue(descriptions.write(self.access, version.id, output))
        [pack] = json.loads(output.read_bytes())['packs']
        [entry] = self.access.head().packs.values()
        self.assertEqual(str(self.store.local_path(entry.blob)),
                         pack['data'])

    def test_no_file_has_a_key_or_is_of_a_remote_store(self):
        output = self.directory / 'description'
        for store, key in ((self.store, b'k' * 32), (fixture.RemoteStore(
                self.directory / 'remote'), None)):
            self.access = store_access.StoreAccess(store, key)
            version = self.save()
            self.assertFalse(descriptions.write(self.access, version.id,
                                                output))
            self.assertFalse(output.exists())

    def test_a_missing_pack_is_damage(self):
        version = self.save()
        [pack] = self.access.head().packs.values()
        self.store.delete(pack.blob)
        self.assertRaises(exceptions.IntegrityError, descriptions.describe,
                          self.access, version.id)

    def test_an_unknown_version(self):
        self.save()
        self.assertRaises(exceptions.NotFound, descriptions.describe,
                          self.access, 'none-such')
