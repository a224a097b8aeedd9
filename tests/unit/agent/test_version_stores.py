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
"""Each project has a part of the store, and a key, of its own."""

from diffcache_openstack.agent import version_stores
from diffcache_openstack.common import exceptions
from diffcache_openstack.conf import opts
from diffcache_openstack.store import file
from diffcache_openstack.versions import engine
from tests import base


class TestStores(base.TestCase):

    def setUp(self):
        super().setUp()
        self.conf = opts.new_config()
        self.conf.set_override('store', f'file://{self.directory}/store',
                               'versions')
        self.disk = self.write_file('disk', bytes(range(256)) * 256)

    def save(self, project):
        return version_stores.Stores(self.conf).open(project).save(
            [engine.Disk(self.disk, 'a')])

    def test_projects_see_nothing_of_each_other(self):
        self.save('p1')
        stores = version_stores.Stores(self.conf)
        self.assertEqual(1, len(stores.open('p1').versions()))
        self.assertRaises(exceptions.NotFound, stores.open('p2').versions)

    def test_strange_project_stays_below_the_directory(self):
        self.save('../../Etc')
        self.assertEqual(['disk', 'store'], sorted(
            path.name for path in self.directory.iterdir()))
        [path] = (self.directory / 'store').iterdir()
        self.assertRegex(path.name, '^[0-9a-f]{32}$')

    def test_without_a_store(self):
        self.conf.set_override('store', '', 'versions')
        error = self.assertRaises(
            exceptions.InvalidInput,
            version_stores.Stores(self.conf).open, 'p1')
        self.assertIn('[versions] store', str(error))

    def test_key_of_one_project_does_not_open_anothers(self):
        key = self.write_file('key', b'k' * 32)
        self.conf.set_override('key_file', str(key), 'versions')
        self.save('p1')
        (self.directory / 'store' / 'p1').rename(
            self.directory / 'store' / 'p2')
        stores = version_stores.Stores(self.conf)
        self.assertRaises(exceptions.InvalidInput,
                          stores.open('p2').versions)
        (self.directory / 'store' / 'p2').rename(
            self.directory / 'store' / 'p1')
        self.assertEqual(1, len(stores.open('p1').versions()))


class TestPart(base.TestCase):

    def test_parts_of_one_store(self):
        whole = file.FileStore(self.directory / 'store')
        one, other = (version_stores.Part(whole, tag) for tag in ('a', 'b'))
        with whole.lock():
            one.create('x', b'1')
            other.create('x', b'22')
        self.assertEqual((b'1', b'22'), (one.read('x'), other.read('x')))
        self.assertEqual(['x'], one.names())
        self.assertEqual(2, other.size('x'))
        one.delete('x')
        self.assertRaises(exceptions.NotFound, one.read, 'x')
        self.assertEqual(b'22', other.read('x'))
        self.assertRaises(exceptions.InvalidInput, one.read, '../b-x')
