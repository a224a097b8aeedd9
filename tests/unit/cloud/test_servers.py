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
"""What Nova says of servers, over HTTP."""

from diffcache_openstack.cloud import servers
from diffcache_openstack.common import exceptions
from diffcache_openstack.conf import opts
from tests import base
from tests import openstack_apis

SERVERS = '/compute/v2.1/servers'


def document(number=1, **values):
    return {'id': f's{number}', 'tenant_id': 'p', 'status': 'SHUTOFF',
            'OS-EXT-SRV-ATTR:host': 'h1', 'OS-EXT-STS:task_state': None,
            'image': {'id': 'an-image'}, **values}


class ServersTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.cloud = self.useFixture(openstack_apis.Cloud())
        self.servers = servers.Servers(opts.new_config(files=[str(
            self.write_file('conf', self.cloud.options('nova').encode()))]))


class TestOne(ServersTest):

    def answer(self, *answers):
        self.cloud.answer('GET', f'{SERVERS}/s1', *answers)

    def test_as_the_service_sees_it(self):
        self.answer(openstack_apis.Answer(document={'server': document()}))
        self.assertEqual(
            servers.Server('s1', 'p', 'SHUTOFF', 'h1', None, 'an-image'),
            self.servers.get('s1'))
        self.assertEqual(openstack_apis.TOKEN,
                         self.cloud.requests[0].headers['X-Auth-Token'])

    def test_as_a_user_sees_it(self):
        self.cloud.answer('GET', f'{SERVERS}/a%2Fb', openstack_apis.Answer(
            document={'server': {'id': 's1', 'tenant_id': 'p',
                                 'status': 'ACTIVE', 'image': ''}}))
        found = self.servers.get('a/b', 'a-token')
        self.assertEqual((None, None), (found.host, found.image_id))
        self.assertEqual('a-token',
                         self.cloud.requests[0].headers['X-Auth-Token'])

    def test_what_may_not_be_seen_is_not_there(self):
        for status in (404, 403, 400):
            self.answer(openstack_apis.Answer(status, {}))
            self.assertRaises(exceptions.NotFound, self.servers.get, 's1')

    def test_nova_is_away(self):
        for answer in (openstack_apis.DROP, openstack_apis.Answer(401, {}),
                       openstack_apis.Answer(406, {})):
            self.answer(answer)
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

    def page(self, request):
        # Nova's API gives no more at once than [api] max_limit.
        start = int(request.query.get('marker', 's-1')[1:]) + 1
        return openstack_apis.Answer(document={'servers': [
            document(number) for number in range(start, min(
                start + 200, 501))]})

    def test_all_parts(self):
        self.cloud.answer('GET', f'{SERVERS}/detail', self.page)
        self.assertEqual(501, len(self.servers.of_project('p')))
        self.assertEqual(
            ['p'] * 4, [request.query['project_id']
                        for request in self.cloud.requests])
        self.assertEqual(
            [None, 's199', 's399', 's500'], [request.query.get('marker')
                                             for request
                                             in self.cloud.requests])

    def test_volumes_of_a_host(self):
        def server(number, *volumes):
            return {'id': f's{number}', 'tenant_id': 'p', 'status': 'ACTIVE',
                    'os-extended-volumes:volumes_attached': [
                        {'id': volume} for volume in volumes]}

        self.cloud.answer('GET', f'{SERVERS}/detail', openstack_apis.Answer(
            document={'servers': [server(1, 'a', 'b'), server(2)]}),
            openstack_apis.Answer(document={'servers': []}))
        found = self.servers.volumes_on('h1')
        self.assertEqual({'a': 's1', 'b': 's1'}, {
            volume: each.id for volume, each in found.items()})
        self.assertEqual('h1', self.cloud.requests[0].query['host'])
        self.cloud.answer(
            'GET', f'{SERVERS}/detail',
            openstack_apis.Answer(document={'servers': [server(3)]}),
            openstack_apis.Answer(document={'servers': []}))
        self.assertEqual(['s3'], [each.id for each in self.servers.on('h1')])
        self.cloud.answer('GET', f'{SERVERS}/detail',
                          openstack_apis.Answer(403, {}))
        self.assertRaises(exceptions.ServiceUnavailable,
                          self.servers.volumes_on, 'h1')
        self.assertRaises(exceptions.ServiceUnavailable, self.servers.on,
                          'h1')

    def test_nova_refuses(self):
        self.cloud.answer('GET', f'{SERVERS}/detail',
                          openstack_apis.Answer(403, {}))
        error = self.assertRaises(exceptions.ServiceUnavailable,
                                  self.servers.of_project, 'p')
        self.assertIn('[nova]', str(error))
