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
"""Counts that survive a restart."""

import json
import os

from diffcache_openstack.nova import tallies
from tests import base


class TestTally(base.TestCase):

    def setUp(self):
        super().setUp()
        self.path = self.directory / 'images.json'

    def test_counts_go_on_after_a_restart(self):
        tally = tallies.Tally(self.path)
        tally.delivered('build', 500)
        tally.delivered('build', 20)
        tally.passed('unknown')
        self.assertEqual(1, tally.fell_back('i', 'ServiceUnavailable', 'no'))
        again = tallies.Tally(self.path)
        self.assertEqual(2, again.fell_back('j', 'NoSpace', 'full'))
        summary = again.summary()
        self.assertEqual({'build': 2, 'wan_bytes': 520},
                         summary['delivered'])
        self.assertEqual({'unknown': 1}, summary['passed'])
        self.assertEqual({'ServiceUnavailable': 1, 'NoSpace': 1},
                         summary['fallbacks'])
        self.assertEqual(('j', 'NoSpace', 'full'), tuple(
            summary['last_fallback'][key]
            for key in ('image', 'reason', 'message')))
        self.assertEqual(summary, json.loads(self.path.read_text()))

    def test_what_was_reported_is_not_reported_again(self):
        tally = tallies.Tally(self.path)
        for _ in range(3):
            tally.fell_back('i', 'NoSpace', 'full')
        self.assertEqual({'NoSpace': 3}, tally.unreported())
        tally.reported('NoSpace', 2)
        self.assertEqual({'NoSpace': 1},
                         tallies.Tally(self.path).unreported())
        tally.reported('NoSpace', 1)
        self.assertEqual({}, tally.unreported())
        self.assertEqual({'NoSpace': 3}, tally.summary()['fallbacks'])

    def test_a_damaged_file_begins_anew(self):
        for text in ('', '[1]', '{"fallbacks": 3, "passed": {"x": "y"}}',
                     '{"fallbacks": {"a": -1}}', '{'):
            self.path.write_text(text)
            tally = tallies.Tally(self.path)
            self.assertEqual(1, tally.fell_back('i', 'NoSpace', 'full'))

    def test_counting_goes_on_where_nothing_can_be_written(self):
        tally = tallies.Tally(self.directory / 'missing' / 'images.json')
        tally.delivered('local', 0)
        self.assertEqual({'local': 1, 'wan_bytes': 0},
                         tally.summary()['delivered'])

    def test_nothing_is_left_beside_the_file(self):
        tallies.Tally(self.path).passed('format')
        self.assertEqual(['images.json'], os.listdir(self.directory))
