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
"""What Nova says of servers, from answers that it could give."""

import types

from keystoneauth1 import exceptions as ksa_exceptions

from diffcache_openstack.common import exceptions
from diffcache_openstack.conductor import servers
from diffcache_openstack.conf import opts
from tests import base


def document(number=1, **values):
    return {'id': f's{number}', 'tenant_id': 'p', 'status': 'SHUTOFF',
            'OS-EXT-SRV-ATTR:host': 'h1', 'OS-EXT-STS:task_state': None,
            'image': {'id': 'an-image'}, **values}


class ServersTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.servers = servers.Servers(opts.new_config())
        self.servers._nova = types.SimpleNamespace(adapter=lambda: self)
        self.asked = []
        self.answers = []

    def get(self, path, **arguments):
        self.asked.append((path, arguments))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return types.SimpleNamespace(json=lambda: answer)


class TestOne(ServersTest):

    def test_as_the_service_sees_it(self):
        self.answers = [{'server': document()}]
        self.assertEqual(
            servers.Server('s1', 'p', 'SHUTOFF', 'h1', None, 'an-image'),
            self.servers.get('s1'))
        self.assertEqual([('/servers/s1', {})], self.asked)

    def test_as_a_user_sees_it(self):
        self.answers = [{'server': {
            'id': 's1', 'tenant_id': 'p', 'status': 'ACTIVE', 'image': ''}}]
        found = self.servers.get('a/b', 'a-token')
        self.assertEqual((None, None), (found.host, found.image_id))
        self.assertEqual([('/servers/a%2Fb', {
            'headers': {'X-Auth-Token': 'a-token'},
            'authenticated': False})], self.asked)

    def test_what_may_not_be_seen_is_not_there(self):
        for error in (ksa_exceptions.NotFound, ksa_exceptions.Forbidden,
                      ksa_exceptions.BadRequest):
            self.answers = [error()]
            self.assertRaises(exceptions.NotFound, self.servers.get, 's1')

    def test_nova_is_away(self):
        for error in (ksa_exceptions.ConnectFailure('x'),
                      ksa_exceptions.Unauthorized('x')):
            self.answers = [error]
            self.assertRaises(exceptions.ServiceUnavailable,
                              self.servers.get, 's1')

    def test_nova_is_not_configured(self):
        error = self.assertRaises(
            exceptions.ServiceUnavailable,
            servers.Servers(opts.new_config()).get, 's1')
        self.assertIn('[nova]', str(error))

    def test_stopped(self):
        for status, task, expected in (
                ('SHUTOFF', None, True), ('SHUTOFF', 'powering-on', False),
                ('ACTIVE', None, False)):
            self.assertEqual(expected, servers.Server(
                's', 'p', status, task=task).stopped)


class TestProject(ServersTest):

    def test_all_parts(self):
        many = [document(number) for number in range(500)]
        self.answers = [{'servers': many}, {'servers': [document(500)]}]
        self.assertEqual(501, len(self.servers.of_project('p')))
        self.assertIn('project_id=p', self.asked[0][0])
        self.assertIn('marker=s499', self.asked[1][0])
