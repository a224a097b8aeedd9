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

from diffcache_openstack.placement import demand
from diffcache_openstack.placement import ways
from testing import cache_policies
from testing import rc2
from tests import base

DAY = 86400.0


def steady(template, host, per_day, days, start=0.0):
    times = start + np.arange(0, days * DAY, DAY / per_day)
    return [demand.Arrival(float(t), template, host) for t in times]


class TestRates(base.TestCase):
    def test_a_steady_rate_is_found(self):
        model = demand.Model(family_weight=0.0)
        history = steady(0, 1, 24, 60)
        rates = demand.rates(history, 60 * DAY, (1, 1), model)
        self.assertAlmostEqual(24.0, rates[0, 0], delta=1.0)

    def test_old_requests_count_less(self):
        old = steady(0, 1, 10, 5)
        new = steady(1, 1, 10, 5, start=30 * DAY)
        rates = demand.rates(old + new, 35 * DAY, (2, 1))
        self.assertGreater(rates[1, 0], 5 * rates[0, 0])

    def test_rising_demand_is_ahead_of_its_mean(self):
        flat = steady(0, 1, 10, 28)
        rising = steady(1, 1, 4, 21) + steady(1, 1, 28, 7, start=21 * DAY)
        model = demand.Model(trend_limit=3.0, family_weight=0.0)
        without = demand.Model(trend_limit=1.0, family_weight=0.0)
        seen = flat + rising
        with_trend = demand.rates(seen, 28 * DAY, (2, 1), model)
        level = demand.rates(seen, 28 * DAY, (2, 1), without)
        self.assertGreater(with_trend[1, 0], 1.2 * level[1, 0])
        self.assertAlmostEqual(1.0, with_trend[0, 0] / level[0, 0], delta=0.1)

    def test_a_new_image_takes_after_its_family(self):
        history = steady(0, 1, 20, 14)
        family = np.array([0, 0, 1])
        rates = demand.rates(history, 14 * DAY, (3, 1), families=family)
        self.assertGreater(rates[1, 0], 1.0)
        self.assertEqual(0.0, rates[2, 0])

    def test_hosts_that_ask_get_the_rate(self):
        history = steady(0, 2, 20, 14) + steady(1, 1, 20, 14)
        rates = demand.rates(history, 14 * DAY, (2, 3))
        self.assertGreater(rates[0, 1], 5 * rates[0, 0])
        self.assertGreater(rates[0, 2], 0.0)

    def test_precache_jobs_are_demand(self):
        job = demand.Job(1, (2,), 7.0)
        rates = demand.rates([], 0.0, (2, 2), jobs=(job,))
        self.assertEqual([[0, 0], [0, 7]], rates.tolist())

    def test_the_future_is_not_read(self):
        history = steady(0, 1, 20, 14, start=100 * DAY)
        self.assertEqual(0.0, demand.rates(history, 50 * DAY, (1, 1)).sum())

    def test_families_are_what_patches_connect(self):
        family = demand.families(5, np.array([3, 1, 4]), np.array([1, 0, 2]))
        self.assertEqual([0, 0, 2, 0, 2], family.tolist())


class TestPolicies(base.TestCase):
    def request_all(self, cache, templates):
        for template in templates:
            cache.request(template, 10.0, 8.0)

    def test_lru_evicts_the_oldest(self):
        cache = cache_policies.Lru(20.0)
        self.request_all(cache, [1, 2, 1, 3])
        self.assertIn(1, cache)
        self.assertNotIn(2, cache)

    def test_lfu_keeps_the_frequent(self):
        cache = cache_policies.Lfu(20.0)
        self.request_all(cache, [1, 1, 1, 2, 3])
        self.assertIn(1, cache)
        self.assertNotIn(2, cache)

    def test_gdsf_forgets_what_was_frequent_long_ago(self):
        cache = cache_policies.Gdsf(20.0)
        self.request_all(cache, [1, 1, 1, *range(2, 12)])
        self.assertNotIn(1, cache)

    def test_what_never_fits_is_not_held(self):
        for kind in cache_policies.CACHES.values():
            cache = kind(5.0)
            self.request_all(cache, [1])
            self.assertNotIn(1, cache)

    def test_planning_beats_every_policy_on_a_drifting_trace(self):
        site = rc2.site(templates=20, trees=3, hosts=2,
                        capacity_mb=120000.0)
        replay = cache_policies.Replay(
            site, rc2.requests('drifting', site, 300), DAY, 2 * DAY
        )
        ours, *others = cache_policies.compare(replay)
        for other in others:
            self.assertLess(ours.mean_s, other.mean_s, other.name)

    def test_what_plans_move_is_counted_like_what_caches_fetch(self):
        """A plan that fetches each template once is no better than a cache."""
        site = rc2.site(templates=6, trees=6, hosts=1,
                        capacity_mb=1e9).without_patches()
        requests = tuple(
            demand.Arrival(day * DAY + at, at, 1)
            for day in range(3) for at in range(6))
        replay = cache_policies.Replay(site, requests, DAY, 0.0)
        ours = cache_policies.planned(replay, 'planned')
        cache = cache_policies.with_cache(replay, 'LRU')
        # Planned from the first day's requests, at the second day's first one.
        fetched = sum(ways.fetch_seconds(
            float(size), float(site.bandwidths.repo[0]))
            for size in site.sizes)
        self.assertAlmostEqual(fetched, ours.move_s)
        self.assertEqual(0.0, cache.move_s)
        self.assertGreater(ours.mean_s, cache.mean_s)

    def test_every_kind_of_trace_is_ordered_and_in_range(self):
        site = rc2.site(templates=20, trees=3, hosts=2)
        for kind in rc2.REQUEST_KINDS:
            requests = rc2.requests(kind, site, 200)
            times = [r.time_s for r in requests]
            self.assertEqual(sorted(times), times)
            self.assertEqual(200, len(requests))
            self.assertTrue(all(0 <= r.template < 20 for r in requests))
            self.assertEqual({1, 2}, {r.host for r in requests})
