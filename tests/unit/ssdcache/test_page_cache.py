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
import bisect
import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from diffcache_openstack import _native
from diffcache_openstack.ssdcache import curves
from diffcache_openstack.ssdcache import page_cache
from testing import page_cache as guests
from tests import base

# Requests of a guest; the first half fills the caches.
REQUESTS = 160000


def distances(stream):
    """Return the reuse distance of each reference, None for the first."""
    order, found = [], []
    for block in stream:
        if block in order:
            at = order.index(block)
            found.append(len(order) - at - 1)
            del order[at]
        else:
            found.append(None)
        order.append(block)
    return found


def curve(stream):
    """Return the curve of a short stream, by its definition."""
    found = [each for each in distances(stream) if each is not None]
    steps = [(size, hits) for size in range(1, len(stream) + 1)
             if (hits := sum(each < size for each in found))
             > sum(each < size - 1 for each in found)]
    return _native.HitCurve(len(stream), len(set(stream)), steps)


class TestBounds(base.TestCase):
    """Whatever a guest requests."""

    @given(st.lists(st.integers(0, 12), max_size=120), st.integers(1, 8),
           st.integers(1, 8))
    def test_hits_that_stay_below_a_smaller_page_cache(self, requests, one,
                                                       other):
        less, more = sorted((one, other))
        before, now = (curve(guests.PageCache(size).below(requests))
                       for size in (more, less))
        for size in range(1, 20):
            self.assertGreaterEqual(
                now.hits(size), page_cache.kept_hits(before, size, more))

    @given(st.lists(st.integers(0, 12), max_size=120), st.integers(1, 8),
           st.integers(1, 8))
    def test_a_forecast_is_a_curve_with_fewer_references(self, requests,
                                                         before, more):
        found = curve(guests.PageCache(before).below(requests))
        forecast = page_cache.grown(found, before, before + more)
        if forecast is None:
            return
        gone = found.references - forecast.curve.references
        self.assertGreaterEqual(gone, 0)
        self.assertEqual(found.most_hits - gone, forecast.curve.most_hits)
        for size in range(1, 20):
            self.assertLessEqual(forecast.curve.hits(size), found.hits(size))


class TestForecasts(base.TestCase):
    """Two caches, one above the other, and what was forecast of the lower."""

    def setUp(self):
        super().setUp()
        self.random = random.Random(18)

    def zipf(self, blocks):
        """Return requests, the n-th block as likely as 1 / n."""
        sums = list(itertools.accumulate(1 / n for n in range(1, blocks + 1)))
        return [bisect.bisect(sums, self.random.random() * sums[-1])
                for _request in range(REQUESTS)]

    def uniform(self, blocks):
        return [self.random.randrange(blocks) for _request in range(REQUESTS)]

    def normal(self, deviation):
        return [round(self.random.gauss(0, deviation)) + 10 * deviation
                for _request in range(REQUESTS)]

    def below(self, requests, size, journal=None):
        """Return the curve below a page cache, of the second half.

        :param journal: after so many requests a block of a journal is
            written, whose five blocks are written in turns
        """
        cache = guests.PageCache(size)

        def seen(half):
            for at, block in enumerate(half):
                if cache.misses(block):
                    yield block
                if journal and at % journal == 0:
                    yield 20000 + at // journal % 5

        first, second = (list(seen(half)) for half in (
            requests[:REQUESTS // 2], requests[REQUESTS // 2:]))
        early, both = self.analysed(first), self.analysed(first + second)
        steps, last = [], 0
        for size, hits in both.thinned(5000):
            more = hits - early.hits(size)
            if more > last:
                steps.append((size, more))
                last = more
        return _native.HitCurve(len(second), len(set(second)), steps)

    def analysed(self, stream):
        path = self.directory / 'trace.csv'
        path.write_text(''.join(f'{at},v,r,{block * 4096},4096\n'
                                for at, block in enumerate(stream)))
        return curves.read(path, curves.Analysis())['v'].curve

    def errors(self, one, other):
        """Return differences of hits at sizes, as parts of references."""
        return [abs(one.hits(size) - other.hits(size)) / other.references
                for size in range(50, 8000, 50)]

    def assert_foreseen(self, requests, before, now, most, **more):
        """Expect errors that are small, and smaller than without forecast."""
        then = self.below(requests, before, **more)
        real = self.below(requests, now, **more)
        forecast = page_cache.grown(then, before, now)
        self.assertIsNotNone(forecast)
        self.assertAlmostEqual(1.0, forecast.curve.references
                               / real.references, delta=0.06)
        found = self.errors(forecast.curve, real)
        mean = sum(found) / len(found)
        unforeseen = self.errors(then, real)
        self.assertLess(mean, most)
        self.assertLess(mean, sum(unforeseen) / len(unforeseen) / 3)

    def test_zipf(self):
        self.assert_foreseen(self.zipf(10000), 500, 1000, 0.04)
        self.assert_foreseen(self.zipf(10000), 2000, 3000, 0.03)

    def test_uniform(self):
        self.assert_foreseen(self.uniform(5000), 500, 1000, 0.02)
        self.assert_foreseen(self.uniform(5000), 500, 2000, 0.02)

    def test_normal(self):
        self.assert_foreseen(self.normal(1000), 500, 1000, 0.02)
        self.assert_foreseen(self.normal(1000), 500, 2000, 0.03)

    def test_writes_to_a_journal_stay_where_they_are(self):
        self.assert_foreseen(self.zipf(10000), 1000, 2000, 0.02, journal=5)

    def test_a_loop_that_is_larger_stays_as_it_is(self):
        requests = [at % 3000 for at in range(REQUESTS)]
        then = self.below(requests, 500)
        found = page_cache.grown(then, 500, 2000)
        self.assertEqual(500, found.span)
        self.assertEqual((then.references, then.thinned(9)),
                         (found.curve.references, found.curve.thinned(9)))

    def test_direct_io_does_not_go_through_the_page_cache(self):
        then = self.analysed(self.zipf(10000))
        self.assertEqual(0, page_cache.span(then, 500))
        self.assertIsNone(page_cache.grown(then, 500, 2000))

    def test_a_volume_that_was_not_requested(self):
        nothing = _native.HitCurve(0, 0, [])
        found = page_cache.grown(nothing, 100, 200)
        self.assertEqual((0, []), (found.curve.references,
                                   found.curve.thinned(9)))
        self.assertEqual(0, page_cache.kept_hits(nothing, 100, 50))
