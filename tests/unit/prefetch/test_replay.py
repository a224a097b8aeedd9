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

import dataclasses
import json

from hypothesis import given
from hypothesis import strategies as st

from diffcache_openstack.prefetch import replay
from diffcache_openstack.prefetch import scenarios
from tests import base
from tests.unit.prefetch import model

# All transfers take whole nanoseconds: chunks of 1000 bytes, one of 500.
CHUNK = 1000
IMAGE = 12500


@st.composite
def documents(draw):
    """Scenarios in which events often happen at the same time."""
    def read():
        offset = draw(st.integers(0, IMAGE - 1))
        length = draw(st.integers(1, min(4 * CHUNK, IMAGE - offset)))
        return [draw(st.sampled_from((0, 40, 80, 500, 2000))), offset, length]

    def instance():
        return {'start_us': draw(st.sampled_from((0, 0, 80, 1000))),
                'reads': [read() for _ in range(draw(st.integers(0, 6)))]}

    chunks = draw(st.lists(st.integers(0, 12), unique=True))
    instances = [instance() for _ in range(draw(st.integers(1, 5)))]
    return {
        'image_bytes': IMAGE, 'chunk': CHUNK,
        'homes': draw(st.integers(1, len(instances))),
        'group': draw(st.sampled_from((1, 1, 4))),
        'threshold': draw(st.sampled_from((1, 2, 0.5, 0.1, 1.5))),
        'striped': draw(st.booleans()),
        'links': {'wan_mbps': draw(st.sampled_from((8, 100))),
                  'wan_rtt_ms': draw(st.sampled_from((0, 2))),
                  'lan_mbps': draw(st.sampled_from((80, 100, 1000))),
                  'lan_rtt_ms': draw(st.sampled_from((0, 0.08)))},
        'instances': instances,
        'profile': [[chunk, draw(st.integers(1, 3)),
                     draw(st.sampled_from((0, 80, 500)))]
                    for chunk in chunks]}


def run(document, mode, **options):
    scenario = scenarios.from_dict(json.loads(json.dumps(document)))
    scenario = dataclasses.replace(scenario, **options)
    return replay.replay(scenario, mode, events=True)


class TestAgainstModel(base.TestCase):
    """Replays are those of a model that was written by itself."""

    def assert_as_model(self, document, mode, in_flight=64, fan_out=2):
        expected = model.Model(document, mode, in_flight, fan_out).run()
        found = run(document, mode, in_flight=in_flight, read_ahead=0,
                    fan_out=fan_out)
        boots = found['instances']
        thinks = [sum(row[0] for row in instance['reads'])
                  for instance in document['instances']]
        self.assertEqual(
            [(round(float(boot), 3), misses, prefetched, used)
             for boot, misses, prefetched, used in zip(
                 expected.boots, expected.misses, expected.prefetched,
                 expected.used)],
            [(round(boot['boot_s'] * 1e6, 3), boot['misses'],
              boot['prefetched'], boot['used']) for boot in boots])
        self.assertEqual(
            [round(boot['boot_s'] * 1e6 - think, 3)
             for boot, think in zip(boots, thinks)],
            [round(boot['stall_s'] * 1e6, 3) for boot in boots])
        self.assertEqual(expected.bytes['wan'], found['wan_bytes'])
        self.assertEqual(sum(expected.bytes.values()),
                         found['wan_bytes'] + found['lan_bytes'])
        self.assertEqual(
            [(float(event[0]), *event[1:]) for event in expected.events],
            [tuple(event.values()) for event in found['events']])
        self.assertEqual(
            {chunk: count for chunk, count in expected.counts.items()
             if count},
            {chunk: count for chunk, count, _ in found['profile']})
        for chunk, count, mean in found['profile']:
            self.assertAlmostEqual(float(expected.times[chunk]) / count, mean,
                                   places=2)
        self.assertEqual(
            sum(expected.size(c) for left in expected.unread for c in left),
            found['wasted_bytes'])

    @given(documents())
    def test_on_demand(self, document):
        self.assert_as_model(document, 'on-demand')

    @given(documents())
    def test_first(self, document):
        self.assert_as_model(document, 'first')

    @given(documents(), st.integers(1, 3))
    def test_later(self, document, in_flight):
        self.assert_as_model(document, 'later', in_flight)

    @given(documents(), st.integers(1, 3), st.integers(1, 3))
    def test_refer(self, document, in_flight, fan_out):
        self.assert_as_model(document, 'refer', in_flight, fan_out)


class TestModes(base.TestCase):
    """What holds for every scenario."""

    @given(documents())
    def test_no_mode_is_better_than_local(self, document):
        local = run(document, 'local')
        self.assertEqual(0, local['stall_s']['sum'])
        self.assertEqual(0, local['wan_bytes'] + local['lan_bytes'])
        for mode in replay.MODES:
            for one, other in zip(local['instances'],
                                  run(document, mode)['instances']):
                self.assertLessEqual(one['boot_s'], other['boot_s'])

    @given(documents(), st.sampled_from(replay.MODES))
    def test_same_result_each_time(self, document, mode):
        self.assertEqual(run(document, mode), run(document, mode))

    @given(documents(), st.sampled_from(replay.MODES))
    def test_a_chunk_crosses_the_wan_once(self, document, mode):
        found = run(document, mode)
        self.assertLessEqual(found['wan_bytes'],
                             0 if document['striped'] else IMAGE)
        self.assertLessEqual(found['prefetched_used'], found['prefetched'])
        boots = [boot['boot_s'] for boot in found['instances']]
        self.assertEqual((min(boots), max(boots)),
                         (found['boot_s']['first'], found['boot_s']['last']))

    @given(documents())
    def test_oracle_prefetches_what_is_read(self, document):
        found = run(document, 'oracle')
        self.assertEqual(0, found['wasted_bytes'])
        self.assertEqual(found['prefetched'], found['prefetched_used'])

    @given(documents())
    def test_later_starts_from_a_first_run(self, document):
        document['profile'] = None
        first = run(document, 'first')
        later = run(document, 'later')
        known = {row[0]: row[1] for row in first['profile']}
        self.assertEqual({chunk: 2 * count for chunk, count in known.items()},
                         {row[0]: row[1] for row in later['profile']})

    def test_requests_of_a_chunk(self):
        reads = [[0, 0, 1]]
        document = {
            'image_bytes': 4 * CHUNK, 'chunk': CHUNK, 'threshold': 2,
            'striped': False,
            'links': {'wan_mbps': 8, 'wan_rtt_ms': 10, 'lan_mbps': 80,
                      'lan_rtt_ms': 2},
            'instances': [{'start_us': 40, 'reads': reads},
                          {'start_us': 10, 'reads': reads}]}
        self.assertEqual([[0, 2, 10.0, 25.0, 40.0]],
                         run(document, 'on-demand')['requests'])

    def test_a_long_sequence_is_read_ahead(self):
        document = {
            'image_bytes': 100 * CHUNK, 'chunk': CHUNK, 'threshold': 1,
            'striped': False,
            'links': {'wan_mbps': 80, 'wan_rtt_ms': 10, 'lan_mbps': 80,
                      'lan_rtt_ms': 0},
            'instances': [{'start_us': 0, 'reads': [
                [0, n * CHUNK, CHUNK] for n in range(100)]}]}
        without = run(document, 'first', read_ahead=0)
        ahead = run(document, 'first', read_ahead=16, in_flight=16)
        self.assertEqual((100, 0), (without['misses'], without['prefetched']))
        self.assertGreater(10, ahead['misses'])
        self.assertEqual(0, ahead['wasted_bytes'])
        self.assertLess(ahead['stall_s']['sum'],
                        without['stall_s']['sum'] / 5)


class TestBounds(base.TestCase):
    """What would take too much memory is refused."""

    def scenario(self, image_bytes, instances, length):
        document = {
            'image_bytes': image_bytes, 'chunk': 1, 'threshold': 2,
            'striped': False,
            'links': {'wan_mbps': 8, 'wan_rtt_ms': 10, 'lan_mbps': 80,
                      'lan_rtt_ms': 2},
            'instances': [{'start_us': 0, 'reads': [[0, 0, length]]}
                          for _ in range(instances)]}
        return scenarios.from_dict(document)

    def test_broadcast_of_too_many_chunks(self):
        scenario = self.scenario(4_000_000, 3, 1)
        error = self.assertRaises(scenarios.ScenarioError, replay.replay,
                                  scenario, 'broadcast')
        self.assertIn('chunk: ', str(error))

    def test_too_many_events(self):
        scenario = self.scenario(4_000_000, 1, 3_000_000)
        error = self.assertRaises(scenarios.ScenarioError, replay.replay,
                                  scenario, 'local', events=True)
        self.assertIn('--events', str(error))

    def test_too_long(self):
        scenario = dataclasses.replace(self.scenario(1, 1, 1),
                                       wan_rtt_ms=1e300)
        error = self.assertRaises(scenarios.ScenarioError, replay.replay,
                                  scenario, 'on-demand')
        self.assertIn('31 years', str(error))
