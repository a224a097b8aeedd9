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
"""The driver of backups in a process that eventlet runs, as cinder-backup is.

Run by :mod:`tests.unit.cinder.test_backup` as a program: a process is patched
for good, and before it imports anything else.
"""

import cinder.tests.unit  # noqa: F401 (patches)

import contextlib  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import types  # noqa: E402
import unittest  # noqa: E402
from unittest import mock  # noqa: E402

from eventlet import patcher  # noqa: E402
from eventlet import tpool  # noqa: E402

from diffcache_openstack.cinder import backup  # noqa: E402
from tests import hubs  # noqa: E402
from tests.unit.cinder import needs  # noqa: E402

socket = patcher.original('socket')
threading = patcher.original('threading')


class Agent:
    """Takes one volume, reads it, and takes its time."""

    def __init__(self, path, hub):
        self._hub = hub
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(path)
        self._server.listen()
        self.read = None
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        self._answer({'host': 'h1'})
        self._answer({'send': 'volume'}, {'performed': {}})
        self._answer({'host': 'h1'})

    def _answer(self, *documents):
        connection, _ = self._server.accept()
        request = b''
        while not request.endswith((b'{}', b'\r\n\r\n')) \
                or (request[:4] == b'POST' and request[-2:] != b'{}'):
            request += connection.recv(65536)
        connection.sendall(b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n')
        for document in documents:
            if 'performed' in document:
                _data, [volume], *_ = socket.recv_fds(connection, 1, 1)
                self.read = os.pread(volume, 100, 0)
                os.close(volume)
                self._hub.wait()
            connection.sendall(json.dumps(document).encode() + b'\n')
        connection.close()


class TestHub(needs.CinderTest):

    def test_a_backup(self):
        path = str(self.directory / 'cinder.sock')
        hub = hubs.Hub()
        agent = Agent(path, hub)
        self.set('socket', path, 'diffcache')
        conductor = mock.Mock()
        conductor.begin_backup.side_effect = ['task', None]
        self.patch(backup.conductors, 'connect', lambda _api: conductor)
        driver = backup.VersionStoreDriver(
            types.SimpleNamespace(request_id=None))
        driver.get_metadata = lambda _volume_id: ''
        self.patch(backup.volume_utils, 'notify_about_backup_usage',
                   lambda *_, **__: None)
        volume = self.directory / 'volume'
        volume.write_bytes(b'data')
        hub.start()
        with volume.open('rb') as stream:
            driver.backup(types.SimpleNamespace(
                id='322bde76-949e-4c77-a812-310ab1466fc5', volume_id='v',
                project_id='p', display_name=None, status='creating',
                as_read_deleted=contextlib.nullcontext,
                refresh=lambda: None), tpool.Proxy(stream))
        hub.end()
        self.assertEqual(b'data', agent.read)
        self.assertEqual(1, hub.waits)
        self.assertFalse(hub.stopped, 'the hub stood still')


if __name__ == '__main__':
    unittest.main(module='tests.unit.cinder.patched', argv=['patched'])
