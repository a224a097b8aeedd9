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
"""Scenarios are hostile input: each refusal names the field."""

import copy
import json
import os
import threading
from unittest import mock

from diffcache_openstack.prefetch import scenarios
from tests import base

GOOD = {
    'image_bytes': 10_500, 'chunk': 1000, 'threshold': 2, 'striped': False,
    'links': {'wan_mbps': 100, 'wan_rtt_ms': 20, 'lan_mbps': 1000,
              'lan_rtt_ms': 0.1},
    'instances': [
        {'start_us': 0, 'reads': [[10, 0, 1], [5.5, 10_000, 500]]},
        {'start_us': 7, 'reads': []}],
    'profile': [[3, 2, 10.5]]}


class TestScenario(base.TestCase):

    def refuse(self, where, change):
        document = copy.deepcopy(GOOD)
        change(document)
        error = self.assertRaises(scenarios.ScenarioError,
                                  scenarios.from_dict, document)
        self.assertTrue(str(error).startswith(f'{where}: '), error)
        self.assertNotIn('\n', str(error))
        self.assertLess(len(str(error)), 200)

    def refuse_values(self, where, *values):
        """Refuse each of the values at the place that is named."""
        for value in values:
            with self.subTest(where=where, value=str(value)[:20]):
                self.refuse(where, lambda d, v=value: self.put(d, where, v))

    def put(self, document, where, value):
        *path, last = where.replace('[', '.').replace(']', '').split('.')
        for step in path:
            document = document[int(step) if step.isdigit() else step]
        document[int(last) if last.isdigit() else last] = value

    def test_what_is_good(self):
        scenario = scenarios.from_dict(copy.deepcopy(GOOD))
        self.assertEqual(11, scenario.chunks)
        self.assertEqual(2, scenario.accesses)
        self.assertEqual(3, scenario.distinct_chunks())
        self.assertEqual([[(10.0, 0, 1), (5.5, 10_000, 500)], []],
                         scenario.reads)
        self.assertEqual([(3, 2, 10.5)], scenario.profile)

    def test_profile_may_be_absent(self):
        document = copy.deepcopy(GOOD)
        del document['profile']
        self.assertIsNone(scenarios.from_dict(document).profile)
        document['profile'] = []
        self.assertEqual([], scenarios.from_dict(document).profile)

    def test_homes_are_all_unless_named(self):
        scenario = scenarios.from_dict(copy.deepcopy(GOOD))
        self.assertEqual((2, 1), (scenario.homes, scenario.group))
        scenario = scenarios.from_dict({**GOOD, 'homes': 1, 'group': 4})
        self.assertEqual((1, 4), (scenario.homes, scenario.group))

    def test_fields_that_are_missing(self):
        for name in ('image_bytes', 'chunk', 'threshold', 'striped', 'links',
                     'instances'):
            self.refuse(name, lambda d, name=name: d.pop(name))
        self.refuse('links.lan_rtt_ms', lambda d: d['links'].pop('lan_rtt_ms'))
        for name in ('start_us', 'reads'):
            self.refuse(f'instances[1].{name}',
                        lambda d, name=name: d['instances'][1].pop(name))

    def test_numbers(self):
        nan, inf = float('nan'), float('inf')
        wrong = (nan, inf, -inf, -1, None, 'x' * 1000, [], True, 10 ** 400)
        self.refuse_values('image_bytes', 0, 1.5, 1 << 60, *wrong)
        self.refuse_values('chunk', 0, 1.5, 1 << 60, *wrong)
        self.refuse_values('threshold', 0, *wrong)
        self.refuse_values('homes', 0, 3, 1.5, *wrong)
        self.refuse_values('group', 0, 1.5, 1 << 60, *wrong)
        for name in GOOD['links']:
            self.refuse_values(f'links.{name}', 1e300, *wrong)
        self.refuse_values('links.wan_mbps', 0, 1e-9)
        self.refuse_values('instances[1].start_us', 1e300, *wrong)
        self.refuse_values('instances[0].reads[1][0]', 1e300, *wrong)
        self.refuse_values('instances[0].reads[1][1]', 10_500, 0.5, *wrong)
        self.refuse_values('instances[0].reads[1][2]', 0, 501, 0.5, *wrong)
        self.refuse_values('profile[0][0]', 11, 0.5, *wrong)
        self.refuse_values('profile[0][1]', 0, 1 << 32, 0.5, *wrong)
        self.refuse_values('profile[0][2]', 1e300, *wrong)

    def test_types(self):
        self.refuse_values('striped', 0, 1, None, 'false')
        self.refuse_values('links', None, [], 7)
        self.refuse_values('instances', None, [], {}, 7)
        self.refuse_values('instances[0]', None, [], 7)
        self.refuse_values('instances[0].reads', None, {}, 7)
        self.refuse_values('instances[0].reads[1]', None, {}, [1, 2], 'abc')
        self.refuse_values('profile', {}, 7, 'abc')
        self.refuse_values('profile[0]', None, [1, 2], 'abc')
        for value in (None, [], 7):
            error = self.assertRaises(scenarios.ScenarioError,
                                      scenarios.from_dict, value)
            self.assertTrue(str(error).startswith('scenario: '))

    def test_chunk_listed_twice(self):
        self.refuse('profile[1][0]', lambda d: d['profile'].append([3, 1, 1]))

    def test_think_times_of_years(self):
        self.refuse('instances[1].reads', lambda d: d['instances'][1].update(
            reads=[[9e13, 0, 1], [9e13, 0, 1]]))

    def test_sizes(self):
        self.refuse('chunk', lambda d: d.update(image_bytes=1 << 50))
        self.refuse('instances', lambda d: d.update(
            instances=d['instances'][1:] * (scenarios.MAX_INSTANCES + 1)))
        with mock.patch.object(scenarios, 'MAX_ACCESSES', 1):
            self.refuse('instances', lambda d: d)
        # Two chunks are read, one is in the profile: two instances may have
        # to know all three.
        with mock.patch.object(scenarios, 'MAX_ACCESSES', 5):
            self.refuse('instances', lambda d: d)
        with mock.patch.object(scenarios, 'MAX_ACCESSES', 6):
            scenarios.from_dict(GOOD)


class TestLoad(base.TestCase):

    def refuse(self, path, reason):
        error = self.assertRaises(scenarios.ScenarioError, scenarios.load,
                                  str(path))
        self.assertIn(str(path), str(error))
        self.assertIn(reason, str(error))

    def test_file(self):
        path = self.write_file('s.json', json.dumps(GOOD).encode())
        self.assertEqual(scenarios.from_dict(GOOD), scenarios.load(str(path)))

    def test_no_json(self):
        for content in (b'', b'{"image_bytes": [', b'[' * 100_000, b'\xff',
                        b'1' * 10_000):
            path = self.write_file('s.json', content)
            self.refuse(path, 'not a JSON file')

    def test_no_file(self):
        self.refuse(self.directory / 'absent', 'No such file')
        self.refuse(self.directory, 'directory')

    def test_large_file(self):
        path = self.write_file('s.json', b'')
        os.truncate(path, scenarios.MAX_FILE_BYTES + 1)
        self.refuse(path, 'larger than')

    def test_long_stream(self):
        path = self.directory / 'pipe'
        os.mkfifo(path)

        def write():
            with open(path, 'wb') as sink:
                sink.write(b' ' * 11)

        writer = threading.Thread(target=write)
        writer.start()
        self.addCleanup(writer.join)
        with mock.patch.object(scenarios, 'MAX_FILE_BYTES', 10):
            self.refuse(path, 'longer than')
