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
import os
import random
import threading

import fixtures

from diffcache_openstack.agent.images.delivery import file_cache
from diffcache_openstack.agent.images.delivery import streams
from diffcache_openstack.common import exceptions
from tests import base

MIB = 1 << 20
DATA = random.Random(7).randbytes(9 * MIB) + bytes(2 * MIB) + b'the end'


class Source:
    """Bytes that are there when a test lets them be."""

    def __init__(self, data=DATA, available=None):
        self.size = len(data)
        self.data = data
        self.available = len(data) if available is None else available
        self.error = exceptions.IntegrityError('wrong bytes')
        self.more = threading.Event()

    def read(self, offset, length):
        if min(offset + length, self.size) > self.available:
            self.more.wait()
            if self.error is not None:
                raise self.error
        return self.data[offset:offset + length]


class TestStreams(base.TestCase):

    def setUp(self):
        super().setUp()
        self.store = file_cache.FileCache(self.directory / 'files', 10 ** 9)
        self.freed = []
        self.damaged = threading.Event()
        self.streams = streams.Streams(self.store, self.free)

    def free(self):
        self.freed.append(True)
        return len(self.freed) == 1

    def start(self, source):
        reader = self.streams.start('name', source, self.damaged.set)
        self.addCleanup(reader.close)
        return reader

    def names(self):
        return sorted(os.listdir(self.directory / 'files'))

    def test_the_beginning_is_read_before_the_rest_is_there(self):
        source = Source(available=MIB)
        source.error = None
        reader = self.start(source)
        self.assertEqual(len(DATA), reader.size)
        self.assertEqual(DATA[5:MIB], reader.read(5, MIB - 5))
        self.assertIn('name', self.streams)
        self.assertNotIn('name', self.store)
        source.more.set()
        self.assertEqual(DATA[MIB:], reader.read(MIB, len(DATA)))
        kept = self.store.find('name')
        self.addCleanup(kept.close)
        self.assertEqual(DATA, kept.read(0, len(DATA)))

    def test_others_read_along(self):
        source = Source(available=MIB)
        source.error = None
        self.start(source)
        follower = self.streams.find('name')
        self.addCleanup(follower.close)
        source.more.set()
        self.assertEqual(DATA, follower.read(0, len(DATA)))

    def test_a_small_file_is_kept_at_once(self):
        reader = self.start(Source(b'small'))
        self.assertNotIn('name', self.streams)
        self.assertEqual(['name'], self.names())
        self.assertEqual(b'small', reader.read(0, 99))
        self.assertEqual(b'', reader.read(5, 1))

    def test_an_empty_file(self):
        self.assertEqual(b'', self.start(Source(b'')).read(0, 1))

    def test_a_wrong_beginning(self):
        source = Source(available=0)
        source.more.set()
        self.assertRaises(exceptions.IntegrityError, self.start, source)
        self.assertEqual([], self.names())
        self.assertIsNone(self.streams.find('name'))
        self.assertFalse(self.damaged.is_set())

    def test_what_is_wrong_further_on_is_never_read(self):
        source = Source(available=5 * MIB)
        reader = self.start(source)
        self.assertEqual(DATA[:5 * MIB], reader.read(0, 5 * MIB))
        source.more.set()
        for offset in (5 * MIB - 1, len(DATA) - 1):
            self.assertRaises(exceptions.IntegrityError, reader.read, offset,
                              2)
        self.assertTrue(self.damaged.wait(60))
        # What was right stays readable.
        self.assertEqual(DATA[:MIB], reader.read(0, MIB))
        self.wait_until_gone()

    def test_an_unexpected_failure_is_a_retryable_error(self):
        source = Source(available=MIB)
        source.error = ZeroDivisionError('a bug')
        reader = self.start(source)
        source.more.set()
        self.assertRaises(exceptions.ServiceUnavailable, reader.read, MIB, 1)
        self.assertFalse(self.damaged.is_set())
        self.wait_until_gone()

    def wait_until_gone(self):
        for thread in threading.enumerate():
            if thread.name == 'file-name':
                thread.join()
        self.assertEqual([], self.names())
        self.assertNotIn('name', self.streams)

    def fill_disk(self, times):
        write, fails = os.pwrite, [True] * times

        def pwrite(fd, data, offset):
            if offset and fails:
                fails.pop()
                raise OSError(28, 'No space left on device')
            return write(fd, data, offset)

        self.useFixture(fixtures.MockPatchObject(os, 'pwrite', pwrite))

    def test_a_full_disk_costs_other_files_first(self):
        self.fill_disk(1)
        reader = self.start(Source())
        self.assertEqual(DATA, reader.read(0, len(DATA)))
        self.assertEqual([True], self.freed)

    def test_a_disk_that_stays_full(self):
        self.fill_disk(99)
        self.freed.append(True)
        reader = self.start(Source())
        self.assertEqual(DATA[:MIB], reader.read(0, MIB))
        self.assertRaises(exceptions.NoSpace, reader.read, MIB, 1)
        self.wait_until_gone()
