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

import http.server
import json
import socketserver
import threading

from diffcache_openstack.agent.lazy import diffcached
from diffcache_openstack.agent_client import restarts
from diffcache_openstack.common import exceptions
from tests import base


class _Handler(http.server.BaseHTTPRequestHandler):

    def _answer(self):
        length = int(self.headers.get('Content-Length') or 0)
        body = self.rfile.read(length)
        self.server.asked.append(
            (self.command, self.path, json.loads(body) if body else None))
        status, document = self.server.answer
        data = json.dumps(document).encode() if document is not None else b''
        self.send_response(status)
        self.send_header('Content-Length', str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_PUT = do_PATCH = do_DELETE = _answer

    def address_string(self):
        return 'local'

    def log_message(self, *args):
        pass


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

    def test_requests(self):
        self.server.answer = 200, {'images': [{'content_id': 'c'}]}
        self.assertEqual([{'content_id': 'c'}], self.daemon.images())
        self.daemon.image('c')
        self.daemon.add('c', {'wait': 3})
        self.daemon.change('c', {'hydrate': 'idle'})
        self.server.answer = 200, {'profile': []}
        self.assertEqual({'profile': []}, self.daemon.profile('c'))
        self.server.answer = 204, None
        self.daemon.remove('c')
        self.assertEqual([
            ('GET', '/v1/images', None),
            ('GET', '/v1/images/c', None),
            ('PUT', '/v1/images/c', {'wait': 3}),
            ('PATCH', '/v1/images/c', {'hydrate': 'idle'}),
            ('GET', '/v1/images/c/profile', None),
            ('DELETE', '/v1/images/c', None)], self.server.asked)

    def test_refusals_have_types(self):
        for status, name, kind in (
                (400, 'InvalidInput', exceptions.InvalidInput),
                (404, 'NotFound', exceptions.NotFound),
                (409, 'Conflict', exceptions.Conflict),
                (503, 'ServiceUnavailable', exceptions.ServiceUnavailable),
                (500, 'Else', exceptions.ServiceUnavailable)):
            self.server.answer = status, {
                'error': {'type': name, 'message': 'what and why'}}
            error = self.assertRaises(kind, self.daemon.remove, 'c')
            self.assertIn('what and why', str(error))

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
        self.server.answer = 200, {'path': 'p'}
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
