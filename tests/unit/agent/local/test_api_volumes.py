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
import json
from unittest import mock

from werkzeug import test

from diffcache_openstack.agent.local import local_api
from diffcache_openstack.agent.ssdcache import cached_volumes
from diffcache_openstack.agent.ssdcache import volume_settings
from diffcache_openstack.common import exceptions
from diffcache_openstack.ssdcache import engines
from tests import base

PATH = '/v1/ssd-cache/volumes/7a1dbe2a'


class ApiTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.volumes = mock.create_autospec(cached_volumes.CachedVolumes,
                                            instance=True)
        self.api = self.new(self.volumes)

    def new(self, cached):
        return local_api.LocalApi(*[mock.Mock() for _ in range(6)], cached)

    def ask(self, method, path, body=None, app=None):
        """(status, document) of an answer."""
        data = body if isinstance(body, bytes) or body is None \
            else json.dumps(body).encode()
        answer = test.Client(app or self.api).open(
            path, method=method, data=data,
            environ_overrides={'REQUEST_URI': path})
        return answer.status_code, answer.get_json(silent=True)


class TestVolumes(ApiTest):

    def test_status(self):
        self.volumes.status.return_value = {'capacity': 5, 'volumes': {}}
        self.assertEqual((200, {'capacity': 5, 'volumes': {}}),
                         self.ask('GET', '/v1/ssd-cache'))

    def test_attach(self):
        self.volumes.attach.return_value = {'export': 'e'}
        wanted = {'origin': '/dev/a', 'mode': 'write-through', 'weight': 2}
        self.assertEqual((200, {'export': 'e'}),
                         self.ask('PUT', PATH, wanted))
        self.volumes.attach.assert_called_once_with(
            '7a1dbe2a', volume_settings.VolumeSettings(**wanted))

    def test_detach_resize_and_mode(self):
        self.assertEqual(204, self.ask('DELETE', PATH)[0])
        self.volumes.detach.assert_called_once_with('7a1dbe2a')
        self.assertEqual(204, self.ask('POST', f'{PATH}/resize')[0])
        self.volumes.resize.assert_called_once_with('7a1dbe2a')
        self.assertEqual(204, self.ask('POST', f'{PATH}/disconnect')[0])
        self.volumes.disconnect.assert_called_once_with('7a1dbe2a')
        self.assertEqual(204, self.ask(
            'PUT', f'{PATH}/mode', {'mode': 'write-around'})[0])
        self.volumes.set_mode.assert_called_once_with('7a1dbe2a',
                                                      'write-around')

    def test_a_guest_that_ended(self):
        self.assertEqual(204, self.ask('POST', f'{PATH}/guest-ended')[0])
        self.volumes.end_guest.assert_called_once_with('7a1dbe2a')

    def test_a_volume_that_comes_from_another_host(self):
        self.assertEqual(204, self.ask('POST', f'{PATH}/expected',
                                       {'host': 'h1.example'})[0])
        self.volumes.expect.assert_called_once_with('7a1dbe2a', 'h1.example')

    def test_servers_that_leave(self):
        leave = f'{PATH}/leave'
        self.assertEqual(204, self.ask('PUT', leave, {
            'seconds': 2.5, 'leaves': True})[0])
        self.volumes.drain.assert_called_once_with('7a1dbe2a', 2.5, True)
        self.assertEqual(204, self.ask('DELETE', leave)[0])
        self.volumes.give_back.assert_called_once_with('7a1dbe2a')
        self.assertEqual(204, self.ask('POST', f'{PATH}/forgotten')[0])
        self.volumes.forget.assert_called_once_with('7a1dbe2a')
        self.volumes.drain.side_effect = exceptions.Busy('3 blocks')
        status, document = self.ask('PUT', leave, {'seconds': 0,
                                                   'leaves': False})
        self.assertEqual((503, 'Busy', '3 blocks'), (
            status, document['error']['type'], document['error']['message']))

    def test_hosts_without_a_cache(self):
        app = self.new(None)
        for method, path, body in (
                ('GET', '/v1/ssd-cache', None), ('DELETE', PATH, None),
                ('PUT', PATH, {'origin': '/dev/a', 'mode': 'write-through'}),
                ('POST', f'{PATH}/resize', None),
                ('POST', f'{PATH}/disconnect', None)):
            status, document = self.ask(method, path, body, app)
            self.assertEqual(404, status, (method, path))
            self.assertIn('[ssd_cache] control', str(document))

    def test_requests_that_cannot_be_understood(self):
        for method, path, body in (
                ('PUT', PATH, b'x'), ('PUT', PATH, []), ('PUT', PATH, {}),
                ('PUT', PATH, {'origin': '/dev/a', 'mode': 'fast'}),
                ('PUT', f'{PATH}/leave', {'seconds': 1}),
                ('PUT', f'{PATH}/leave', {'seconds': True, 'leaves': True}),
                ('PUT', f'{PATH}/leave', {'seconds': 301, 'leaves': True}),
                ('PUT', f'{PATH}/leave', {'seconds': 1, 'leaves': 'no'}),
                ('PUT', f'{PATH}/mode', {'mode': 'fast'}),
                ('PUT', f'{PATH}/mode', {'mode': ['x']}),
                ('POST', f'{PATH}/expected', {}),
                ('POST', f'{PATH}/expected', {'host': 'h1/..'}),
                ('POST', f'{PATH}/expected', {'host': 7}),
                ('DELETE', '/v1/ssd-cache/volumes/' + 'x' * 101, None),
                ('DELETE', '/v1/ssd-cache/volumes/a%0Ab', None)):
            self.assertEqual(400, self.ask(method, path, body)[0], body)
        self.assertEqual([], self.volumes.method_calls)

    def test_errors(self):
        for error, status in ((exceptions.NoSpace('full'), 507),
                              (engines.VolumeRefused('no'), 409),
                              (exceptions.RetryableError('gone'), 503)):
            self.volumes.detach.side_effect = error
            self.assertEqual(status, self.ask('DELETE', PATH)[0])
