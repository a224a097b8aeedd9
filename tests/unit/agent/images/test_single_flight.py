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
import threading

from diffcache_openstack.agent.images import single_flight
from diffcache_openstack.common import exceptions
from diffcache_openstack.sites import view
from tests import base

KEY = view.Key(view.TEMPLATES, 'a' * 64)


class FlightsTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.flights = single_flight.Flights()

    def join(self):
        return self.flights.join(KEY, lambda: None)

    def test_one_makes_it_and_the_others_follow(self):
        flight, mine = self.join()
        self.assertTrue(mine)
        results = []

        def follow():
            joined, leads = self.join()
            self.flights.follow(joined)
            results.append((leads, joined.outcome))

        threads = [threading.Thread(target=follow) for _ in range(15)]
        for thread in threads:
            thread.start()
        self.flights.landed(flight, self.directory / 'x', 'made')
        for thread in threads:
            thread.join()
        self.assertEqual([(False, 'made')] * 15, results)

    def test_the_last_one_out_owns_the_file(self):
        flight, _ = self.join()
        self.join()
        self.assertFalse(self.flights.alone(flight))
        self.assertFalse(self.flights.leave(flight))
        self.assertTrue(self.flights.leave(flight))
        again, mine = self.join()
        self.assertTrue(mine)
        self.assertIsNot(flight, again)

    def test_nobody_joins_one_who_is_alone(self):
        flight, _ = self.join()
        self.flights.landed(flight, self.directory / 'x', None)
        self.assertTrue(self.flights.alone(flight))
        self.assertTrue(self.join()[1])
        self.assertTrue(self.flights.leave(flight))

    def test_failure_reaches_everybody_and_is_not_kept(self):
        flight, _ = self.join()
        self.join()
        self.flights.failed(flight, exceptions.NotFound('gone'))
        self.assertRaises(exceptions.NotFound, self.flights.follow, flight)
        self.assertTrue(self.join()[1])

    def test_two_that_need_each_other_do_not_wait_for_ever(self):
        other_key = view.Key(view.TEMPLATES, 'b' * 64)
        mine, _ = self.join()
        leads = threading.Event()
        results = []

        def lead_the_other():
            flight, _ = self.flights.join(other_key, lambda: None)
            joined, _ = self.join()
            leads.set()
            self.flights.follow(joined)
            self.flights.landed(flight, self.directory / 'y', 'made')
            results.append(joined.outcome)

        thread = threading.Thread(target=lead_the_other)
        thread.start()
        leads.wait()
        joined, leader = self.flights.join(other_key, lambda: None)
        self.assertFalse(leader)
        while not self.flights._waiting:
            leads.wait(0.01)
        self.assertRaises(exceptions.Busy, self.flights.follow, joined)
        self.flights.landed(mine, self.directory / 'x', 'mine')
        thread.join()
        self.assertEqual(['mine'], results)
        self.assertTrue(self.flights.leave(joined))

    def test_cancelled_means_start_anew(self):
        flight, _ = self.join()
        self.join()
        self.flights.failed(flight, exceptions.Cancelled('stopped'))
        self.assertFalse(self.flights.follow(flight))
