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
"""What Cinder says of volumes, over HTTP."""

from diffcache_openstack.cloud import volumes
from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.conf import opts
from tests import base
from tests import openstack_apis

PATH = '/volume/v3/a-project/volumes/v1'
OWN_PATH = '/volume/v3/volumes/v1'


class VolumesTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.cloud = self.useFixture(openstack_apis.Cloud())
        self.volumes = volumes.Volumes(opts.new_config(files=[str(
            self.write_file('conf', self.cloud.options('cinder').encode()))]))
        self.context = contexts.RequestContext(
            project_id='a-project', auth_token='a-token')

    def get(self, *answers):
        self.cloud.answer('GET', PATH, *answers)
        return self.volumes.get('v1', self.context)

    def test_as_the_caller_sees_it(self):
        found = self.get(openstack_apis.Answer(document={'volume': {
            'id': 'v1', 'encrypted': False, 'multiattach': True}}))
        self.assertEqual(volumes.Volume('v1', False, True), found)
        self.assertEqual('a-token',
                         self.cloud.requests[-1].headers['X-Auth-Token'])

    def test_what_may_not_be_seen_is_refused(self):
        for status in (404, 403, 400):
            error = self.assertRaises(exceptions.Forbidden, self.get,
                                      openstack_apis.Answer(status, {}))
            self.assertIn('--exclude-volume v1', str(error))

    def test_cinder_is_away(self):
        for answer in (openstack_apis.DROP, openstack_apis.Answer(401, {}),
                       openstack_apis.Answer(document={'volume': {}})):
            self.assertRaises(exceptions.ServiceUnavailable, self.get, answer)

    def test_as_the_service_sees_it(self):
        self.cloud.answer('GET', OWN_PATH, openstack_apis.Answer(document={
            'volume': {'id': 'v1', 'encrypted': True, 'multiattach': False,
                       'os-vol-tenant-attr:tenant_id': 'p'}}))
        found = self.volumes.get_as_service('v1')
        self.assertEqual(('p', 'encrypted'),
                         (found.project_id, found.unsaveable))
        self.assertNotEqual('a-token',
                            self.cloud.requests[-1].headers['X-Auth-Token'])

    def test_what_the_service_may_not_see(self):
        for status in (404, 403):
            self.cloud.answer('GET', OWN_PATH,
                              openstack_apis.Answer(status, {}))
            self.assertRaises(exceptions.PermanentError,
                              self.volumes.get_as_service, 'v1')
        self.assertRaises(
            exceptions.PermanentError,
            volumes.Volumes(opts.new_config()).get_as_service, 'v1')

    def test_cinder_is_not_configured(self):
        error = self.assertRaises(
            exceptions.Conflict,
            volumes.Volumes(opts.new_config()).get, 'v1', self.context)
        self.assertIn('[cinder]', str(error))
