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
"""Keys of a key manager: castellan's own mock of one, in memory."""

from castellan.common.objects import symmetric_key
from castellan.tests.unit.key_manager import mock_key_manager
from oslo_config import cfg
from oslo_context import context

from diffcache_openstack.agent.versions import version_keys
from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.save import save_request
from diffcache_openstack.versions.save import saving
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.upkeep import verification
from tests.unit.versions import fixture


class TestKeys(fixture.VersionsTestCase):

    def setUp(self):
        super().setUp()
        self.manager = mock_key_manager.MockKeyManager()
        self.keys = version_keys.VersionKeys(cfg.ConfigOpts(), self.manager)
        self.context = context.RequestContext(auth_token='token')

    def test_a_store_is_sealed_with_a_key_of_the_manager(self):
        key_id = self.keys.create(self.context, 'versions of project p')
        store = file.FileStore(self.directory / 'sealed')
        repo = store_access.StoreAccess(store, self.keys.get(self.context,
                                                             key_id))
        saving.save(repo, save_request.SaveRequest(self.disk, 'a'))
        self.assertTrue(verification.verify(repo).intact)
        other = self.keys.create(self.context, 'versions of project q')
        wrong = store_access.StoreAccess(store, self.keys.get(self.context,
                                                              other))
        self.assertRaises(exceptions.InvalidInput, wrong.head)

    def test_a_key_that_was_destroyed_is_not_found(self):
        key_id = self.keys.create(self.context, 'k')
        self.keys.delete(self.context, key_id)
        self.assertRaises(exceptions.NotFound, self.keys.get, self.context,
                          key_id)
        self.assertRaises(exceptions.NotFound, self.keys.delete,
                          self.context, key_id)

    def test_who_has_no_context_is_refused(self):
        self.assertRaises(exceptions.PermanentError, self.keys.create, None,
                          'k')
        self.assertRaises(exceptions.PermanentError, self.keys.get, None, 'k')

    def test_a_key_of_another_size_is_refused(self):
        short = self.manager.store(
            self.context, symmetric_key.SymmetricKey('AES', 128, bytes(16)))
        self.assertRaises(exceptions.InvalidInput, self.keys.get,
                          self.context, short)
