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
"""Sums of what hosts report that instances read."""

import random

from hypothesis import given
from hypothesis import strategies as st

from diffcache_openstack.common import exceptions
from diffcache_openstack.prefetch import profiles
from tests import base

CHUNK = profiles.CHUNK

_ROWS = st.dictionaries(st.integers(0, 9), st.tuples(
    st.integers(1, 40), st.integers(0, 10 ** 6)), max_size=6)
# (host, run, number, rows)
_REPORTS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3),
                              st.integers(1, 4), _ROWS), max_size=12)


def sum_of(rows):
    total = {}
    for each in rows:
        total = profiles.added(total, each)
    return total


class TestMerging(base.TestCase):

    @given(_REPORTS)
    def test_the_sum_is_that_of_what_hosts_count_for(self, reports):
        hosts, merged = {}, {}
        for host, run, number, rows in reports:
            before = hosts.get(host, profiles.Contribution())
            after = before.report(run, number, rows)
            merged = profiles.added(
                profiles.without(merged, before.counted()), after.counted())
            hosts[host] = after
        self.assertEqual(sum_of(each.counted() for each in hosts.values()),
                         merged)

    @given(_REPORTS, st.randoms())
    def test_the_order_of_hosts_and_repetitions_change_nothing(
            self, reports, chance):
        # One state for each number, as hosts have it.
        ordered = {}
        for host, run, number, rows in sorted(reports, key=lambda r: r[:3]):
            ordered.setdefault(host, {})[run, number] = rows
        outcomes = []
        for shuffled in (False, True):
            hosts = {}
            queue = [(host, *key, rows) for host, states in ordered.items()
                     for key, rows in states.items()]
            if shuffled:
                queue = _interleaved(ordered, chance)
            for host, run, number, rows in queue:
                hosts[host] = hosts.get(
                    host, profiles.Contribution()).report(run, number, rows)
            outcomes.append(sum_of(
                each.counted() for each in hosts.values()))
        self.assertEqual(*outcomes)

    def test_one_host_counts_for_a_bounded_share(self):
        bad = profiles.Contribution()
        for run in range(1, 50):
            bad = bad.report(run, 1, {9: (10 ** 6, 0)})
        honest = {chunk: (2, 10) for chunk in range(3)}
        merged = profiles.added(honest, bad.counted())
        self.assertEqual(profiles.HOST_SHARE, merged[9][0])
        # Still a tenth of the most frequent: diffcached prefetches them.
        self.assertEqual(merged, profiles.chosen(merged, 0.1))

    def test_one_host_adds_a_bounded_number_of_chunks(self):
        others = {chunk: (3, 3000) for chunk in range(0, 400, 10)}
        bad = profiles.Contribution()
        for run in range(1, 6):
            first = 10_000 * run
            bad = bad.report(run, 1, {chunk: (16, 0) for chunk in range(
                first, first + profiles.MOST_ROWS)}).beside(others)
        merged = profiles.chosen(profiles.added(others, bad.counted()), 0.1)
        self.assertLessEqual(others.keys(), merged.keys())
        self.assertEqual(256, len(merged.keys() - others.keys()))
        # The first that reports adds what it has read.
        alone = profiles.Contribution().report(1, 1, {
            chunk: (1, 1) for chunk in range(5000)})
        self.assertEqual(alone, alone.beside({}))

    def test_what_was_prefetched_and_not_read(self):
        advised = {chunk: (16, 16 * chunk) for chunk in range(1000)}
        for rows, expected in (
                ({}, False),
                # It still boots.
                ({10: (1, 10)}, False),
                ({chunk: (1, chunk) for chunk in range(200)}, False),
                ({chunk: (1, chunk) for chunk in range(0, 1000, 2)}, False),
                ({chunk: (1, chunk) for chunk in range(0, 1000, 3)}, True),
                ({5000: (1, 70)}, True), ({5000: (1, 10 ** 6)}, True)):
            self.assertEqual(expected, profiles.is_unread(advised, rows),
                             rows)

    def test_halves(self):
        rows = {1: (16, 1600), 2: (3, 30), 3: (1, 5)}
        self.assertEqual({1: (8, 800), 2: (1, 10)}, profiles.halved(rows))
        self.assertEqual({}, profiles.without(profiles.halved(rows), rows))
        self.assertEqual({2: (1, 20)}, profiles.without(
            {1: (5, 50), 2: (3, 30)}, {1: (7, 10), 2: (2, 10), 9: (1, 1)}))

    def test_readers_from_which_on_a_chunk_is_a_hint(self):
        # As those of native/prefetch/src/threshold.rs.
        for threshold, count, expected in (
                (1.0, 120, 1), (2.0, 4, 2), (2.5, 4, 3), (0.1, 120, 12),
                (0.1, 11, 2), (0.1, 3, 1), (0.07, 100, 7), (0.1, 0, 1),
                (5.0, 0, 5)):
            self.assertEqual(
                expected, profiles.least_readers(threshold, count),
                (threshold, count))

    def test_rows_of_too_few_instances_are_left_out(self):
        rows = {0: (10, 9), 1: (5, 9), 2: (1, 9)}
        for threshold, chunks in ((0.1, {0, 1, 2}), (0.11, {0, 1}),
                                  (6, {0}), (11, set())):
            self.assertEqual(chunks, profiles.chosen(rows, threshold).keys())

    def test_scaling_keeps_shares_and_means(self):
        rows = {0: (100, 5000), 1: (50, 100), 2: (4, 80), 3: (2, 2)}
        self.assertEqual({0: (16, 800), 1: (8, 16), 2: (1, 20)},
                         profiles.scaled(rows, 16))
        self.assertEqual(rows, profiles.scaled(rows, 100))

    def test_what_is_left_out_of_too_many_rows(self):
        rows = {chunk: (1 + (chunk == 7), 5 if chunk == 8 else 9)
                for chunk in range(profiles.MOST_ROWS + 2)}
        kept = profiles.bounded(rows)
        self.assertEqual(profiles.MOST_ROWS, len(kept))
        self.assertEqual([7, 8], list(kept)[:2])


def _interleaved(ordered, chance):
    """Merge the states of hosts in any order, each one maybe twice."""
    pending = {host: list(states.items())
               for host, states in ordered.items()}
    found, sent = [], []
    while any(pending.values()):
        host = chance.choice([h for h, states in pending.items() if states])
        (run, number), rows = pending[host].pop(0)
        found.append((host, run, number, rows))
        sent.append(found[-1])
        if chance.random() < 0.5:
            found.append(chance.choice(sent))
    return found


class TestForms(base.TestCase):

    def test_rows_are_packed_as_they_are(self):
        chance = random.Random(3)
        rows = {chunk: (chance.randint(1, 9), chance.randint(0, 10 ** 9))
                for chunk in range(450)}
        self.assertEqual(rows, profiles.unpacked(profiles.packed(rows)))
        self.assertEqual(rows, profiles.parse(profiles.listed(rows),
                                              450 * CHUNK))

    def test_means_of_the_daemon(self):
        rows = profiles.of_means([[3, 2, 1.5], [4, 1, 1e13]])
        self.assertEqual({3: (2, 3), 4: (1, profiles.LATEST_US)}, rows)
        self.assertEqual([[3, 2, 1.5], [4, 1, 3.6e9]],
                         profiles.with_means(rows))

    def test_rows_that_no_reads_lead_to_are_refused(self):
        late = profiles.LATEST_US
        for rows in ([[4, 1, 0]], [[0, 1, 0], [0, 1, 0]], [[0, 0, 0]],
                     [[0, 10 ** 6 + 1, 0]], [[0, 2, 2 * late + 1]]):
            self.assertRaises(exceptions.InvalidInput, profiles.parse, rows,
                              3 * CHUNK + 1)
        profiles.parse([[3, 2, 2 * late]], 3 * CHUNK + 1)

    def test_more_rows_than_are_possible(self):
        rows = [[chunk, 1, 1] for chunk in range(profiles.MOST_ROWS + 1)]
        self.assertRaises(exceptions.InvalidInput, profiles.parse, rows,
                          2 ** 40)
