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

from diffcache_openstack.placement import instances
from diffcache_openstack.placement import solving
from tests import base as test_base
from tests.unit.placement import shapes
from tests.unit.placement.solvers import conformance


class TestGreedy(conformance.SolverContract, test_base.TestCase):
    solver = 'greedy'

    @conformance.for_any_instance
    def test_claims_agree_with_an_evaluator(self, seed, hops):
        self.check_claims(seed, hops)

    def test_patches_beat_templates_only(self):
        instance = shapes.stored('testbed_s0')
        whole = self.solve(instance.without_patches()).cost_s
        self.assertLess(self.solve(instance).cost_s, whole / 5)

    def test_first_round_takes_the_largest_benefit(self):
        instance = instances.from_dict(
            {'sizes': [1000, 1000], 'patch_sizes': [], 'capacities': [1500],
             'rates': [[1], [2]],
             'bandwidths': {'local': 400, 'peer': 200, 'repo': 10}}
        )
        solution = self.solve(instance)
        self.assertEqual({(1, 1)}, set(solution.placement.templates))
        self.assertAlmostEqual(800 + 2 * 20, solution.cost_s)

    def test_a_template_as_large_as_the_space_is_not_placed(self):
        # Line 16 asks for more space than the template's size.
        instance = instances.from_dict(
            {'sizes': [1000], 'patch_sizes': [], 'capacities': [1000],
             'rates': [[1]],
             'bandwidths': {'local': 400, 'peer': 200, 'repo': 10}}
        )
        self.assertFalse(self.solve(instance).placement.templates)


class TestLoading(test_base.TestCase):
    def test_unknown_solver_lists_those_there_are(self):
        error = self.assertRaises(solving.UnknownSolver, solving.load, 'guess')
        self.assertIn('greedy', str(error))
