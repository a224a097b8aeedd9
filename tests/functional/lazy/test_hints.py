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
"""Hosts that teach each other with replies, without a conductor."""

import base64
import os
import pathlib
import random
import signal
import socket
import struct
import threading

from diffcache_openstack import _native
from testing import server
from tests.functional.lazy import hosts
from tests.functional.lazy import services

_CHUNK = 256 << 10
_CHUNKS = 48
# Chunks of which the hosts are homes by turns.
_GROUP = 4


class HintsTest(services.LazyServicesTest):
    """A home, and two hosts that reach it and not each other."""

    def setUp(self):
        super().setUp()
        self.image = self.store_image(
            'image', random.Random(5).randbytes(_CHUNKS * _CHUNK))
        repository = self.plane('repository', self.image, compressed=False)
        self.home, self.teacher, self.pupil = (
            hosts.Host(self, name) for name in ('home', 'teacher', 'pupil'))
        nowhere = f'http://{server.LOOPBACK}:{server.free_port()}'
        for host, other in ((self.teacher, self.pupil),
                            (self.pupil, self.teacher)):
            host.serve([(repository.url, True)], [
                (self.home.name, self.home.url), (host.name, host.url),
                (other.name, nowhere)], prefetch=True)
        self.home.serve([(repository.url, True)], [
            (host.name, host.url)
            for host in (self.home, self.teacher, self.pupil)], prefetch=True)
        ranked = [each['name'] for each in self.home.status()['homes']]

        def groups(host):
            """First chunks of the groups that a host is home of."""
            return range(ranked.index(host.name) * _GROUP, _CHUNKS,
                         len(ranked) * _GROUP)

        self.at_home = groups(self.home)
        self.at_teacher = groups(self.teacher)

    def read(self, host, *chunks):
        for chunk in chunks:
            self.assertEqual(
                self.content(self.image)[chunk * _CHUNK:][:4096],
                host.read(chunk * _CHUNK, 4096))

    def received(self):
        return self.home.status()['hints']['received']

    def tell(self, *chunks, count):
        """Have the teacher tell home of this many chunks that it has read.

        A request tells what was counted before it, which may be a moment
        after the read is answered.
        """
        end = self.received() + count
        for chunk in chunks:
            self.read(self.teacher, chunk)
            if self.received() >= end:
                return
        self.fail(f'home has heard of {self.received()} chunks, not {end}')

    def has(self, host, chunk):
        """Return whether the chunk is in the file of a host."""
        with open(host.status()['data_path'], 'rb') as file:
            file.seek(chunk * _CHUNK)
            return any(file.read(4096))

    def check_taught(self, *chunks):
        """Check that the pupil has chunks that it did not read."""
        self.wait_until(lambda: all(self.has(self.pupil, chunk)
                                    for chunk in chunks))
        # It is counted after they are there.
        self.wait_until(lambda: self.pupil.status()['hints']['used']
                        >= len(chunks))
        before = self.pupil.status()['misses']
        self.read(self.pupil, *chunks)
        found = self.pupil.status()
        self.assertEqual(before, found['misses'])
        self.assertEqual((0, 0), (found['errors'], found['corrupt']))
        self.assertEqual((0, 0), (found['hints']['malformed'],
                                  found['hints']['unknown_hosts']))

    def kill_worker(self, host):
        worker = host.status()['worker_pid']
        os.kill(worker, signal.SIGKILL)
        self.wait_until(
            lambda: host.status()['worker_pid'] not in (None, worker))


class TestTeaching(HintsTest):

    def test_one_host_teaches_another_through_a_home(self):
        own, (first, second, third, last) = self.at_teacher[1], self.at_home
        taught = (own, first, second)
        self.read(self.teacher, own)
        self.tell(first, second, *range(third, third + _GROUP),
                  count=len(taught))
        self.assertFalse(any(self.has(self.pupil, chunk) for chunk in taught))
        self.read(self.pupil, last)
        self.check_taught(*taught)
        # Home has no guest, and fetched what it was asked for.
        found = self.home.status()
        self.assertEqual((0, 0), (found['reads'], found['prefetched']))
        # What the pupil had read goes the other way.
        before = self.received()
        self.read(self.pupil, last + 1, last + 2)
        self.assertLess(before, self.received())

    def test_killed_workers_teach_what_they_had_counted(self):
        own, (first, second, third, last) = self.at_teacher[1], self.at_home
        self.read(self.teacher, own, first)
        self.kill_worker(self.teacher)
        # It has all counts of the killed one; the home has lost what it knew.
        self.kill_worker(self.home)
        taught = (own, first, second)
        self.tell(second, *range(third, third + _GROUP), count=len(taught))
        self.read(self.pupil, last)
        self.check_taught(*taught)

    def test_a_home_of_an_earlier_release_serves_without_hints(self):
        (pathlib.Path(self.home.status()['data_path']).parent
         / 'hints').unlink()
        first, second, third, _ = self.at_home
        self.read(self.teacher, first, second)
        self.read(self.pupil, third)
        self.assertLess(0, self.home.plane.stats()['unhinted'])
        for host in (self.home, self.teacher, self.pupil):
            found = host.status()
            self.assertEqual((0, 0), (found['errors'],
                                      found['hints']['received']))


def _number(value):
    """An integer in groups of 7 bits."""
    found = b''
    while value >= 0x80:
        found += bytes([value & 0x7f | 0x80])
        value >>= 7
    return found + bytes([value])


class TestForged(HintsTest):
    """A home whose hints are forged."""

    def setUp(self):
        super().setUp()
        self.texts = []
        folder = pathlib.Path(self.home.status()['data_path']).parent
        (folder / 'hints').unlink()
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        # The path of the folder may be too long for a socket.
        descriptor = os.open(folder, os.O_RDONLY)
        self.addCleanup(os.close, descriptor)
        listener.bind(f'/proc/self/fd/{descriptor}/hints')
        listener.listen()
        thread = threading.Thread(target=self.answer, args=(listener,))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(listener.shutdown, socket.SHUT_RDWR)

    def answer(self, listener):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, connection.makefile('rwb') as stream:
                stream.read(struct.unpack('<H', stream.read(2))[0])
                text = self.texts.pop(0) if self.texts else b''
                stream.write(struct.pack('<H', len(text)) + text)

    def host(self, name):
        path = self.folder / 'name'
        path.write_text(name)
        # A content ID is the BLAKE3 hash that a host's ID begins.
        found = _native.manifest_create(path, self.folder / 'name.manifest')
        return bytes.fromhex(found['content_id'])[:8]

    def text(self, host, *facts):
        """A message with (chunk, count, mean_ms) of a host, as its header."""
        block = self.host(host) + _number(1) + _number(0) + _number(len(facts))
        block += _number(len(facts)) + b''.join(
            _number(chunk) + _number(1) + _number(count) + _number(mean)
            for chunk, count, mean in facts)
        message = b'\1' + self.host('home') + b'\0' + b'\1' + block
        return base64.b64encode(message)

    def ask(self, *texts):
        """Have the pupil read a chunk for each text."""
        for text in texts:
            self.texts = [text]
            self.read(self.pupil, self.unread.pop(0))
        return self.pupil.status()['hints']

    def test_forged_hints_are_counted_and_fail_no_read(self):
        self.unread = [at + each for at in self.at_home for each in (0, 2)]
        malformed = (
            base64.b64encode(b'\1' + b'x' * 30),
            self.text('teacher', (_CHUNKS, 1, 1)),
            self.text('teacher', (1, 0, 1)),
            self.text('teacher', (1, 65536, 1)),
            self.text('teacher', (1, 1, 3_600_001)))
        self.assertEqual(
            {'received': 0, 'used': 0, 'malformed': len(malformed),
             'unknown_hosts': 0}, self.ask(*malformed))
        # What would break the head of the response does not leave the home.
        before = self.home.plane.stats()['unhinted']
        found = self.ask(b'a\r\nX-DiffCache-Boot: b')
        self.assertEqual(len(malformed), found['malformed'])
        self.assertEqual(before + 1, self.home.plane.stats()['unhinted'])
        found = self.ask(self.text('stranger', (1, 1, 1)))
        self.assertEqual((0, 1), (found['received'], found['unknown_hosts']))
        # A lie costs a chunk, which is verified as any other.
        lie = self.at_teacher[3]
        self.assertFalse(self.has(self.pupil, lie))
        found = self.ask(self.text('teacher', (lie, 65535, 1)))
        self.assertEqual(1, found['received'])
        self.wait_until(lambda: self.has(self.pupil, lie))
        found = self.pupil.status()
        self.assertEqual((0, 0), (found['errors'], found['corrupt']))
