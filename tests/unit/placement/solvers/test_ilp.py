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
from diffcache_openstack.placement import workloads
from tests import base as test_base
from tests.unit.placement import shapes
from tests.unit.placement.solvers import conformance


class TestIlp(conformance.SolverContract,
              conformance.FillsHostsContract, test_base.TestCase):
    solver = 'ilp'

    @conformance.for_any_instance
    def test_claims_agree_with_an_evaluator(self, seed, hops):
        self.check_claims(seed, hops)

    def test_published_optima_are_proved(self):
        for name, optimum in shapes.OPTIMA.items():
            solution = self.solve(shapes.stored(name))
            self.assertTrue(solution.proved_optimal, name)
            self.assertAlmostEqual(optimum, solution.cost_s, places=2)

    def test_two_hop_optima(self):
        for name, optimum in shapes.TWO_HOP_OPTIMA.items():
            solution = self.solve(shapes.stored(name), hops=2)
            self.assertTrue(solution.proved_optimal, name)
            self.assertLessEqual(solution.cost_s, optimum + 0.1)

    def test_a_base_from_the_repository_may_be_best(self):
        instance = instances.from_dict(
            {'sizes': [1000, 20000], 'patch_sizes': [[0, 1, 100, 10.0]],
             'capacities': [200], 'rates': [[0], [1]],
             'bandwidths': {'local': 400, 'peer': 200, 'repo': 10}}
        )
        solution = self.solve(instance)
        self.assertTrue(solution.proved_optimal)
        self.assertEqual({(0, 1, 1)}, set(solution.placement.patches))
        self.assertAlmostEqual(800 + 2 + 10, solution.cost_s)

    def test_time_limit_leaves_a_valid_bound(self):
        instance = workloads.synthetic(10, 4, 45000.0, seed=5)
        solution = self.solve(instance, time_limit=0.3)
        self.check(instance, solution)
        self.assertGreater(solution.lower_bound_s, 0.0)

    def test_progress_is_reported(self):
        seen = []
        self.solve(workloads.synthetic(8, 2, 45000.0), progress=seen.append)
        self.assertTrue(
            all(p.lower_bound_s <= p.cost_s * 1.000001 for p in seen)
        )
