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
"""Room that SSD caches have for working sets."""

from diffcache_openstack.ssdcache import room
from tests import base


class TestWorkingSet(base.TestCase):

    def test_where_the_curve_is_nearly_flat(self):
        self.assertEqual(20, room.working_set([10, 20, 500], [500, 950, 1000]))
        self.assertEqual(500, room.working_set([10, 20, 500],
                                               [500, 949, 1000]))

    def test_without_hits_there_is_none(self):
        self.assertEqual(0, room.working_set([], []))
        self.assertEqual(0, room.working_set([10], [0]))


class TestShare(base.TestCase):

    def test_all_fits(self):
        self.assertEqual(1.0, room.share(100, 60, 40))
        self.assertEqual(1.0, room.share(100, 0, 0))

    def test_all_are_cut_alike(self):
        self.assertEqual(0.5, room.share(100, 160, 40))
        self.assertEqual(0.25, room.share(10, 0, 40))

    def test_no_cache(self):
        self.assertEqual(0.0, room.share(0, 0, 40))
