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
"""When epochs end early."""

import random

from hypothesis import given
from hypothesis import strategies as st

from diffcache_openstack.ssdcache import departures
from tests import base as test_base
from tests.unit.ssdcache.sizing import conformance


class Load:
    """Volumes that are served, and counted."""

    def __init__(self, *names):
        self.references = dict.fromkeys(names, 0)
        self.hits = dict.fromkeys(names, 0)
        self.full = dict.fromkeys(names, True)

    def serve(self, **ratios):
        """Let 1000 references to each volume have such hit ratios."""
        for name, ratio in ratios.items():
            self.references[name] += 1000
            self.hits[name] += round(1000 * ratio)

    def served(self):
        return {name: departures.Served(
            self.references[name], self.hits[name], self.full[name])
            for name in self.references}


# Of 1000 references 900 hit in 10 blocks, and none in fewer.
CURVE = conformance.curve([0] * 9 + [981])
SIZES = {'a': 10, 'b': 10}


class TestDepartures(test_base.TestCase):

    def setUp(self):
        super().setUp()
        self.load = Load('a', 'b')
        self.departures = departures.Departures(0.01)
        self.ratio = CURVE.hits(10) / CURVE.references
        self.begin()

    def begin(self, **sizes):
        self.departures.begin({'a': CURVE, 'b': CURVE}, {**SIZES, **sizes},
                              self.load.served())

    def look(self, **ratios):
        self.load.serve(**{'a': self.ratio, 'b': self.ratio, **ratios})
        return self.departures.look(self.load.served())

    def test_what_was_predicted_ends_no_epoch(self):
        for _look in range(20):
            self.assertEqual([], self.look())

    def test_fewer_hits_twice_in_a_row_end_it(self):
        self.assertEqual([], self.look(a=0.5))
        self.assertEqual(
            ['a: the epoch ended early, since 50.0% of its last 1000'
             ' references hit, and 99.0% were expected'], self.look(a=0.5))

    def test_more_hits_end_it(self):
        self.begin(a=9)
        self.look(a=0.5)
        [reason] = self.look(a=0.5)
        self.assertIn('0.0% were expected', reason)

    def test_a_single_burst_does_not(self):
        for _look in range(5):
            self.assertEqual([], self.look(a=0.5))
            self.assertEqual([], self.look())

    def test_more_and_then_fewer_hits_do_not(self):
        curve = conformance.curve([100] * 10)
        curves = {'a': curve, 'b': CURVE}
        self.departures.begin(curves, {'a': 5, 'b': 10}, self.load.served())
        for _look in range(5):
            self.assertEqual([], self.look(a=0.9))
            self.assertEqual([], self.look(a=0.1))

    def test_chance_does_not(self):
        chance = random.Random(1)
        curve = conformance.curve([100] * 10)
        self.departures = departures.Departures(0.0)
        self.departures.begin({'a': curve}, {'a': 5}, self.load.served())
        ratio = curve.hits(5) / curve.references
        for _look in range(2000):
            self.load.references['a'] += 1000
            self.load.hits['a'] += sum(chance.random() < ratio
                                       for _reference in range(1000))
            self.assertEqual([], self.departures.look(self.load.served()))

    def test_few_references_do_not(self):
        for _look in range(5):
            self.load.references['a'] += 99
            self.load.serve(b=self.ratio)
            self.assertEqual([], self.departures.look(self.load.served()))

    def test_a_small_part_of_all_references_does_not(self):
        self.departures = departures.Departures(0.3)
        self.begin()
        for _look in range(5):
            # Half of its references miss, a quarter of all.
            self.assertEqual([], self.look(a=self.ratio - 0.5))

    def test_a_partition_that_fills_is_judged_by_hits_alone(self):
        self.load.full['a'] = False
        for _look in range(5):
            self.assertEqual([], self.look(a=0.1))
        self.load.full['a'] = True
        # It was not full when this look began.
        self.assertEqual([], self.look(a=0.1))
        self.assertEqual([], self.look(a=0.1))
        self.assertTrue(self.look(a=0.1))

    def test_a_volume_of_which_nothing_is_known(self):
        self.departures = departures.Departures(0.01)
        self.assertEqual([], self.look(a=0.5))
        self.assertEqual([], self.look(a=0.5, b=0.0))
        [reason] = self.look(a=0.5, b=0.0)
        self.assertIn('a: ', reason)
        self.assertIn('nothing was known of it', reason)

    def ends(self, count, **ratios):
        """Return after how many looks epochs end, if they do within 40."""
        found = []
        for _epoch in range(count):
            looks = 1
            while not self.look(**ratios) and looks < 40:
                looks += 1
            found.append(looks)
            self.begin()
        return found

    def test_early_ends_make_way_for_longer_epochs(self):
        self.assertEqual([2, 3, 5, 7], self.ends(4, a=0.5))
        self.assertEqual([11, 16, 23, 35], self.ends(4))
        # As long as others, and they may be as short as before after some.
        self.assertEqual([40] * 4, self.ends(4))
        self.assertEqual([2], self.ends(1, a=0.5))

    def test_epochs_grow_after_one_that_ended_early(self):
        self.assertEqual([2], self.ends(1, a=0.5))
        self.assertEqual([3, 5, 7, 11, 16, 23, 35, 40, 40], self.ends(9))

    def test_epochs_that_grow_say_so(self):
        self.ends(1, a=0.5)
        for _look in range(2):
            self.assertEqual([], self.look())
        self.assertEqual(['the epoch ended early, as one before had'],
                         self.look())

    def test_hits_that_always_differ_from_the_curve_are_learned(self):
        """Another eviction than LRU, or the error of a sample."""
        self.assertEqual([], self.look(a=0.7))
        self.assertTrue(self.look(a=0.7))
        served = self.load.served()
        self.departures.end({'a': CURVE, 'b': CURVE}, SIZES, served)
        self.begin()
        # No departure: it grows after the one that ended early.
        self.assertEqual([3, 5, 7, 11, 16], self.ends(5, a=0.7))

    def test_a_partition_that_fills_teaches_nothing(self):
        self.load.full['a'] = False
        self.begin()
        self.look(a=0.1)
        self.load.full['a'] = True
        self.departures.end({'a': CURVE}, SIZES, self.load.served())
        self.begin()
        self.look(a=0.1)
        self.assertTrue(self.look(a=0.1))

    def test_a_cache_that_was_started_again_is_judged_from_then_on(self):
        self.look()
        self.load.references['a'] = self.load.hits['a'] = 0
        self.assertEqual([], self.look(a=0.1))
        self.assertEqual([], self.look(a=0.1))
        self.assertTrue(self.look(a=0.1))

    def test_volumes_that_come_and_go(self):
        self.look()
        served = self.load.served()
        del served['b']
        self.assertEqual([], self.departures.look(served))
        self.assertEqual([], self.look())
        self.departures.end({'a': CURVE, 'gone': CURVE},
                            {**SIZES, 'gone': 1}, served)
        self.departures.begin({'a': CURVE, 'gone': CURVE}, SIZES, served)
        self.assertEqual([], self.departures.look(served))

    @given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1),
                              st.booleans()), max_size=60))
    def test_early_ends_are_few(self, course):
        """Whatever is served: an epoch that ends by hits is longer each time.

        Without one that is as long as others among them.
        """
        load, found = Load('a', 'b'), departures.Departures(0.01)
        curves = {'a': CURVE, 'b': CURVE}
        found.begin(curves, SIZES, load.served())
        shortest, looks = float(departures.LOOKS), 0
        for a, b, full in course:
            load.full['a'] = full
            load.serve(a=a, b=b)
            looks += 1
            reasons = found.look(load.served())
            if not reasons:
                continue
            if reasons != ['the epoch ended early, as one before had']:
                self.assertGreaterEqual(looks, shortest)
                shortest *= 1.5
            found.end(curves, SIZES, load.served())
            found.begin(curves, SIZES, load.served())
            looks = 0
