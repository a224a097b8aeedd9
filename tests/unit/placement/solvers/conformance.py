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
"""What every solver promises; one test case per solver inherits this."""

import threading

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies

from diffcache_openstack.placement import cost
from diffcache_openstack.placement import instances
from diffcache_openstack.placement import solving
from tests.unit.placement import evaluator
from tests.unit.placement import shapes


class SolverContract:
    """Mixed into a test case that names the solver."""

    solver = ''

    def solve(self, instance, **options):
        return solving.load(self.solver).solve(instance, **options)

    def check(self, instance, solution, hops=1):
        result = cost.evaluate(instance, solution.placement, hops)
        self.assertEqual((), result.errors)
        self.assertAlmostEqual(1.0, solution.cost_s / result.total_cost_s,
                               places=9)
        self.assertLessEqual(solution.lower_bound_s,
                             solution.cost_s * (1 + 1e-9))
        self.assertLessEqual(0.0, solution.gap)

    def test_stored_instances_bound_below_known_optimum(self):
        for name, optimum in shapes.OPTIMA.items():
            instance = shapes.stored(name)
            solution = self.solve(instance, time_limit=20)
            self.check(instance, solution)
            self.assertLessEqual(solution.lower_bound_s, optimum * 1.000001)
            self.assertGreaterEqual(solution.cost_s, optimum * 0.999999)

    def test_two_hop_bound_below_known_optimum(self):
        for name, optimum in shapes.TWO_HOP_OPTIMA.items():
            instance = shapes.stored(name)
            solution = self.solve(instance, hops=2, time_limit=20)
            self.check(instance, solution, hops=2)
            self.assertLessEqual(solution.lower_bound_s, optimum * 1.000001)
            self.assertGreaterEqual(solution.cost_s, optimum * 0.999999)

    def test_two_hops_whatever_the_order_of_rows(self):
        for seed, (name, optimum) in enumerate(shapes.TWO_HOP_OPTIMA.items()):
            instance = shapes.stored(name)
            shuffled = shapes.with_patches_shuffled(instance, seed)
            solution = self.solve(shuffled, hops=2, time_limit=20)
            self.assertAlmostEqual(
                1.0,
                solution.cost_s / evaluator.total_cost(
                    instance, solution.placement, 2),
                places=9, msg=name)
            self.assertLessEqual(solution.lower_bound_s, optimum * 1.000001)
            if solution.proved_optimal:
                self.assertAlmostEqual(
                    1.0, solution.cost_s / optimum, places=6, msg=name)

    def check_claims(self, seed, hops):
        """Costs and bounds agree with an evaluator that counts patches."""
        instance = instances.from_dict(shapes.small(seed))
        solution = self.solve(instance, hops=hops, time_limit=10)
        shuffled = self.solve(
            shapes.with_patches_shuffled(instance, seed), hops=hops,
            time_limit=10)
        for found in (solution, shuffled):
            self.assertAlmostEqual(
                1.0,
                found.cost_s / evaluator.total_cost(
                    instance, found.placement, hops),
                places=9)
        # Neither bound may exceed what the other solve reached.
        self.assertLessEqual(
            max(solution.lower_bound_s, shuffled.lower_bound_s),
            min(solution.cost_s, shuffled.cost_s) * (1 + 1e-6))

    def test_compressed_templates_cost_what_crosses(self):
        for seed in range(8):
            document = shapes.compressed(seed, hosts=1 + seed % 2)
            instance = instances.from_dict(document)
            solution = self.solve(instance, hops=1 + seed % 3, time_limit=10)
            self.check(instance, solution, hops=1 + seed % 3)
            self.assertAlmostEqual(
                1.0,
                solution.cost_s / evaluator.total_cost(
                    instance, solution.placement, 1 + seed % 3),
                places=9)

    def test_any_instance_gives_a_feasible_placement(self):
        for seed in range(12):
            instance = instances.from_dict(shapes.small(seed, hosts=3))
            self.check(instance, self.solve(instance, time_limit=10))

    def test_a_byte_too_much_does_not_fit(self):
        for seed in range(12):
            instance = instances.from_dict(shapes.tight(seed))
            solution = self.solve(instance, time_limit=20)
            self.check(instance, solution)
            least = evaluator.least_cost(instance)
            self.assertLessEqual(solution.lower_bound_s, least * (1 + 1e-9))
            if solution.proved_optimal:
                self.assertAlmostEqual(1.0, solution.cost_s / least, places=6)

    def test_templates_only(self):
        instance = shapes.stored('testbed_s0').without_patches()
        solution = self.solve(instance, time_limit=10)
        self.check(instance, solution)
        self.assertFalse(solution.placement.patches)

    def test_pins_are_kept_and_excluded_hosts_left_empty(self):
        document = shapes.document('testbed_s0')
        document['pinned'] = {'templates': [[4, 3]], 'patches': [[4, 0, 2]]}
        document['excluded'] = [1]
        instance = instances.from_dict(document)
        solution = self.solve(instance, time_limit=10)
        self.check(instance, solution)
        self.assertIn((4, 3), solution.placement.templates)
        self.assertIn((4, 0, 2), solution.placement.patches)

    def test_pins_beyond_capacity_are_refused(self):
        document = shapes.document('testbed_s0')
        document['pinned'] = {'templates': [[0, 3], [1, 3]]}
        error = self.assertRaises(instances.InstanceError, self.solve,
                                  instances.from_dict(document))
        self.assertIn('pinned', str(error))

    def test_sites_do_not_share(self):
        document = shapes.document('testbed_s0')
        document['sites'] = [0, 0, 1]
        instance = instances.from_dict(document)
        self.check(instance, self.solve(instance, time_limit=10))

    def test_same_input_same_output(self):
        instance = instances.from_dict(shapes.small(7))
        first = self.solve(instance)
        self.assertEqual(first.placement, self.solve(instance).placement)

    def test_stop_before_start_still_answers(self):
        stop = threading.Event()
        stop.set()
        instance = shapes.stored('testbed_s0')
        self.check(instance, self.solve(instance, stop=stop))

    def test_zero_demand_is_no_division_by_zero(self):
        instance = instances.from_dict(shapes.small(3))
        quiet = instances.Instance(
            **{**vars(instance), 'rates': instance.rates * 0.0}
        )
        solution = self.solve(quiet, time_limit=5)
        self.assertEqual(0.0, solution.cost_s)
        self.assertEqual(0.0, solution.gap)


def for_any_instance(test):
    """Decorate a test with the parameters of ``check_claims``.

    Each test case has a test of its own: Hypothesis keeps what it tried by
    the function that it called.
    """
    return settings(max_examples=6)(given(
        seed=strategies.integers(0, 10**6),
        hops=strategies.integers(1, 3))(test))


class FillsHostsContract:
    """Mixed into a test case of a solver that fills hosts to the end."""

    def test_what_fills_a_host_to_the_last_byte_fits(self):
        # In floating point, 0.1 + 0.2 is more than 0.3.
        instance = instances.from_dict({
            'sizes': [0.1, 0.2], 'patch_sizes': [], 'capacities': [0.3],
            'rates': [[1], [1]],
            'bandwidths': {'local': 1000, 'peer': 100, 'repo': 1}})
        self.assertEqual({(0, 1), (1, 1)},
                         self.solve(instance).placement.templates)
