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
import socket
import threading

from diffcache_openstack.common import exceptions
from diffcache_openstack.ssdcache import control
from tests import base


class TestSend(base.TestCase):

    def setUp(self):
        super().setUp()
        self.path = str(self.directory / 'control')

    def serve(self, *answers):
        """Answer one client; its request is the first of what is returned."""
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.path)
        listener.listen()
        requests = []

        def answer():
            with listener, listener.accept()[0] as client:
                requests.append(client.makefile('rb').readline())
                for part in answers:
                    client.sendall(part)

        thread = threading.Thread(target=answer)
        thread.start()
        self.addCleanup(thread.join)
        return requests

    def test_status(self):
        requests = self.serve(b'{"status": {"device"', b': {}}}\n')
        self.assertEqual({'device': {}},
                         control.send(self.path, 'set', volume='v', limit=3))
        self.assertEqual({'command': 'set', 'volume': 'v', 'limit': 3},
                         json.loads(requests[0]))

    def test_hot_blocks(self):
        requests = self.serve(b'{"hot": [[3, 2], [9, 1]]}\n')
        self.assertEqual([(3, 2), (9, 1)], control.hot(self.path, 'v', 5))
        self.assertEqual({'command': 'hot', 'volume': 'v', 'most': 5},
                         json.loads(requests[0]))

    def test_warming(self):
        requests = self.serve(b'{"warmed": {"blocks": 3, "room": true}}\n')
        self.assertEqual({'blocks': 3, 'room': True},
                         control.warm(self.path, 'v', [(3, 2), (9, 1)]))
        self.assertEqual({'command': 'warm', 'volume': 'v',
                          'runs': [[3, 2], [9, 1]]}, json.loads(requests[0]))

    def test_refused(self):
        self.serve(b'{"error": {"type": "Refused", "message": "why"}}\n')
        error = self.assertRaises(control.CommandRefused, control.send,
                                  self.path, 'status')
        self.assertEqual('why', str(error))

    def test_a_cache_with_too_many_commands_may_be_asked_again(self):
        self.serve(b'{"error": {"type": "ServiceUnavailable",'
                   b' "message": "repeat it"}}\n')
        self.assertRaises(control.CacheUnreachable, control.send, self.path,
                          'status')

    def test_a_volume_with_too_many_commands_may_be_asked_again(self):
        self.serve(b'{"error": {"type": "Slow", "message": "repeat it"}}\n')
        self.assertRaises(control.CacheSlow, control.send, self.path,
                          'flush', volume='v')

    def test_answers_that_are_none(self):
        for answer in (b'', b'{', b'[]\n', b'{}\n', b'\xff\n',
                       b'{"error": "text"}\n'):
            self.path += 'x'
            self.serve(answer)
            error = self.assertRaises(control.CacheUnreachable, control.send,
                                      self.path, 'status')
            self.assertIsInstance(error, exceptions.RetryableError)

    def test_nothing_listens(self):
        error = self.assertRaises(control.CacheUnreachable, control.send,
                                  self.path, 'status')
        self.assertIn('No such file or directory', str(error))

    def test_a_cache_that_does_not_answer(self):
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.path)
            listener.listen()
            self.assertRaises(control.CacheUnreachable, control.send,
                              self.path, 'status', timeout=0.01)
