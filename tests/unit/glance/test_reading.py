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
import contextlib

from diffcache_openstack.common import exceptions
from diffcache_openstack.glance import agents
from diffcache_openstack.glance import fills
from diffcache_openstack.glance import reading
from tests import base

IMAGE = 'c1b1a3f2-0000-4000-8000-000000000001'
DATA = bytes(range(256)) * 100


class Client:
    """An agent that may break off."""

    def __init__(self):
        self.ends_at = None
        self.down = False
        self.told = []
        self.known = {IMAGE: {'id': IMAGE}}

    def _answer(self):
        if self.down:
            raise exceptions.ServiceUnavailable('no agent')

    def image(self, image_id):
        self._answer()
        if image_id not in self.known:
            raise exceptions.NotFound(image_id)
        return self.known[image_id]

    @contextlib.contextmanager
    def file(self, image_id, first=0, last=None, site_only=False,
             stall_timeout=0):
        self._answer()

        def pieces():
            end = len(DATA) if last is None else last + 1
            for at in range(first, end, 1000):
                if self.ends_at is not None and at >= self.ends_at:
                    raise exceptions.ServiceUnavailable('broke off')
                yield DATA[at:min(at + 1000, end)]

        yield pieces()

    def fallback(self, service, reason, count):
        self._answer()
        self.told.append((service, reason, count))


class SourceTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.client = Client()
        self.agent = agents.HostAgent(self.client, 1.0)
        self.filling = fills.Fills(self.directory, 1.0)
        self.stored = []
        self.source = reading.Source(self.agent, self.filling, self.store)

    def store(self, image_id, offset):
        self.stored.append(offset)
        for at in range(offset, len(DATA), 777):
            yield DATA[at:at + 777]

    def whole(self, by_agent=True):
        return b''.join(self.source.whole(IMAGE, len(DATA), by_agent))

    def test_from_the_agent(self):
        self.assertEqual(DATA, self.whole())
        self.assertEqual(([], 0), (self.stored, self.agent.fallbacks()))

    def test_no_agent(self):
        self.client.down = True
        self.assertEqual(DATA, self.whole())
        self.assertEqual(([0], 1), (self.stored, self.agent.fallbacks()))

    def test_an_agent_that_breaks_off(self):
        self.client.ends_at = 5000
        self.assertEqual(DATA, self.whole())
        self.assertEqual(([5000], 1), (self.stored, self.agent.fallbacks()))

    def test_along_with_somebody_who_reads_the_store(self):
        with self.filling.begin(IMAGE) as file:
            file.write(DATA)
            file.flush()
            self.assertEqual(DATA, self.whole(by_agent=False))
        self.assertEqual([], self.stored)

    def test_somebody_who_stops(self):
        with self.filling.begin(IMAGE) as file:
            file.write(DATA[:300])
            file.flush()
            pieces = self.source.whole(IMAGE, len(DATA), False)
            first = next(pieces)
        self.assertEqual(DATA, first + b''.join(pieces))
        self.assertEqual([300], self.stored)

    def test_parts(self):
        for start, end in ((0, 1), (5, 5000), (len(DATA) - 1, len(DATA)),
                           (7, 7)):
            self.assertEqual(DATA[start:end], b''.join(
                self.source.part(IMAGE, start, end)))
        self.assertEqual([], self.stored)

    def test_a_part_that_breaks_off(self):
        self.client.ends_at = 2000
        self.assertEqual(DATA[500:4500],
                         b''.join(self.source.part(IMAGE, 500, 4500)))
        self.assertEqual(1, len(self.stored))

    def test_a_store_that_fails_too(self):
        def broken(image_id, offset):
            raise OSError('the store is down')
            yield b''

        self.client.down = True
        source = reading.Source(self.agent, self.filling, broken)
        self.assertRaises(OSError, list,
                          source.whole(IMAGE, len(DATA), True))

    def test_fallbacks_are_told_once_the_agent_is_back(self):
        self.client.down = True
        self.assertIsNone(self.agent.image(IMAGE))
        self.assertIsNone(self.agent.image(IMAGE))
        self.client.down = False
        self.assertEqual({'id': IMAGE}, self.agent.image(IMAGE))
        self.assertEqual([('glance-api', 'ServiceUnavailable', 2)],
                         self.client.told)
        self.agent.image(IMAGE)
        self.assertEqual(1, len(self.client.told))

    def test_an_unknown_image_is_no_fallback(self):
        self.assertIsNone(self.agent.image('other'))
        self.assertEqual(0, self.agent.fallbacks())


class StreamTest(base.TestCase):

    def stream(self):
        return reading.Stream(iter([b'abc', b'', b'defg']))

    def test_by_size(self):
        stream = self.stream()
        found = []
        while data := stream.read(2):
            found.append(data)
        self.assertEqual(b'abc', b''.join(found))

    def test_all(self):
        stream = self.stream()
        self.assertEqual(b'a', stream.read(1))
        self.assertEqual(b'bcdefg', stream.read())
