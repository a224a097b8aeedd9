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
"""Choice of how images are built from base and patch."""

from diffcache_openstack.agent.images import build_modes
from diffcache_openstack.agent.images import building
from diffcache_openstack.agent.images import site_transfers
from tests import base

FLY, FETCH = building.ON_THE_FLY, building.FETCH_AND_PATCH


class BuildModesTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.modes = build_modes.BuildModes()

    def build(self, mode, seconds, size=10 ** 9, way='build',
              lan_bytes=10 ** 8, wan_bytes=0):
        self.modes.learn(mode, building.Built(
            way, '', site_transfers.Moved(wan_bytes, lan_bytes), seconds, 0.0,
            0),
            size)

    def measure(self, **seconds):
        for mode, each in seconds.items():
            for _time in range(3):
                self.build(mode, each)

    def choices(self, count):
        return [self.modes.choose() for _time in range(count)]

    def test_both_are_measured_first(self):
        chosen = []
        for _time in range(6):
            chosen.append(self.modes.choose())
            self.build(chosen[-1], 1.0)
        self.assertEqual([FETCH, FLY] * 3, chosen)

    def test_the_faster_one_is_chosen(self):
        self.measure(on_the_fly=1.0, fetch_and_patch=2.0)
        self.assertEqual([FLY] * 15 + [FETCH] + [FLY], self.choices(17))

    def test_either_can_be_the_faster_one(self):
        self.measure(on_the_fly=2.0, fetch_and_patch=1.0)
        self.assertEqual([FETCH] * 15 + [FLY] + [FETCH], self.choices(17))

    def test_the_choice_follows_what_changes(self):
        self.measure(on_the_fly=1.0, fetch_and_patch=2.0)
        self.measure(on_the_fly=9.0)
        self.build(FLY, 9.0)
        self.assertEqual(FETCH, self.modes.choose())

    def test_one_slow_build_changes_nothing(self):
        self.measure(on_the_fly=1.0, fetch_and_patch=2.0)
        self.build(FLY, 60.0)
        self.assertEqual(FLY, self.modes.choose())

    def test_sizes_are_made_equal(self):
        for _time in range(3):
            self.build(FLY, 2.0, size=2 * 10 ** 9)
            self.build(FETCH, 1.5, size=10 ** 9)
        self.assertEqual(FLY, self.modes.choose())

    def test_only_builds_from_peers_count(self):
        self.build(FLY, 1.0, way='peer')
        self.build(FLY, 1.0, lan_bytes=0)
        self.build(FLY, 1.0, wan_bytes=10 ** 7)
        self.build(FLY, 1.0, size=0)
        self.assertEqual({'builds': 0, 'seconds_per_gb': None},
                         self.modes.report()[FLY])

    def test_report(self):
        self.measure(on_the_fly=1.5)
        self.build(FLY, 1.5, wan_bytes=10 ** 5)
        self.assertEqual({
            FETCH: {'builds': 0, 'seconds_per_gb': None},
            FLY: {'builds': 4, 'seconds_per_gb': 1.5}}, self.modes.report())
