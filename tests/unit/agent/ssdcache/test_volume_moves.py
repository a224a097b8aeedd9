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
import threading
from unittest import mock

from diffcache_openstack.agent.ssdcache import volume_moves
from diffcache_openstack.cached_volumes import hot_blocks
from diffcache_openstack.common import exceptions
from diffcache_openstack import objects
from diffcache_openstack.ssdcache import engines
from tests import base
from tests.unit.ssdcache import fakes

# A test fails after this many seconds.
PATIENCE_S = 120
RATE = 1 << 40
HOT = [hot_blocks.Run(5, 300), hot_blocks.Run(1000, 20)]


def use(**changes):
    curve = objects.VolumeCurve(**{
        'seconds': 120.0, 'references': 100, 'distinct': 40, 'sampled': 1.0,
        'hit_us': 90.0, 'miss_us': 900.0, 'sizes': [10, 40],
        'hits': [20, 60], **changes})
    return objects.VolumeUse(curve=curve, blocks=hot_blocks.pack(HOT))


class MovesTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.engine = fakes.FakeEngine()
        self.agents = mock.Mock()
        self.agents.volume_use.return_value = use()
        self.moves = self.new(RATE)

    def new(self, rate):
        return volume_moves.Moves(self.engine, self.agents,
                                  mock.sentinel.context,
                                  rate)

    def attach(self, name='a'):
        origin = self.directory / name
        origin.write_bytes(bytes(4096))
        self.engine.attach(engines.Attachment(name, str(origin),
                                              'write-through', 100))


class TestExpect(MovesTest):

    def test_an_answer_is_taken_once(self):
        self.moves.expect('a', 'h1')
        self.agents.volume_use.assert_called_once_with(
            mock.sentinel.context, 'h1', 'a')
        found = self.moves.take('a')
        self.assertEqual((120.0, 100, 60, HOT), (
            found.epoch.seconds, found.epoch.curve.references,
            found.epoch.curve.hits(40), found.hot))
        self.assertIsNone(self.moves.take('a'))
        self.assertEqual({'received': 1, 'failed': 0, 'warmed': 0},
                         self.moves.status())

    def test_a_volume_without_an_epoch(self):
        self.agents.volume_use.return_value = objects.VolumeUse(
            curve=None, blocks='')
        self.moves.expect('a', 'h1')
        self.assertEqual((None, []), self.moves.take('a'))

    def test_hosts_that_do_not_answer(self):
        for error in (exceptions.ServiceUnavailable('down'),
                      exceptions.InvalidInput('no such method'),
                      exceptions.NotFound('not attached')):
            self.agents.volume_use.side_effect = error
            self.moves.expect('a', 'h1')
            self.assertIsNone(self.moves.take('a'))
        self.assertEqual({'received': 0, 'failed': 3}, self.moves.counts())

    def test_answers_that_cannot_be(self):
        broken = use()
        broken.blocks = 'AAA='
        for answer in (None, {}, 7, broken, use(hits=[60, 20]),
                       use(sizes=[10]), use(references=10),
                       use(references=1 << 41), use(hits=[20, 200])):
            self.agents.volume_use.return_value = answer
            self.moves.expect('a', 'h1')
            self.assertIsNone(self.moves.take('a'), answer)

    def test_the_oldest_of_many_are_forgotten(self):
        for number in range(70):
            self.moves.expect(str(number), 'h1')
        self.assertIsNone(self.moves.take('5'))
        self.assertIsNotNone(self.moves.take('6'))


class TestWarm(MovesTest):

    def test_all_blocks_in_parts(self):
        self.attach()
        with mock.patch.object(self.engine, 'warm',
                               wraps=self.engine.warm) as warm:
            self.moves.warm('a', HOT)
            self.moves._wanted.put(None)
            self.moves._run()
        self.assertEqual(
            [[hot_blocks.Run(5, 256)],
             [hot_blocks.Run(261, 44), hot_blocks.Run(1000, 20)]],
            [call.args[1] for call in warm.call_args_list])
        self.assertEqual(320, self.moves.warmed)

    def test_no_more_than_there_is_room_for(self):
        self.attach()
        self.engine.room = 100
        self.assertEqual(100, self.moves._warm('a', HOT))
        self.assertEqual([hot_blocks.Run(5, 256)], self.engine.cached['a'])

    def test_the_rate(self):
        self.attach()
        found = self.new(256 * volume_moves.BLOCK)
        found._stopped = mock.Mock()
        found._stopped.wait.return_value = False
        with mock.patch.object(volume_moves.time, 'monotonic',
                               return_value=7.0):
            found._warm('a', HOT)
        self.assertEqual([1.0, 0.25], [
            call.args[0] for call in found._stopped.wait.call_args_list])

    def test_a_stop_does_not_wait_for_all_blocks(self):
        self.attach()
        found, warmed = self.new(1), threading.Event()
        warm = self.engine.warm
        self.engine.warm = lambda *args: (warm(*args), warmed.set())[0]
        found.warm('a', HOT)
        found.start()
        self.assertTrue(warmed.wait(PATIENCE_S))
        found.stop()
        self.assertEqual(256, found.warmed)

    def test_what_fails_does_not_keep_others_from_it(self):
        self.attach()
        self.engine.warm = mock.Mock(side_effect=[
            ValueError(), exceptions.RetryableError('down'),
            engines.Warmed(7, False)])
        for _volume in range(3):
            self.moves.warm('a', HOT)
        self.moves._wanted.put(None)
        self.moves._run()
        self.assertEqual(7, self.moves.warmed)

    def test_nothing_without_a_rate(self):
        found = self.new(0)
        found.warm('a', HOT)
        self.assertTrue(found._wanted.empty())
