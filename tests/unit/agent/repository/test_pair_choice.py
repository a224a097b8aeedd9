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
from diffcache_openstack.agent.repository import pair_choice
from diffcache_openstack.objects import patch_work
from tests import base

MAX_RATIO = 0.5


class JudgementTest(base.TestCase):

    def test_estimates_up_to_the_limit_and_doubtful_ones_are_tried(self):
        for size in (0, 500, 750):
            self.assertEqual(
                (patch_work.ESTIMATED, size, None),
                pair_choice.judge_estimate(size, 1000, MAX_RATIO))

    def test_patches_surely_too_large_are_declined(self):
        kind, size, reason = pair_choice.judge_estimate(751, 1000, MAX_RATIO)
        self.assertEqual((patch_work.DECLINED, 751), (kind, size))
        self.assertIn('751', reason)

    def test_measured_sizes_are_not_doubted(self):
        self.assertIsNone(pair_choice.judge_size(500, 1000, MAX_RATIO))
        self.assertEqual(patch_work.DECLINED,
                         pair_choice.judge_size(501, 1000, MAX_RATIO).kind)

    def test_sketches_are_loaded_once(self):
        loaded = []

        def load(content):
            loaded.append(content)
            return len(content)

        estimates = pair_choice.Estimates(load, lambda one, two: two - one)
        self.assertEqual(2, estimates.size('a', 'bbb'))
        self.assertEqual(-2, estimates.size('bbb', 'a'))
        self.assertEqual(['a', 'bbb'], loaded)
