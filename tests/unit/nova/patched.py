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
"""What may wait, each for some seconds, in a process that eventlet runs.

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
import sys  # noqa: E402
import time  # noqa: E402
import types  # noqa: E402
import unittest  # noqa: E402

from eventlet import patcher  # noqa: E402

from diffcache_openstack.agent_client import local_client  # noqa: E402
from diffcache_openstack.common import exceptions  # noqa: E402
from diffcache_openstack.common import native_threads  # noqa: E402
from diffcache_openstack.common import qemu_monitor  # noqa: E402
from diffcache_openstack.glance import agents  # noqa: E402
from diffcache_openstack.nova import fetching as fetcher  # noqa: E402
from testing import hub_gaps  # noqa: E402
from tests.unit.nova import test_fetching as fetching  # noqa: E402
from tests import waiting  # noqa: E402

WAIT_SECONDS = 3.0
MOST_SECONDS = 1.0

socket = patcher.original('socket')
threading = patcher.original('threading')


def wait():
    """Have the thread that calls it wait, whatever it runs."""
    patcher.original('time').sleep(WAIT_SECONDS)


class TestCalls(fetching.FetchingTest):

    def setUp(self):
        super().setUp()
        self.waits, self.cached = 0, False
        meter = hub_gaps.Meter()
        # After this the meter has begun to sleep.
        meter.start()
        time.sleep(0.2)
        meter.largest = 0.0
        self.addCleanup(self.look_at, meter)

    def look_at(self, meter):
        time.sleep(0.2)
        meter.stop()
        print(f'{self.id()}: largest gap {meter.largest:.3f} s',
              file=sys.stderr)
        self.assertLess(0, self.waits)
        self.assertLess(meter.largest, MOST_SECONDS)

    def slow(self, place, name, is_slow=lambda *args: True):
        """Have a function of a module wait before it does its work."""
        own = getattr(place, name)

        def function(*args, **more):
            if is_slow(*args):
                self.waits += 1
                wait()
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
        self.assertEqual(3, self.waits)

    def test_the_hash_of_an_image(self):
        self.meta['disk_format'] = 'raw'
        self.set('hash_raw_images', True, 'diffcache')
        self.meta['os_hash_value'] = hashlib.sha512(
            self.client.content_bytes).hexdigest()
        self.client.known['os_hash_value'] = self.meta['os_hash_value']
        self.slow(hashlib, 'file_digest')
        self.make_disk()
        self.assertEqual([], self.downloads)

    def test_looks_at_links_while_the_daemon_hangs(self):
        paths = (self.have_served(), self.base_path())
        self.slow(os, 'stat', lambda path, *args: path in paths
                  and os.path.lexists(path) and self.is_cold())
        self.make_disk()

    def test_a_call_that_takes_too_long(self):
        self.waits = 1
        self.assertRaises(exceptions.ServiceUnavailable,
                          native_threads.call, 0.5, wait)
        # Its thread is taken until it returns.
        time.sleep(WAIT_SECONDS)

    def test_no_more_than_some_threads_at_once(self):
        self.waits = 1
        pool = futures.ThreadPoolExecutor()
        self.addCleanup(pool.shutdown)
        begun, may_end = [], threading.Event()
        self.addCleanup(may_end.set)

        def wait_for_end():
            begun.append(None)
            may_end.wait()

        calls = [pool.submit(native_threads.call, 60.0, wait_for_end)
                 for _ in range(native_threads.AT_ONCE)]
        waiting.until(lambda: len(begun) == native_threads.AT_ONCE,
                      'all threads to be taken')
        self.assertRaises(exceptions.ServiceUnavailable,
                          native_threads.call, 0.5, os.getpid)
        may_end.set()
        for call in calls:
            call.result()
        self.assertEqual(os.getpid(), native_threads.call(5.0, os.getpid))

    def test_an_agent_that_is_slow_to_answer_glance(self):
        path = str(self.directory / 'agent.sock')
        server = socket.socket(socket.AF_UNIX)
        self.addCleanup(server.close)
        server.bind(path)
        server.listen()

        def answer():
            connection, _ = server.accept()
            connection.recv(65536)
            self.waits += 1
            wait()
            connection.sendall(b'HTTP/1.1 404 Not Found\r\n'
                               b'Content-Length: 0\r\n\r\n')
            connection.close()

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        agent = agents.HostAgent(local_client.LocalClient(path, 10.0), 60.0)
        agent.image(fetching.IMAGE)

    def is_cold(self, *args):
        """Return whether the kernel does not know the answer yet."""
        was_cached, self.cached = self.cached, True
        return not was_cached

    def base_path(self):
        return str(self.instances / '_base' / fetching.NAME)


if __name__ == '__main__':
    unittest.main(module='tests.unit.nova.patched', argv=['patched'])
