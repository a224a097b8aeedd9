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
"""A store of which only the inbox is written."""

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.blobs import layered
from tests import base
from tests.unit.versions.blobs import conformance


class TestLayeredStore(conformance.Conformance, base.TestCase):

    def make_store(self):
        return layered.LayeredStore(
            file.FileStore.existing(self.directory / 'main'),
            file.FileStore(self.directory / 'inbox'))

    # Hosts that only add delete nothing: see test_acceptance.
    test_deleting_frees_what_no_version_needs = None
    test_a_prune_rewrites_packs = None


class TestLayers(base.TestCase):

    def setUp(self):
        super().setUp()
        self.main = file.FileStore(self.directory / 'main')
        self.inbox = file.FileStore(self.directory / 'inbox')
        self.store = layered.LayeredStore(
            file.FileStore.existing(self.directory / 'main'), self.inbox)
        self.main.create('a', b'main')

    def test_the_main_store_is_never_changed(self):
        for write in (self.store.create, self.store.replace):
            self.assertRaises(exceptions.Conflict, write, 'a', b'other')
            write(f'new-{write.__name__}', b'1')
        self.assertRaises(exceptions.Conflict, self.store.put_file, 'a',
                          self.write_file('x', b'other'))
        self.store.delete('a')
        self.assertEqual((['a'], b'main'), (self.main.names(),
                                            self.store.read('a')))
        self.assertEqual(['new-create', 'new-replace'],
                         sorted(self.inbox.names()))
        self.assertEqual(['a', 'new-create', 'new-replace'],
                         self.store.names())

    def test_the_main_store_hides_the_inbox(self):
        self.inbox.create('a', b'inbox')
        self.assertEqual((b'main', 4), (self.store.read('a'),
                                        self.store.size('a')))
        self.assertEqual(self.directory / 'main' / 'a',
                         self.store.local_path('a'))
