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

import dataclasses
import itertools

import hypothesis
from hypothesis import strategies as st
import numpy as np

from diffcache_openstack.placement import boot_sets
from diffcache_openstack.placement import instances
from diffcache_openstack.placement import placements
from diffcache_openstack.placement import replan
from tests import base
from tests.unit.placement import plain_boot_sets

_SHARES = st.floats(0.0, 1.0)


@st.composite
def candidates(draw, most_sets=6, most_hosts=5):
    """Random sets and hosts of one or two sites."""
    seed = draw(st.integers(0, 2 ** 32 - 1))
    rng = np.random.default_rng(seed)
    sets = draw(st.integers(0, most_sets))
    hosts = draw(st.integers(1, most_hosts))
    sizes = rng.integers(1, 60, sets).astype(float)
    waits = sizes[:, None] * rng.uniform(0.5, 2.0, (1, hosts))
    return boot_sets.Candidates(
        sizes=sizes, waits=waits,
        near=waits * rng.uniform(0.01, 1.2, (1, hosts)),
        rates=rng.integers(0, 4, (sets, hosts)).astype(float),
        capacities=rng.integers(50, 400, hosts).astype(float),
        limits=rng.integers(0, 400, hosts).astype(float),
        sites=rng.integers(0, 2, hosts),
        barred=rng.random((sets, hosts)) < 0.2)


@st.composite
def pinned(draw):
    """Random sets and hosts, some of them pinned, or equal to others."""
    of = draw(candidates(most_sets=8, most_hosts=6))
    places = [(number, host + 1) for number in range(len(of.sizes))
              for host in range(len(of.capacities))]
    pins = draw(st.lists(st.sampled_from(places), max_size=4)) \
        if places else []
    if draw(st.booleans()):
        # Sets that are worth as much as others, and little room.
        sizes = np.ceil(of.sizes / 6)
        waits = np.tile(sizes[:, None], (1, len(of.capacities)))
        of = dataclasses.replace(
            of, sizes=sizes, waits=waits, near=waits / 4,
            capacities=np.ceil(of.capacities / 25),
            limits=np.full(len(of.capacities), 1000.0))
    return dataclasses.replace(of, pinned=tuple(pins))


def saved(of, chosen):
    """Seconds that sets save, from the definition."""
    total = 0.0
    for number, row in enumerate(of.rates):
        holders = {host - 1 for each, host in chosen if each == number}
        for column, rate in enumerate(row):
            after = before = of.waits[number, column]
            if column in holders:
                after = 0.0
            elif any(of.sites[each] == of.sites[column] for each in holders):
                after = min(before, of.near[number, column])
            total += rate * (before - after)
    return total


def pairs(solution):
    return [(each.number, each.host) for each in solution.choices]


def used(of, solution):
    """Bytes that chosen sets take on each host."""
    taken = np.zeros(len(of.capacities), dtype=np.int64)
    for each in solution.choices:
        taken[each.host - 1] += instances.to_bytes(of.sizes[each.number])
    return taken


class TestProperties(base.TestCase):

    @hypothesis.given(candidates(), _SHARES)
    def test_never_above_the_share_nor_where_the_image_is(self, of, share):
        found = boot_sets.choose(of, share)
        most = np.minimum(of.capacities * share, np.maximum(of.limits, 0.0))
        self.assertTrue(np.all(
            used(of, found) <= instances.to_bytes(most) + 1))
        self.assertFalse(any(of.barred[each.number, each.host - 1]
                             for each in found.choices))
        self.assertEqual(len(pairs(found)), len(set(pairs(found))))

    @hypothesis.given(candidates(), _SHARES)
    def test_what_it_saves_is_what_the_definition_says(self, of, share):
        found = boot_sets.choose(of, share)
        self.assertAlmostEqual(saved(of, pairs(found)), found.saved_s, 6)
        for each in found.choices:
            others = set(pairs(found)) - {(each.number, each.host)}
            self.assertAlmostEqual(
                found.saved_s - saved(of, others), each.saves_s, 6)

    @hypothesis.given(pinned(), _SHARES)
    def test_it_is_the_same_as_in_the_plainest_way(self, of, share):
        found = boot_sets.choose(of, share)
        choices, saved_s = plain_boot_sets.choose(of, share)
        self.assertEqual(choices, [
            (each.number, each.host, each.wait_s, each.saves_s)
            for each in found.choices])
        self.assertEqual(saved_s, found.saved_s)

    @hypothesis.given(candidates(), _SHARES)
    def test_it_is_deterministic(self, of, share):
        self.assertEqual(boot_sets.choose(of, share),
                         boot_sets.choose(of, share))

    @hypothesis.given(candidates(), _SHARES, _SHARES)
    def test_a_larger_share_never_saves_less(self, of, one, other):
        less, more = (boot_sets.choose(of, share).saved_s
                      for share in sorted((one, other)))
        self.assertGreaterEqual(more, less - 1e-9)

    @hypothesis.given(candidates(most_sets=3, most_hosts=3), _SHARES)
    def test_it_is_near_the_best_there_is_and_within_its_bound(
            self, of, share):
        found = boot_sets.choose(of, share)
        rooms = of.rooms(boot_sets.steps_of(share))
        best = max(saved(of, chosen) for chosen in self.feasible(of, rooms))
        self.assertGreaterEqual(found.bound_s, best - 1e-6)
        sizes = instances.to_bytes(of.sizes)
        part = max((size / room for size in sizes for room in rooms
                    if size <= room), default=0.0)
        self.assertGreaterEqual(
            found.saved_s, (1 - part) / (2 - part) * best - 1e-6)

    def feasible(self, of, rooms):
        places = [(number, host + 1) for number, host
                  in zip(*np.nonzero(~of.barred))]
        for count in range(len(places) + 1):
            for chosen in itertools.combinations(places, count):
                taken = np.zeros(len(rooms), dtype=np.int64)
                for number, host in chosen:
                    taken[host - 1] += instances.to_bytes(of.sizes[number])
                if np.all(taken <= rooms):
                    yield chosen

    @hypothesis.given(candidates(), _SHARES, st.data())
    def test_pins_come_first_within_the_share(self, of, share, data):
        places = [(number, host + 1) for number in range(len(of.sizes))
                  for host in range(len(of.capacities))]
        pins = data.draw(st.lists(st.sampled_from(places), max_size=4)) \
            if places else []
        of = dataclasses.replace(of, pinned=tuple(pins))
        found = boot_sets.choose(of, share)
        rooms = of.rooms(boot_sets.steps_of(share))
        self.assertTrue(np.all(used(of, found) <= rooms))
        left = rooms.copy()
        sizes = instances.to_bytes(of.sizes)
        for number, host in dict.fromkeys(pins):
            if of.barred[number, host - 1] \
                    or sizes[number] > left[host - 1]:
                continue
            left[host - 1] -= sizes[number]
            self.assertIn((number, host), pairs(found))


class TestRoom(base.TestCase):

    def test_a_room_that_others_filled_has_smaller_ones_tried(self):
        of = boot_sets.Candidates(
            sizes=np.array([6.0, 5.0]),
            waits=np.array([[6.0, 6.0], [5.0, 5.0]]),
            near=np.array([[3.0, 3.0], [2.5, 2.5]]),
            rates=np.array([[4.0, 2.0], [5.0, 0.0]]),
            capacities=np.array([6.0, 9.0]), limits=np.array([9.0, 9.0]),
            sites=np.array([0, 0]), barred=np.zeros((2, 2), dtype=bool))
        found = boot_sets.choose(of, 1.0)
        # The first is best at the first host, where the second is then out.
        self.assertEqual([(1, 1), (0, 2)], pairs(found))
        self.assertEqual(49.0, found.saved_s)


def two_hosts(**changes):
    """Two images at a site of two hosts, 100 s and 10 s over the WAN."""
    values = {
        'sizes': np.array([1000.0, 100.0]),
        'patch_base': np.array([], dtype=np.int64),
        'patch_target': np.array([], dtype=np.int64),
        'patch_sizes': np.array([]), 'patch_seconds': np.array([]),
        'capacities': np.array([500.0, 500.0]),
        'rates': np.array([[2.0, 1.0], [2.0, 1.0]]),
        'bandwidths': instances.Bandwidths.uniform(2, 4000, 800, 80),
        **changes}
    return instances.Instance(**values)


TERMS = replan.Terms(period_s=86400, horizon_s=7 * 86400, move_weight=0.01,
                     least_saving=0.0)


class TestCandidates(base.TestCase):

    def choose(self, instance, held=(), share=0.1, **changes):
        sets = boot_sets.BootSets(**{
            'templates': (0, 1), 'megabytes': (40.0, 20.0),
            'hosts': frozenset({1, 2}), 'capacities': instance.capacities,
            **changes})
        return boot_sets.choose(boot_sets.candidates_of(
            instance, placements.Placement.of(held), sets, TERMS), share)

    def test_a_boot_waits_for_its_part_of_the_image(self):
        # 40 MB at 80 Mbit/s, and from a peer at 800.
        first, second = self.choose(
            two_hosts(), templates=(0,), megabytes=(40.0,)).choices
        self.assertEqual((1, 2.0, True), (
            first.host, first.requests, first.from_peer))
        self.assertAlmostEqual(0.4, first.wait_s)
        # Alone, each saves its own boots the LAN.
        self.assertAlmostEqual(0.8, first.saves_s)
        self.assertAlmostEqual(0.4, second.saves_s)

    def test_the_first_copy_at_a_site_is_worth_most(self):
        # The other host has no room.
        found = self.choose(
            two_hosts(capacities=np.array([500.0, 300.0])), templates=(0,),
            megabytes=(40.0,))
        [only] = found.choices
        self.assertFalse(only.from_peer)
        self.assertAlmostEqual(4.0, only.wait_s)
        self.assertAlmostEqual(2 * 4.0 + 1 * (4.0 - 0.4), only.saves_s)
        self.assertAlmostEqual(only.saves_s, found.saved_s)

    def test_the_share_takes_what_saves_most(self):
        # Both save as much per byte; only one fits beside a pinned one.
        found = self.choose(two_hosts(), pinned=((1, 2),))
        self.assertIn((1, 2), pairs(found))
        [pinned] = [each for each in found.choices if each.pinned]
        self.assertEqual((1, 2), (pinned.number, pinned.host))
        self.assertEqual([(0, 1), (1, 2)], pairs(found))

    def test_hosts_that_hold_the_image_get_no_set(self):
        found = self.choose(two_hosts(), held=[(0, 1)])
        self.assertNotIn((0, 1), pairs(found))
        placed = two_hosts(placed=instances.Held(((0, 2),)))
        self.assertNotIn((0, 2), pairs(self.choose(placed)))

    def test_drained_hosts_and_those_without_diffcached_get_none(self):
        found = self.choose(two_hosts(excluded=frozenset({1})),
                            hosts=frozenset({1}))
        self.assertEqual((), found.choices)

    def test_what_nobody_boots_is_not_brought(self):
        rates = np.array([[1e-4, 0.0], [2.0, 1.0]])
        found = self.choose(two_hosts(rates=rates), share=0.2)
        self.assertEqual({1}, {each.number for each in found.choices})
        kept = self.choose(two_hosts(rates=rates), share=0.2,
                           present=frozenset({(0, 1)}))
        self.assertIn((0, 1), pairs(kept))

    def test_pinned_images_leave_less_room(self):
        instance = two_hosts(
            capacities=np.array([130.0, 500.0]),
            pinned=instances.Held(((1, 1),)))
        found = self.choose(instance, share=1.0)
        self.assertEqual([(0, 2), (1, 2)], sorted(pairs(found)))

    def test_drained_hosts_wait_for_their_neighbours(self):
        found = self.choose(two_hosts(excluded=frozenset({2})),
                            templates=(0,), megabytes=(40.0,))
        [only] = found.choices
        self.assertAlmostEqual(2 * 4.0 + 1 * (4.0 - 0.4), only.saves_s)

    def test_without_sets_there_is_nothing(self):
        found = self.choose(two_hosts(), templates=(), megabytes=())
        self.assertEqual((0.0, 0.0, ()), (
            found.saved_s, found.bound_s, found.choices))
