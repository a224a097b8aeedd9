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
"""The client of diffcached; the service itself is tested on real mounts."""

import json
import socketserver
import threading

from diffcache_openstack.agent.lazy import diffcached
from diffcache_openstack.agent_client import restarts
from diffcache_openstack.common import exceptions
from tests import base


class _Handler(socketserver.StreamRequestHandler):

    def handle(self):
        self.server.asked.append(json.loads(self.rfile.readline()))
        self.wfile.write(json.dumps(self.server.answer).encode() + b'\n')


class TestDaemon(base.TestCase):

    def setUp(self):
        super().setUp()
        path = str(self.directory / 'socket')
        self.server = socketserver.UnixStreamServer(path, _Handler)
        self.server.asked = []
        threading.Thread(target=self.server.serve_forever,
                         daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.daemon = diffcached.Diffcached(path)

    def test_commands(self):
        self.server.answer = {'images': [{'content_id': 'c'}]}
        self.assertEqual([{'content_id': 'c'}], self.daemon.images())
        self.server.answer = {'image': {'path': 'p'}}
        self.assertEqual({'path': 'p'}, self.daemon.image('c'))
        self.daemon.add('c', {'wait': 3})
        self.daemon.change('c', {'hydrate': 'idle'})
        self.server.answer = {'profile': {'profile': []}}
        self.assertEqual({'profile': []}, self.daemon.profile('c'))
        self.server.answer = {'removed': 'c'}
        self.daemon.remove('c')
        self.assertEqual([
            {'command': 'list'},
            {'command': 'show', 'image': 'c'},
            {'command': 'add', 'image': 'c', 'wanted': {'wait': 3}},
            {'command': 'change', 'image': 'c',
             'changed': {'hydrate': 'idle'}},
            {'command': 'profile', 'image': 'c'},
            {'command': 'remove', 'image': 'c'}], self.server.asked)

    def test_refusals_have_types(self):
        for name, kind in (
                ('InvalidInput', exceptions.InvalidInput),
                ('NotFound', exceptions.NotFound),
                ('Conflict', exceptions.Conflict),
                ('ServiceUnavailable', exceptions.ServiceUnavailable),
                ('Else', exceptions.ServiceUnavailable)):
            self.server.answer = {
                'error': {'type': name, 'message': 'what and why'}}
            error = self.assertRaises(kind, self.daemon.remove, 'c')
            self.assertIn('refused to remove c: what and why', str(error))

    def test_an_answer_of_no_diffcached_is_unavailable(self):
        for self.server.answer in ({}, [], {'error': 'text'}):
            self.assertRaises(exceptions.ServiceUnavailable,
                              self.daemon.images)

    def test_what_does_not_answer_is_unavailable(self):
        self.assertRaises(
            exceptions.ServiceUnavailable,
            diffcached.Diffcached(str(self.directory / 'none')).images)

    def test_a_restart_is_waited_for_where_an_image_is_to_be_served(self):
        """Without it, servers that started in an upgrade waited for all."""
        socket = self.directory / 'socket'
        away = socket.rename(self.directory / 'away')
        pauses = []

        def sleep(seconds):
            pauses.append(seconds)
            if len(pauses) == 3:
                away.rename(socket)

        found = diffcached.Diffcached(str(socket), restarts.Restarts(
            15.0, lambda: sum(pauses), sleep))
        self.server.answer = {'image': {'path': 'p'}}
        self.assertEqual({'path': 'p'}, found.add('c', {'wait': 3}))
        self.assertEqual(3, len(pauses))

    def test_one_that_does_not_come_back_costs_the_wait_once(self):
        pauses = []
        found = diffcached.Diffcached(str(self.directory / 'none'),
                                      restarts.Restarts(
            15.0, lambda: sum(pauses), pauses.append))
        for _ in range(3):
            self.assertRaises(exceptions.ServiceUnavailable, found.add, 'c',
                              {'wait': 3})
        self.assertEqual(15, sum(pauses))
