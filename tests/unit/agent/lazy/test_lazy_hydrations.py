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
"""What is said of hydrations, and what changes of them come to."""

import time

from diffcache_openstack.agent.lazy import lazy_hydrations
from diffcache_openstack.agent.lazy import lazy_servers
from diffcache_openstack.common import exceptions
from tests import base
from tests.unit import arriving

OTHER = 'd' * 64


class HydrationsTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.host = arriving.Host(self.directory, arriving.status(),
                                  arriving.status(OTHER))
        self.daemon = self.host.daemon
        self.host.boot('s1')

    def change(self, generation, **settings):
        return self.host.hydrations.change('s1', generation, settings)

    def seconds_left(self, hydration):
        return hydration.deadline_at.timestamp() - time.time()


class TestReports(HydrationsTest):

    def test_how_far_it_is(self):
        found = self.host.only()
        self.assertEqual(
            ('s1', 't1', 'arriving', 8, 2, 6 * arriving.CHUNK, 'idle', False,
             None, 2.5e6, 0), tuple(getattr(found, name) for name in (
                 'server_id', 'image_id', 'state', 'chunks', 'present',
                 'remaining_bytes', 'mode', 'paused', 'deadline_at',
                 'measured_rate', 'generation')))
        self.assertAlmostEqual(30, found.expected_at.timestamp()
                               - time.time(), delta=5)
        [source] = found.sources
        self.assertEqual(('http://hub:8797', 2, 2 * arriving.CHUNK, 0), (
            source.url, source.requests, source.bytes, source.failures))

    def test_servers_of_one_image_share_it(self):
        self.host.boot('s2', project='p2')
        self.change(0, paused=True)
        self.assertEqual([('s1', True, 1), ('s2', True, 1)], [
            (each.server_id, each.paused, each.generation)
            for each in self.host.hydrations.collect()])

    def test_a_server_with_two_images_has_the_one_that_is_arriving(self):
        self.daemon.served[arriving.CONTENT]['complete'] = True
        self.host.boot('s1', OTHER, image_id='rescue')
        self.assertEqual(OTHER, self.host.only().content_id)
        self.daemon.served[arriving.CONTENT]['complete'] = False
        self.daemon.served[OTHER]['complete'] = True
        self.assertEqual(arriving.CONTENT, self.host.only().content_id)

    def test_a_keeper_that_does_not_answer(self):
        self.daemon.served[arriving.CONTENT] = {
            'content_id': arriving.CONTENT, 'error': 'refused'}
        self.assertEqual('unknown', self.host.only().state)
        self.assertRaises(exceptions.ServiceUnavailable, self.change, 0,
                          paused=True)

    def test_a_rate_at_which_it_never_becomes_whole(self):
        self.daemon.served[arriving.CONTENT]['hydration'][
            'earliest_s'] = 1e300
        self.assertIsNone(self.host.only().expected_at)

    def test_a_daemon_that_does_not_answer(self):
        self.daemon.error = exceptions.ServiceUnavailable('down')
        self.assertRaises(exceptions.ServiceUnavailable,
                          self.host.hydrations.collect)


class TestChanges(HydrationsTest):

    def test_a_deadline(self):
        found = self.change(0, deadline=60)
        self.assertEqual(('deadline', True, 1),
                         (found.mode, found.kept, found.generation))
        self.assertAlmostEqual(60, self.seconds_left(found), delta=5)
        [changed] = self.daemon.changes
        self.assertEqual(['hydrate'], list(changed))
        found = self.change(1, deadline=None)
        self.assertEqual(('idle', None), (found.mode, found.deadline_at))
        self.assertEqual({'hydrate': 'idle'}, self.daemon.changes[-1])

    def test_the_same_deadline_again_is_sent_again(self):
        """diffcached counts it from when it comes."""
        for generation in range(2):
            self.change(generation, deadline=60)
        self.assertEqual(2, len(self.daemon.changes))
        for changed in self.daemon.changes:
            self.assertAlmostEqual(60, changed['hydrate']['seconds'], delta=5)

    def test_a_rate(self):
        self.assertEqual(5000, self.change(0, rate=5000).rate)
        self.assertIsNone(self.change(1, rate=None).rate)
        self.assertEqual([{'rate': 5000}, {'rate': None}],
                         self.daemon.changes)

    def test_a_rate_and_a_pause_at_once(self):
        """Regression: it was not hydrated again when the pause was over."""
        found = self.change(0, rate=5000, paused=True)
        self.assertEqual((True, 5000), (found.paused, found.rate))
        found = self.change(1, paused=False)
        self.assertEqual((False, 'idle', 5000),
                         (found.paused, found.mode, found.rate))

    def test_a_pause_keeps_the_deadline(self):
        self.change(0, deadline=60, rate=9)
        found = self.change(1, paused=True)
        self.assertEqual((True, 'deadline', 9),
                         (found.paused, found.mode, found.rate))
        self.assertAlmostEqual(60, self.seconds_left(found), delta=5)
        self.assertEqual({'hydrate': 'none'}, self.daemon.changes[-1])
        self.host.restart()
        found = self.change(2, paused=False)
        self.assertEqual((False, 'deadline'), (found.paused, found.mode))
        self.assertAlmostEqual(60, self.seconds_left(found), delta=5)

    def test_a_pause_of_an_idle_one(self):
        self.change(0, paused=True)
        self.assertEqual('idle', self.host.only().mode)
        self.change(1, paused=False)
        self.assertEqual([{'hydrate': 'none'}, {'hydrate': 'idle'}],
                         self.daemon.changes)

    def test_a_deadline_that_passes_during_a_pause(self):
        self.change(0, deadline=0.001)
        self.change(1, paused=True)
        self.change(2, paused=False)
        self.assertEqual({'hydrate': {'seconds': 1.0}},
                         self.daemon.changes[-1])

    def test_a_deadline_that_is_set_during_a_pause(self):
        self.change(0, paused=True)
        found = self.change(1, deadline=60)
        self.assertEqual((True, 'deadline'), (found.paused, found.mode))
        self.assertEqual({'hydrate': 'none'}, self.daemon.changes[-1])
        self.assertEqual('deadline', self.change(2, paused=False).mode)

    def test_what_is_so_already_changes_nothing(self):
        self.change(0, paused=False)
        self.assertEqual([], self.daemon.changes)

    def test_a_generation_that_is_old(self):
        self.change(0, rate=5)
        self.assertRaises(exceptions.Busy, self.change, 0, rate=6)
        self.assertEqual(5, self.host.only().rate)

    def test_a_change_that_fails(self):
        self.change(0, deadline=60)

        def refuse(content_id, changed):
            raise exceptions.InvalidInput('too much')

        change, self.daemon.change = self.daemon.change, refuse
        self.assertRaises(exceptions.InvalidInput, self.change, 1,
                          paused=True)
        self.daemon.change = change
        found = self.host.only()
        self.assertEqual((False, 'deadline', 1),
                         (found.paused, found.mode, found.generation))

    def test_what_cannot_be_changed(self):
        self.daemon.served[arriving.CONTENT]['complete'] = True
        self.assertRaises(exceptions.Conflict, self.change, 0, paused=True)
        self.assertRaises(exceptions.NotFound, self.host.hydrations.change,
                          's9', 0, {})

    def test_an_image_that_is_served_anew_is_not_paused(self):
        self.change(0, paused=True)
        self.daemon.served[arriving.CONTENT] = arriving.status()
        self.assertFalse(self.host.only().paused)
        del self.daemon.served[arriving.CONTENT]
        self.assertEqual([], self.host.hydrations.collect())
        self.daemon.served[arriving.CONTENT] = arriving.status()
        self.assertEqual(0, self.host.only().generation)


class TestWishes(HydrationsTest):

    def wish(self, server_id, seconds=None, rate=None):
        self.host.hydrations.wish(arriving.CONTENT, server_id,
                                  lazy_servers.Wish(seconds, rate))
        return self.host.hydrations.collect()[0]

    def test_the_first_server_decides(self):
        found = self.wish('s1', 60, 5000)
        self.assertEqual(('deadline', 5000), (found.mode, found.rate))
        self.assertAlmostEqual(60, self.seconds_left(found), delta=5)

    def test_of_others_the_earliest_deadline_and_the_highest_rate(self):
        self.wish('s1', 60, 5000)
        self.host.boot('s2')
        for seconds, rate, left, at_most in (
                (90, 4000, 60, 5000), (30, None, 30, 5000),
                (None, 6000, 30, 6000)):
            found = self.wish('s2', seconds, rate)
            self.assertEqual(at_most, found.rate)
            self.assertAlmostEqual(left, self.seconds_left(found), delta=5)

    def test_another_does_not_limit_the_first(self):
        self.host.boot('s2')
        self.assertIsNone(self.wish('s2', rate=5).rate)
        self.assertEqual([], self.daemon.changes)

    def test_no_wish_exceeds_the_rate_of_the_host(self):
        # Regression: a server's metadata took an image beyond it.
        self.host.restart(rate=1000)
        self.assertEqual(1000, self.wish('s1', rate=5000).rate)
        self.assertEqual(10, self.wish('s1', rate=10).rate)

    def test_a_server_without_a_wish_has_the_rate_of_the_host(self):
        # Regression: the first server's metadata kept it from its image.
        self.assertEqual(1, self.wish('s1', rate=1).rate)
        self.host.boot('s2')
        self.assertIsNone(self.wish('s2').rate)
        self.host.restart(rate=1000)
        self.assertEqual(1000, self.wish('s2').rate)

    def leave(self, server_id):
        self.host.hydrations.remove_server(
            server_id, self.host.servers.remove(server_id))
        return self.host.hydrations.collect()[0]

    def test_the_rate_is_that_of_the_servers_that_are_left(self):
        self.wish('s1', rate=5)
        self.host.boot('s2')
        self.assertEqual(9, self.wish('s2', rate=9).rate)
        self.assertEqual(5, self.leave('s2').rate)
        self.host.boot('s2')
        self.assertIsNone(self.wish('s2').rate)
        self.assertEqual(5, self.leave('s2').rate)

    def test_a_rate_that_was_set_is_that_of_all_servers(self):
        self.host.boot('s2')
        self.change(0, rate=7)
        self.assertEqual(7, self.leave('s2').rate)

    def test_a_server_leaves_while_diffcached_is_down(self):
        self.host.boot('s2')
        self.daemon.error = exceptions.ServiceUnavailable('down')
        with self.assertLogs(lazy_hydrations.LOG, 'WARNING'):
            self.host.hydrations.remove_server(
                's2', self.host.servers.remove('s2'))

    def test_a_pause_stays(self):
        self.change(0, paused=True)
        found = self.wish('s1', 60)
        self.assertEqual((True, 'deadline'), (found.paused, found.mode))

    def test_of_a_whole_image_nothing_is_asked(self):
        self.daemon.served[arriving.CONTENT]['complete'] = True
        self.wish('s1', 60)
        self.assertEqual([], self.daemon.changes)
