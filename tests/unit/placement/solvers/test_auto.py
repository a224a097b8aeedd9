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

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies

from diffcache_openstack.placement import cost
from diffcache_openstack.placement import instances
from diffcache_openstack.placement import placements
from diffcache_openstack.placement.solvers import auto
from diffcache_openstack.placement import solving
from testing import rc2
from tests import base as test_base
from tests.unit.placement import shapes
from tests.unit.placement.solvers import conformance

# A proof takes some seconds where the machine has no other work.
_PROOF_SECONDS = 600

SMALL_TRACE = rc2.TraceShape(templates=60, trees=8, requests=600,
                             depth=4, top=4)


def empty_cost(instance):
    """Cost, in seconds, if no host held anything."""
    return cost.total_cost(instance, placements.Placement())


class TestAuto(conformance.SolverContract,
               conformance.FillsHostsContract, test_base.TestCase):
    solver = 'auto'

    @conformance.for_any_instance
    def test_claims_agree_with_an_evaluator(self, seed, hops):
        self.check_claims(seed, hops)

    def search(self, instance, hops=1):
        """What the search finds by itself where the instance is small."""
        return auto.solve_site(instance, solving.Options(hops=hops))

    def test_small_instances_are_proved(self):
        for name, optimum in shapes.OPTIMA.items():
            solution = self.solve(shapes.stored(name),
                                  time_limit=_PROOF_SECONDS)
            self.assertTrue(solution.proved_optimal, name)
            self.assertAlmostEqual(optimum, solution.cost_s, 2, name)

    def test_small_instances_with_two_rounds_are_proved(self):
        for name, optimum in shapes.TWO_HOP_OPTIMA.items():
            solution = self.solve(shapes.stored(name), hops=2,
                                  time_limit=_PROOF_SECONDS)
            self.assertTrue(solution.proved_optimal, name)
            self.assertAlmostEqual(optimum, solution.cost_s, 0, name)

    def test_near_the_published_optima(self):
        for name, optimum in shapes.OPTIMA.items():
            solution = self.search(shapes.stored(name))
            self.assertLess(solution.cost_s, optimum * 1.005, name)

    @settings(max_examples=8)
    @given(seed=strategies.integers(0, 10**6), hops=strategies.integers(1, 2))
    def test_bound_below_proved_optimum(self, seed, hops):
        instance = instances.from_dict(shapes.small(seed))
        proved = solving.load('ilp').solve(instance, hops=hops)
        self.assertTrue(proved.proved_optimal)
        solution = self.search(instance, hops)
        self.assertLessEqual(solution.lower_bound_s,
                             proved.cost_s * (1 + 1e-9))
        self.assertLess(solution.cost_s, proved.cost_s * 1.05)

    @settings(max_examples=8)
    @given(seed=strategies.integers(0, 10**6))
    def test_bound_holds_with_unlike_links(self, seed):
        document = shapes.small(seed, hosts=3)
        document['bandwidths'] = {'local': [400, 300, 1000],
                                  'peer': [200, 20, 100],
                                  'repo': [10, 15, 2 + seed % 40]}
        instance = instances.from_dict(document)
        proved = solving.load('ilp').solve(instance)
        solution = self.search(instance)
        self.assertLessEqual(solution.lower_bound_s,
                             proved.cost_s * (1 + 1e-9))

    def test_trace_in_miniature_comes_close_to_its_bound(self):
        instance = rc2.trace(6, shape=SMALL_TRACE)
        solution = self.solve(instance)
        self.check(instance, solution)
        self.assertLess(solution.gap, 0.06)
        greedy = solving.load('greedy').solve(instance)
        self.assertLess(solution.cost_s, greedy.cost_s)

    def test_several_threads(self):
        instance = rc2.trace(6, shape=SMALL_TRACE)
        solution = self.solve(instance, threads=3, time_limit=3)
        self.check(instance, solution)
        self.assertLess(solution.gap, 0.04)

    def test_stopping_in_the_middle_gives_the_best_so_far(self):
        instance = rc2.trace(12, shape=SMALL_TRACE)
        stop = threading.Event()

        def progress(_):
            stop.set()

        solution = self.solve(instance, progress=progress, stop=stop)
        self.check(instance, solution)
        self.assertLess(solution.cost_s, empty_cost(instance))

    def test_nothing_fits_without_patches(self):
        instance = shapes.stored('rand_s1_N5_K4').without_patches()
        solution = self.solve(instance)
        self.assertEqual(placements.Placement(), solution.placement)
        self.assertAlmostEqual(empty_cost(instance), solution.cost_s)

    def test_losses_agree_with_taking_objects_away(self):
        instance = shapes.stored('testbed_s0')
        placement = self.solve(instance).placement
        whole = self.solve(instance).cost_s
        for entry, lost in auto.losses(instance, placement).items():
            kind = 'templates' if len(entry) == 2 else 'patches'
            left = {kind: getattr(placement, kind) - {entry}}
            without = placements.Placement(**{**vars(placement), **left})
            self.assertAlmostEqual(cost.total_cost(instance, without) - whole,
                                   lost, places=4)
