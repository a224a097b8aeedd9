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
"""What holds for every policy."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from diffcache_openstack import _native
from diffcache_openstack.cached_volumes import choices
from diffcache_openstack.ssdcache.sizing import base
from tests import base as test_base


def curve(hits):
    """The curve of a volume with this many hits at each distance."""
    steps = [(size, total) for size, (more, total)
             in enumerate(zip(hits, itertools.accumulate(hits)), 1) if more]
    return _native.HitCurve(sum(hits) + len(hits), len(hits), steps)


def volume(name, *hits, **values):
    return base.Volume(name, curve(hits), **values)


@st.composite
def instances(draw):
    """Volumes and a cache that sizes are possible for."""
    step = draw(st.integers(1, 3))
    volumes = []
    for name in 'abcd'[:draw(st.integers(1, 4))]:
        least = draw(st.integers(0, 4))
        # Room for a multiple of the step.
        most = least + step + draw(st.integers(0, 12))
        ratio = draw(st.none() | st.floats(0.01, 1))
        volumes.append(base.Volume(
            name, curve(draw(st.lists(st.integers(0, 9), max_size=8))),
            draw(st.floats(0.1, 10)), least, most,
            None if ratio is None else choices.Target(ratio)))
    free = base.Cache(base.MAX_CAPACITY, step)
    least = sum(map(free.least, volumes))
    return volumes, base.Cache(least + step + draw(st.integers(0, 20)), step)


def possible(volumes, cache):
    """Yield all sizes within the limits."""
    ranges = [range(cache.least(each), cache.most(each) + 1, cache.step)
              for each in volumes]
    for sizes in itertools.product(*ranges):
        if base.fits(sizes, cache):
            yield sizes


class PolicyConformance(test_base.TestCase):
    """Runs on one policy: a subclass names it."""

    policy: str

    def setUp(self):
        super().setUp()
        self._loaded = base.load(self.policy)

    def size(self, volumes, cache):
        base.check(volumes, cache)
        return self._loaded.size(volumes, cache)

    # Hypothesis wants a function for each class, not one that they inherit.

    def test_sizes_are_within_all_limits(self):
        @given(instances())
        def check(instance):
            volumes, cache = instance
            found = self.size(volumes, cache)
            self.assertEqual([each.name for each in volumes],
                             list(found.sizes))
            self.assertTrue(base.fits(found.sizes.values(), cache))
            for each in volumes:
                size = found.sizes[each.name]
                self.assertEqual(0, size % cache.step)
                self.assertLessEqual(cache.least(each), size)
                self.assertLessEqual(size, cache.most(each))
            self.assertLessEqual(set(found.infeasible), set(found.sizes))
        check()

    def test_the_same_volumes_have_the_same_sizes(self):
        @given(instances())
        def check(instance):
            self.assertEqual(self.size(*instance), self.size(*instance))
        check()

    def test_no_volume(self):
        self.assertEqual({}, self.size([], base.Cache(10)).sizes)

    def test_a_volume_without_requests(self):
        volumes = [base.Volume('a', _native.HitCurve(0, 0, [])),
                   volume('b', 3, 2)]
        sizes = self.size(volumes, base.Cache(4)).sizes
        self.assertLessEqual(sum(sizes.values()), 4)

    def test_each_volume_is_explained(self):
        volumes = [volume('a', 3, 2), volume('b', 0, 9)]
        text = '\n'.join(self.size(volumes, base.Cache(3)).explain)
        for name in 'ab':
            self.assertIn(f'{name}: ', text)
