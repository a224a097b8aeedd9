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
from diffcache_openstack.agent.data_plane import orders
from diffcache_openstack.agent.images.limits import throttles
from diffcache_openstack.common import exceptions
from tests import base
from tests.unit.agent import fakes


class ThrottleTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.open = True
        self.seen = []
        self.handle = fakes.Handle()
        self.request = throttles.Throttle(fakes.Handle())
        self.fill = throttles.FillThrottle(self.handle, 1000,
                                           lambda: self.open)
        for limits in (self.request, self.fill):
            limits.progress = lambda *seen: self.seen.append(seen)

    def test_classes(self):
        self.assertEqual((orders.JobClass.REQUEST, None, False), (
            self.request.job_class, self.request.rate,
            self.request.can_wait))
        self.assertEqual((orders.JobClass.FILL, 1000, True), (
            self.fill.job_class, self.fill.rate, self.fill.can_wait))

    def test_progress_is_reported_once_the_size_is_known(self):
        self.request.note(0, 0, True)
        self.request.note(3, 7, False)
        self.assertEqual([(3, 7)], self.seen)

    def test_a_request_ends_once_its_client_has_gone(self):
        self.request.abandoned = lambda: self.seen
        self.request.note(3, 7, False)
        self.assertRaises(exceptions.Cancelled, self.request.note, 4, 7,
                          False)

    def test_closed_windows_bind_the_wan_only(self):
        self.open = False
        self.fill.note(3, 7, False)
        error = self.assertRaises(exceptions.Cancelled, self.fill.note, 0, 0,
                                  True)
        self.assertIn('window', str(error))
        self.assertEqual([(3, 7)], self.seen)

    def test_promoted_it_keeps_neither_to_the_rate_nor_to_windows(self):
        self.fill.promote()
        self.open = False
        self.fill.note(3, 7, True)
        self.assertTrue(self.handle.promoted.is_set())
        self.assertTrue(self.fill.promoted)
        self.assertEqual((None, False), (self.fill.rate, self.fill.can_wait))

    def test_stopped_it_ends_what_its_handle_was_given_to(self):
        self.fill.stop()
        self.assertTrue(self.handle.cancelled.is_set())

    def test_a_request_is_promoted_already(self):
        self.request.promote()
        self.assertIsNone(self.request.rate)
