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

"""A store keeps its hands off files that are not its own."""

import stat

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.upkeep import pruning
from diffcache_openstack.versions.store.upkeep import verification
from tests.unit.versions import fixture


class TestForeignFiles(fixture.VersionsTestCase):

    def open_directory_with_files(self):
        """Open a directory of a user as a store, as after a wrong --store."""
        directory = self.directory / 'home'
        for name in ('thesis', 'photo-2026', 'Letter.txt', 'album/one'):
            self.write_file(f'home/{name}', b'precious').chmod(0o644)
        directory.chmod(0o755)
        self.access = store_access.StoreAccess(file.FileStore(directory))
        return directory

    def state(self, directory):
        return {str(path): (stat.S_IMODE(path.stat().st_mode),
                            path.is_file() and path.read_bytes())
                for path in (directory, *directory.rglob('*'))}

    def test_no_store_is_created_among_files_of_others(self):
        directory = self.open_directory_with_files()
        before = self.state(directory)
        error = self.assertRaises(exceptions.InvalidInput, self.save)
        self.assertIn('Letter.txt', str(error))
        self.assertRaises(exceptions.InvalidInput, pruning.delete, self.access,
                          ['any'])
        self.assertRaises(exceptions.InvalidInput, pruning.prune, self.access)
        # The permissions are not corrected when it is opened again, either.
        self.open_directory_with_files()
        self.assertEqual(before, self.state(directory))

    def test_a_file_that_was_put_into_a_store_stays(self):
        self.save()
        note = self.write_file('store/note', b'do not delete')
        orphan = self.write_file('store/pack-00000009-dead', b'killed')
        self.save()
        pruning.prune(self.access)
        self.assertTrue(note.exists())
        self.assertFalse(orphan.exists())
        self.assertEqual(0, verification.verify(self.access).orphans)

    def test_a_store_may_be_the_root_of_an_ext4_filesystem(self):
        (self.directory / 'store' / 'lost+found').mkdir()
        version = self.save()
        self.assertEqual(self.disk.read_bytes(), self.content(version))
        self.save()
        self.assertTrue((self.directory / 'store' / 'lost+found').exists())
