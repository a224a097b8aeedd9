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
from diffcache_openstack import _native
from diffcache_openstack.agent.ssdcache import latencies
from diffcache_openstack.ssdcache import engines
from tests import base

CURVE = _native.HitCurve(0, 0, [])


class TestLatencies(base.TestCase):

    def setUp(self):
        super().setUp()
        self.found = latencies.Latencies()

    def update(self, count=100, **means):
        return self.found.update({
            name: engines.Epoch(1.0, CURVE, 1.0,
                                engines.Requests(count, hit),
                                engines.Requests(count, miss))
            for name, (hit, miss) in means.items()})

    def test_clear_differences(self):
        self.assertEqual({'a': (100.0, 20000.0), 'b': (100.0, 600.0)},
                         self.update(a=(100.0, 20000.0), b=(100.0, 600.0)))

    def test_volumes_that_differ_by_chance_are_the_same(self):
        self.assertEqual({'a': (100.0, 1000.0), 'b': (100.0, 1000.0)},
                         self.update(a=(90.0, 900.0), b=(110.0, 1100.0)))

    def test_misses_that_take_as_long_as_hits(self):
        self.assertEqual({}, self.update(a=(90.0, 50.0), b=(90.0, 150.0)))
        self.assertEqual({}, self.found.update({}))

    def test_few_requests_say_nothing(self):
        self.assertEqual({}, self.update(49, a=(1.0, 100.0)))
        self.update(a=(100.0, 1000.0))
        self.assertEqual({'a': (100.0, 1000.0)},
                         self.update(49, a=(1.0, 9.0)))
        self.assertEqual({'b': (10.0, 1000.0)},
                         self.update(b=(10.0, 1000.0)))

    def test_a_volume_that_is_faster_with_misses_has_what_others_have(self):
        found = self.update(a=(200.0, 100.0), b=(100.0, 9900.0))
        self.assertEqual((150.0, 5000.0), found['a'])

    def test_one_epoch_counts_for_a_part(self):
        self.update(a=(100.0, 1000.0))
        self.assertEqual({'a': (130.0, 1300.0)},
                         self.update(a=(200.0, 2000.0)))
