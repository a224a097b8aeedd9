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

import numpy as np

from diffcache_openstack.placement import instances
from diffcache_openstack.placement import workloads
from testing import rc2
from tests import base
from tests.unit.placement import shapes


class TestSynthetic(base.TestCase):
    def test_patch_sizes_follow_table_one(self):
        made = workloads.synthetic(6, 2, seed=4)
        for i, j, size in zip(made.patch_base, made.patch_target,
                              made.patch_sizes):
            growth = made.sizes[j] - made.sizes[i]
            self.assertEqual(max(growth, 10.0), size)

    def test_it_is_a_valid_instance(self):
        for made in (workloads.synthetic(seed=1), rc2.site()):
            again = instances.from_dict(shapes.to_dict(made))
            self.assertEqual(made.demand, again.demand)


class TestTrace(base.TestCase):
    def test_it_has_the_published_figures(self):
        made = rc2.trace(10)
        self.assertEqual(1088, made.template_count)
        self.assertEqual(138, len(set(made.meta['tree'])))
        self.assertAlmostEqual(49000.0, made.sizes.mean(), delta=500)
        self.assertAlmostEqual(350.0, made.patch_sizes.mean(), delta=5)
        self.assertEqual(10211, made.demand)
        self.assertAlmostEqual(0.26, made.meta['top_share'], delta=0.02)
        self.assertAlmostEqual(14.55, made.meta['mean_depth'], delta=1.5)

    def test_patches_stay_within_trees_and_reach(self):
        made = rc2.trace(10, reach=1)
        tree = np.array(made.meta['tree'])
        self.assertTrue(
            (tree[made.patch_base] == tree[made.patch_target]).all()
        )
        self.assertEqual(2 * (1088 - 138), made.patch_count)

    def test_seeds_differ_and_repeat(self):
        one, same, other = (
            rc2.trace(5, seed=seed).rates for seed in (1, 1, 2)
        )
        self.assertTrue((one == same).all())
        self.assertFalse((one == other).all())
