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
"""What may wait, each for turns of the hub, in a process of eventlet.

Run by :mod:`tests.unit.nova.test_hub` as a program: a process is patched for
good, and before it imports anything else.
"""

if __name__ == '__main__':
    import eventlet

    eventlet.monkey_patch()

from concurrent import futures  # noqa: E402
import hashlib  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import types  # noqa: E402
import unittest  # noqa: E402

from eventlet import patcher  # noqa: E402

from diffcache_openstack.agent_client import local_client  # noqa: E402
from diffcache_openstack.common import exceptions  # noqa: E402
from diffcache_openstack.common import native_threads  # noqa: E402
from diffcache_openstack.common import qemu_monitor  # noqa: E402
from diffcache_openstack.glance import agents  # noqa: E402
from diffcache_openstack.nova import fetching as fetcher  # noqa: E402
from tests import hubs  # noqa: E402
from tests.unit.nova import test_fetching as fetching  # noqa: E402
from tests import waiting  # noqa: E402

socket = patcher.original('socket')
threading = patcher.original('threading')


class TestCalls(fetching.FetchingTest):

    def setUp(self):
        super().setUp()
        self.cached = False
        self.hub = hubs.Hub()
        self.hub.start()
        self.addCleanup(self.look_at)

    def look_at(self):
        self.hub.end()
        self.assertLess(0, self.hub.turns)
        self.assertFalse(self.hub.stopped, 'the hub stood still')

    def slow(self, place, name, is_slow=lambda *args: True):
        """Have a function of a module wait before it does its work."""
        own = getattr(place, name)

        def function(*args, **more):
            if is_slow(*args):
                self.hub.wait()
            return own(*args, **more)

        function.__name__ = name
        self.patch(place, name, function)

    def test_commands_of_the_monitor(self):
        qemu = types.SimpleNamespace(
            qemuMonitorCommand=lambda *words: json.dumps({'return': {}}))
        self.slow(qemu, 'qemuMonitorCommand')
        monitor = qemu_monitor.Monitor(
            types.SimpleNamespace(libvirtError=OSError), qemu, None)
        self.assertEqual({}, monitor.command('blockdev-reopen'))
        self.assertEqual(1, self.hub.waits)

    def test_inspection_of_an_image_that_is_arriving(self):
        arriving = self.have_served()
        self.slow(fetching.images, 'get_image_format', self.is_cold)
        self.make_disk()
        self.assertEqual(arriving, os.readlink(self.base_path()))
        # The start is read again before Nova reads it for another server.
        self.cached = False
        self.make_disk(name='second')
        self.cached = False
        fetcher.warm(self.base_path())
        self.assertEqual(3, self.hub.waits)

    def test_the_hash_of_an_image(self):
        self.meta['disk_format'] = 'raw'
        self.set('hash_raw_images', True, 'diffcache')
        self.meta['os_hash_value'] = hashlib.sha512(
            self.client.content_bytes).hexdigest()
        self.client.known['os_hash_value'] = self.meta['os_hash_value']
        self.slow(hashlib, 'file_digest')
        self.make_disk()
        self.assertEqual([], self.downloads)
        self.assertLess(0, self.hub.waits)

    def test_looks_at_links_while_the_daemon_hangs(self):
        paths = (self.have_served(), self.base_path())
        self.slow(os, 'stat', lambda path, *args: path in paths
                  and os.path.lexists(path) and self.is_cold())
        self.make_disk()
        self.assertLess(0, self.hub.waits)

    def test_a_call_that_takes_too_long(self):
        may_end = threading.Event()
        # Its thread is taken until it returns.
        self.addCleanup(may_end.set)
        before = self.hub.turns
        self.assertRaises(exceptions.ServiceUnavailable,
                          native_threads.call, 0.5, may_end.wait)
        self.assertLess(before, self.hub.turns)

    def test_no_more_than_some_threads_at_once(self):
        pool = futures.ThreadPoolExecutor()
        self.addCleanup(pool.shutdown)
        begun, may_end = [], threading.Event()
        self.addCleanup(may_end.set)

        def wait_for_end():
            begun.append(None)
            may_end.wait()

        calls = [pool.submit(native_threads.call, waiting.SECONDS,
                             wait_for_end)
                 for _ in range(native_threads.AT_ONCE)]
        waiting.until(lambda: len(begun) == native_threads.AT_ONCE,
                      'all threads to be taken')
        self.assertRaises(exceptions.ServiceUnavailable,
                          native_threads.call, 0.5, os.getpid)
        may_end.set()
        for call in calls:
            call.result()
        self.assertEqual(os.getpid(), native_threads.call(
            waiting.SECONDS, os.getpid))

    def test_an_agent_that_is_slow_to_answer_glance(self):
        path = str(self.directory / 'agent.sock')
        server = socket.socket(socket.AF_UNIX)
        self.addCleanup(server.close)
        server.bind(path)
        server.listen()

        def answer():
            connection, _ = server.accept()
            connection.recv(65536)
            self.hub.wait()
            connection.sendall(b'HTTP/1.1 404 Not Found\r\n'
                               b'Content-Length: 0\r\n\r\n')
            connection.close()

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        agent = agents.HostAgent(
            local_client.LocalClient(path, waiting.SECONDS), waiting.SECONDS)
        agent.image(fetching.IMAGE)
        self.assertEqual(1, self.hub.waits)

    def is_cold(self, *args):
        """Return whether the kernel does not know the answer yet."""
        was_cached, self.cached = self.cached, True
        return not was_cached

    def base_path(self):
        return str(self.instances / '_base' / fetching.NAME)


if __name__ == '__main__':
    unittest.main(module='tests.unit.nova.patched', argv=['patched'])
