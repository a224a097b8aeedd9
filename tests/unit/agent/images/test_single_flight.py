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

from diffcache_openstack.agent.images.limits import throttles
from diffcache_openstack.agent.images import single_flight
from diffcache_openstack.common import exceptions
from diffcache_openstack.sites import views
from tests import base
from tests.unit.agent import fakes

KEY = views.Key(views.IMAGES, 'a' * 64)
OTHER = views.Key(views.IMAGES, 'b' * 64)
SECONDS = 60


class SingleFlightTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.staging = self.directory / 'staging'
        self.staging.mkdir()
        self.flights = single_flight.SingleFlight(self.staging)
        self.release = threading.Event()
        self.addCleanup(self.release.set)
        self.results: list = []

    def throttle(self):
        return throttles.Throttle(fakes.Handle())

    def background(self):
        return throttles.FillThrottle(fakes.Handle(), 5.0, lambda: True)

    def share(self, work, throttle=None, key=KEY):
        return self.flights.share(key, throttle or self.throttle(), work)

    def held_up(self, outcome, path=None, error=None):
        """Work that ends once the test releases it."""
        def work(_member):
            self.release.wait(SECONDS)
            if error is not None:
                raise error
            return path, outcome

        return work

    def member(self, work, throttle=None, key=KEY):
        """Join a flight in a thread; note its result."""
        def run():
            try:
                with self.share(work, throttle, key) as member:
                    self.results.append((member.leads, member.outcome))
            except exceptions.DiffCacheError as error:
                self.results.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self.addCleanup(thread.join, SECONDS)
        return thread

    def until_members(self, count, key=KEY):
        pause = threading.Event()
        for _ in range(6000):
            flight = self.flights._flights.get(key)
            if flight is not None and flight.members == count:
                return
            pause.wait(0.01)
        self.fail(f'{key} never had {count} members')

    def until_waiting(self, count):
        pause = threading.Event()
        for _ in range(6000):
            if len(self.flights._waiting) == count:
                return
            pause.wait(0.01)
        self.fail(f'{count} callers never waited')

    def end(self, *threads):
        self.release.set()
        for thread in threads:
            thread.join(SECONDS)

    def test_one_leads_and_the_others_follow(self):
        threads = [self.member(self.held_up(number)) for number in range(16)]
        self.until_members(16)
        self.end(*threads)
        self.assertEqual(1, len({outcome for _, outcome in self.results}))
        self.assertEqual(1, sum(leads for leads, _ in self.results))
        self.assertEqual(16, len(self.results))

    def test_a_later_caller_leads_another_flight(self):
        for outcome in ('first', 'second'):
            with self.share(lambda _, found=outcome: (None, found)) as member:
                self.assertEqual((True, outcome),
                                 (member.leads, member.outcome))

    def test_the_last_member_removes_a_staged_file(self):
        path = self.staging / 'x'

        def work(_member):
            path.write_bytes(b'content')
            return path, None

        with self.share(work) as leader:
            with self.share(self.fail) as follower:
                self.assertEqual(path, follower.path)
                self.assertFalse(follower.leads)
                self.assertTrue(leader.is_shared())
            self.assertFalse(leader.is_shared())
            self.assertTrue(path.exists())
        self.assertFalse(path.exists())

    def test_a_file_elsewhere_stays(self):
        path = self.write_file('held', b'content')
        with self.share(lambda _member: (path, None)):
            pass
        self.assertTrue(path.exists())

    def test_an_error_in_the_block_removes_the_file_too(self):
        path = self.staging / 'x'
        path.write_bytes(b'content')
        with self.assertRaises(ZeroDivisionError):
            with self.share(lambda _member: (path, None)):
                raise ZeroDivisionError
        self.assertFalse(path.exists())
        self.assertFalse(self.flights._flights)

    def test_the_file_is_taken_by_the_only_member(self):
        with self.share(lambda _member: (self.staging / 'x', None)) as one:
            with self.share(self.fail) as other:
                self.assertFalse(other.take())
            self.assertTrue(one.take())
            with self.share(lambda _member: (None, 'new')) as later:
                self.assertTrue(later.leads)

    def test_without_a_file(self):
        with self.share(lambda _member: (None, 1)) as member:
            error = self.assertRaises(RuntimeError, getattr, member, 'path')
        self.assertIn(KEY.id, str(error))

    def test_under_way_until_it_has_landed(self):
        self.assertFalse(self.flights.is_under_way(KEY))
        with self.share(lambda _member: (None, self.flights.is_under_way(
                KEY))) as member:
            self.assertTrue(member.outcome)
            self.assertFalse(self.flights.is_under_way(KEY))

    def test_failure_reaches_all_and_is_not_kept(self):
        failing = self.held_up(None, error=exceptions.NotFound('gone'))
        threads = [self.member(failing) for _ in range(3)]
        self.until_members(3)
        self.end(*threads)
        self.assertEqual([exceptions.NotFound] * 3,
                         [type(result) for result in self.results])
        with self.share(lambda _member: (None, 'again')) as member:
            self.assertEqual('again', member.outcome)

    def test_followers_start_over_after_a_cancelled_leader(self):
        first = self.member(self.held_up(
            None, error=exceptions.Cancelled('the client has gone')))
        self.until_members(1)
        second = self.member(lambda _member: (None, 'again'))
        self.until_members(2)
        self.end(first, second)
        self.assertEqual({exceptions.Cancelled, tuple},
                         {type(result) for result in self.results})
        self.assertIn((True, 'again'), self.results)

    def test_a_leader_denied_sources_does_not_fail_others(self):
        limited = self.throttle()
        limited.excluded = frozenset(['repo'])
        first = self.member(self.held_up(
            None, error=exceptions.ObjectMissing('not at the site')), limited)
        self.until_members(1)
        second = self.member(lambda _member: (None, 'from the repository'))
        self.until_members(2)
        self.end(first, second)
        self.assertIn((True, 'from the repository'), self.results)
        self.assertIn(exceptions.ObjectMissing,
                      [type(result) for result in self.results])

    def test_a_request_promotes_a_fill(self):
        filling = self.background()
        threads = [self.member(self.held_up('x'), filling)]
        self.until_members(1)
        threads.append(self.member(self.fail))
        self.until_waiting(1)
        self.assertTrue(filling.promoted)
        self.end(*threads)

    def test_a_fill_promotes_no_fill(self):
        filling = self.background()
        threads = [self.member(self.held_up('x'), filling)]
        self.until_members(1)
        threads.append(self.member(self.fail, self.background()))
        self.until_waiting(1)
        self.assertFalse(filling.promoted)
        self.end(*threads)

    def test_two_that_need_each_other_do_not_wait_for_ever(self):
        def lead_the_other(_member):
            with self.share(self.fail) as joined:
                return None, joined.outcome

        def lead(_member):
            thread = self.member(lead_the_other, key=OTHER)
            self.until_waiting(1)
            self.assertRaises(exceptions.Busy, self.follow, OTHER)
            return None, (thread, 'mine')

        with self.share(lead) as member:
            member.outcome[0].join(SECONDS)
            self.assertEqual([(True, member.outcome)], self.results)

    def test_a_follower_that_is_not_awake_yet_waits_for_nobody(self):
        """A leader whose own wait has just ended may be followed."""
        main, go = threading.get_ident(), threading.Event()
        self.addCleanup(go.set)
        wait = single_flight.Flight.wait

        def wait_and_sleep_in(flight):
            if threading.get_ident() == main:
                go.set()
            wait(flight)
            go.wait(SECONDS)

        def lead(_member):
            with self.share(self.fail, key=OTHER) as joined:
                return None, joined.outcome

        def lead_the_other(_member):
            self.member(lead)
            self.until_waiting(1)
            return None, 'made'

        self.patch(single_flight.Flight, 'wait', wait_and_sleep_in)
        with self.share(lead_the_other, key=OTHER):
            with self.share(self.fail) as followed:
                self.assertEqual((False, 'made'),
                                 (followed.leads, followed.outcome))

    def follow(self, key):
        with self.share(self.fail, key=key):
            self.fail('it followed')
