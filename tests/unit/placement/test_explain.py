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

import csv
import dataclasses

import numpy as np

from diffcache_openstack.common import exceptions
from diffcache_openstack.placement import explain
from diffcache_openstack.placement import figures
from diffcache_openstack.placement import instances
from diffcache_openstack.placement import placements
from diffcache_openstack.placement import solving
from diffcache_openstack.placement import whatif
from tests import base
from tests.unit.placement import evaluator
from tests.unit.placement import shapes


class TestExplain(base.TestCase):
    def setUp(self):
        super().setUp()
        self.instance = shapes.stored('testbed_s0')
        self.placement = placements.Placement.of(
            [(4, 2), (1, 3)], [(4, 0, 1), (4, 2, 2), (2, 3, 1)]
        )
        self.reasons = {
            (*r.key, r.host): r
            for r in explain.explain(self.instance, self.placement)
        }

    def test_every_object_has_a_reason(self):
        self.assertEqual({*self.placement.templates, *self.placement.patches},
                         set(self.reasons))

    def test_what_nobody_reads_goes_first(self):
        useless = self.reasons[2, 3, 1]
        self.assertEqual((0.0, 0.0, 1), (
            useless.requests, useless.saves_s, useless.eviction))
        self.assertIn('evicted', useless.why)

    def test_a_base_names_its_users(self):
        why = self.reasons[4, 2]
        self.assertIn(0, why.targets)
        self.assertIn('delivered whole and base of', why.why)
        self.assertGreater(why.saves_s, 0)

    def test_sites_and_pins(self):
        instance = dataclasses.replace(self.instance,
                                       sites=np.array([0, 1, 1]),
                                       pinned=instances.Held(((4, 2),)))
        reasons = explain.explain(instance, self.placement)
        self.assertEqual(5, len(reasons))
        pinned = [r for r in reasons if r.pinned]
        self.assertEqual(['pinned'], [r.why for r in pinned])


class TestExplainChains(base.TestCase):
    """Savings and users agree with an evaluator that counts patches."""

    def setUp(self):
        super().setUp()
        self.instance = shapes.stored('adv_chain_s0')
        self.placement = solving.load('ilp').solve(
            self.instance, hops=2).placement
        self.total = evaluator.total_cost(self.instance, self.placement, 2)

    def without(self, entry):
        return placements.Placement(
            self.placement.templates - {entry},
            self.placement.patches - {entry})

    def test_two_hops_in_any_order_of_rows(self):
        for instance in (self.instance, *(
                shapes.with_patches_shuffled(self.instance, seed)
                for seed in range(2))):
            for reason in explain.explain(instance, self.placement, 2):
                entry = (*reason.key, reason.host)
                lost = evaluator.total_cost(
                    self.instance, self.without(entry), 2) - self.total
                self.assertAlmostEqual(lost, reason.saves_s, 3)
                if lost > 1e-3:
                    self.assertGreater(reason.requests, 0)


class TestWhatIf(base.TestCase):
    def setUp(self):
        super().setUp()
        self.instance = shapes.stored('testbed_s0')
        self.solver = solving.load('auto')

    def test_a_host_more_shares_the_requests(self):
        changed = whatif.apply(self.instance, whatif.Change(hosts=2))
        self.assertEqual(5, changed.host_count)
        self.assertAlmostEqual(self.instance.demand, changed.demand)
        self.assertAlmostEqual(12.0, changed.rates[0, 4])

    def test_space_and_links_help(self):
        for change in (whatif.Change(capacity_mb=8000.0),
                       whatif.Change(peer_mbps=300.0)):
            result = whatif.compare(self.instance, change, self.solver.solve)
            self.assertGreater(result.saving, 0.0, change)

    def test_a_slower_wan_hurts(self):
        # Without patches some templates still come over the WAN.
        change = whatif.Change(repo_mbps=5.0)
        instance = self.instance.without_patches()
        result = whatif.compare(instance, change, self.solver.solve)
        self.assertLess(result.saving, -0.1)

    def test_nonsense_is_refused(self):
        for change in (whatif.Change(repo_mbps=0.0),
                       whatif.Change(demand=-1.0), whatif.Change(hosts=-1)):
            self.assertRaises(instances.InstanceError, whatif.apply,
                              self.instance, change)


class TestFigures(base.TestCase):
    def setUp(self):
        super().setUp()
        self.figure = dataclasses.replace(figures.FIGURES[2],
                                          values=(30000.0, 60000.0))

    def test_drawing_and_numbers(self):
        done = []
        rows = figures.points(self.figure, solving.load('auto'), seeds=1,
                              progress=lambda *at: done.append(at))
        self.assertEqual([(1, 2), (2, 2)], done)
        path = self.directory / 'figure.png'
        figures.write(self.figure, rows, str(path))
        self.assertEqual(b'\x89PNG', path.read_bytes()[:4])
        with open(self.directory / 'figure.csv', newline='') as source:
            table = list(csv.reader(source))
        self.assertEqual(['capacity_gb', *figures.SERIES], table[0])
        self.assertEqual(['30.0', '60.0'], [row[0] for row in table[1:]])
        # Below 40 GB no template fits: patches alone save little.
        self.assertGreater(float(table[1][2]), 30000.0)
        self.assertLess(float(table[2][1]), float(table[2][2]) / 10)

    def test_no_file_is_left_half_written(self):
        path = str(self.directory / 'missing' / 'figure.png')
        row = (30.0, 1.0, 2.0, 1.0, 2.0)
        self.assertRaises(exceptions.InvalidInput, figures.write, self.figure,
                          [row], path)
