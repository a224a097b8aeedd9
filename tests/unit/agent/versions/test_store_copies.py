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
"""A store with a copy: what is lost or damaged is read from the copy."""

import collections
import pathlib
import random
import shutil

from castellan.tests.unit.key_manager import mock_key_manager

from diffcache_openstack.agent.versions import version_stores
from diffcache_openstack.common import exceptions
from diffcache_openstack.conf import opts
from diffcache_openstack.versions.store.access import store_reader
from diffcache_openstack.versions import version_store
from tests import base

_JOB = version_store.Job()


class TestCopies(base.TestCase):

    def setUp(self):
        super().setUp()
        self.conf = opts.new_config()
        for name in ('store', 'copy'):
            self.conf.set_override(name, f'file://{self.directory}/{name}',
                                   'versions')
        self.noise = random.Random(1)
        self.counts = collections.Counter()
        self.manager = mock_key_manager.MockKeyManager()
        self.disk = self.write_file('disk', b'')
        self.contents = {}
        self.stores = self.open_stores()

    def open_stores(self):
        return version_stores.Stores(
            self.conf, self.manager, memory=self.directory / 'memory',
            copy_reads=self.counts)

    def save(self):
        self.disk.write_bytes(self.noise.randbytes(1 << 18))
        [version] = self.stores.open_for_save('p').save(
            [version_store.Disk(self.disk, 'a')])
        self.contents[version.id] = self.disk.read_bytes()
        return version.id

    def replicate(self):
        return self.stores.replicate('p', _JOB)

    def assert_restored(self, version_id):
        output = self.directory / 'output'
        output.unlink(missing_ok=True)
        self.stores.open('p').restore(version_id, output)
        self.assertEqual(self.contents[version_id], output.read_bytes())

    def packs(self) -> list[pathlib.Path]:
        return sorted((self.directory / 'store' / 'p').glob('pack-*'))

    def damage(self, path):
        data = path.read_bytes()
        path.write_bytes(data[:-9999] + b'damage' + data[-9993:])

    def test_a_lost_store_is_read_from_the_copy(self):
        first = self.save()
        self.replicate()
        self.save()
        self.assert_restored(first)
        self.assertEqual(0, self.counts['stores'])
        shutil.rmtree(self.directory / 'store')
        self.assert_restored(first)
        self.assertEqual(1, self.counts['stores'])
        # Nothing changes a copy but its replication.
        self.assertRaises(exceptions.Forbidden,
                          self.stores.open('p').delete, [first])

    def test_the_key_of_a_lost_store_is_that_of_the_copy(self):
        self.conf.set_override('key_manager', True, 'versions')
        first = self.save()
        self.replicate()
        shutil.rmtree(self.directory / 'store')
        self.stores = self.open_stores()
        self.assert_restored(first)

    def test_a_missing_blob_is_read_from_the_copy(self):
        first = self.save()
        self.replicate()
        for path in (self.directory / 'store' / 'p').glob('[pi]*-0*'):
            path.unlink()
        self.assert_restored(first)
        self.assertEqual(2, self.counts['blobs'])

    def test_damaged_blobs_are_read_from_the_copy_and_repaired(self):
        found = [self.save() for _ in range(2)]
        self.replicate()
        for path in self.packs():
            self.damage(path)
        for version_id in found:
            self.assertRaises(store_reader.Distrusted, self.assert_restored,
                              version_id)
            self.assert_restored(version_id)
        self.assertEqual(2, self.counts['blobs'])
        self.assertTrue(self.stores.verify('p', _JOB).intact)
        self.assertEqual(2, self.counts['repaired'])
        shutil.rmtree(self.directory / 'copy')
        self.assert_restored(found[0])

    def test_a_reader_goes_on_in_the_copy(self):
        first = self.save()
        self.replicate()
        reader = self.stores.open('p').read(first)
        self.addCleanup(reader.close)
        [pack] = self.packs()
        self.damage(pack)
        self.assertEqual(self.contents[first], reader.read(0, 1 << 18))
        self.assertEqual(1, self.counts['blobs'])

    def test_what_the_copy_lacks_stays_damaged(self):
        self.save()
        self.replicate()
        last = self.save()
        self.damage(self.packs()[-1])
        found = self.stores.verify('p', _JOB)
        self.assertEqual([last], found.versions_damaged)
        self.assertRaises(store_reader.Distrusted, self.assert_restored, last)
        self.assertRaises(exceptions.RetryableError, self.assert_restored,
                          last)

    def test_a_rebuilt_store_is_accepted_when_hosts_forget(self):
        first = self.save()
        self.replicate()
        last = self.save()
        self.assertRaisesRegex(exceptions.Conflict, 'has versions',
                               self.stores.rebuild, 'p', _JOB)
        shutil.rmtree(self.directory / 'store')
        self.stores.rebuild('p', _JOB)
        error = self.assertRaises(exceptions.IntegrityError, self.save)
        self.assertIn('is back at catalogue', str(error))
        [path] = [word for word in str(error).split()
                  if str(self.directory / 'memory') in word]
        pathlib.Path(path).unlink()
        self.assertRaises(exceptions.NotFound, self.assert_restored, last)
        for version_id in (first, self.save()):
            self.assert_restored(version_id)
        self.replicate()
        shutil.rmtree(self.directory / 'store')
        self.assert_restored(version_id)

    def test_without_a_copy_nothing_is_replicated(self):
        self.conf.set_override('copy', None, 'versions')
        for work in (self.stores.replicate, self.stores.rebuild):
            self.assertRaisesRegex(exceptions.InvalidInput,
                                   r'\[versions\] copy', work, 'p', _JOB)
