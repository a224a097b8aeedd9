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
"""What all policies share."""

from diffcache_openstack.ssdcache.sizing import base
from tests import base as test_base
from tests.unit.ssdcache.sizing import conformance

volume = conformance.volume


class BaseTest(test_base.TestCase):

    def refused(self, what, *volumes, capacity=10, step=1):
        error = self.assertRaises(base.SizingError, base.check, volumes,
                                  base.Cache(capacity, step))
        self.assertIn(what, str(error))

    def test_volumes_that_no_sizes_suit(self):
        self.refused('a: its least size, 3 blocks, exceeds its largest, 2'
                     ' blocks',
                     volume('a', 1, min=3, max=2))
        self.refused('a: its least size, 11 blocks, exceeds the cache, 10'
                     ' blocks', volume('a', 1, min=11))
        self.refused('a: no multiple of the step, 4 blocks, is between its'
                     ' least size, 5, and its largest, 7',
                     volume('a', 1, min=5, max=7), step=4)
        self.refused('the least sizes add up to 12 blocks',
                     volume('a', 1, min=6), volume('b', 1, min=6))
        for weight in (0.0, -1.0, float('nan'), float('inf')):
            self.refused('a: its weight', volume('a', 1, weight=weight))

    def test_volumes_that_fit(self):
        base.check([volume('a', 1, min=5), volume('b', 1, max=0)],
                   base.Cache(5))

    def test_unknown_policies(self):
        error = self.assertRaises(base.SizingError, base.load, 'best')
        self.assertIn('latency, pooled, priority', str(error))

    def test_curves_are_checked(self):
        native = conformance._native
        for values in ((1, 0, [(1, 2)]), (9, 1, [(2, 1), (2, 2)]),
                       (9, 1, [(1, 1), (2, 1)]), (9, 1, [(0, 1)]),
                       (2, 3, [(1, 1)])):
            self.assertRaises(ValueError, native.HitCurve, *values)
