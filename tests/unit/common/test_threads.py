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
"""Threads that work in rounds, and their ends when a service stops."""

import logging
import threading

import fixtures

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import threads
from tests import base


SECONDS = 30


class TestKeyedLocks(base.TestCase):

    def test_keys_do_not_wait_for_each_other(self):
        locks = threads.KeyedLocks()
        order = []
        entered = threading.Event()

        def follow():
            entered.set()
            with locks.of('a'):
                order.append('follower')

        thread = threading.Thread(target=follow, daemon=True)
        with locks.of('a'):
            thread.start()
            self.assertTrue(entered.wait(SECONDS))
            with locks.of('b'):
                order.append('other')
            order.append('first')
        thread.join(SECONDS)
        self.assertEqual(['other', 'first', 'follower'], order)

    def test_an_attempt_does_not_wait(self):
        locks = threads.KeyedLocks()
        with locks.attempt('a') as is_held:
            self.assertTrue(is_held)
            with locks.attempt('a') as again, locks.attempt('b') as other:
                self.assertEqual((False, True), (again, other))
        self.assertEqual({}, locks._held)

    def test_none_is_left(self):
        locks = threads.KeyedLocks()

        def fail():
            with locks.of('a'):
                raise KeyError('x')

        self.assertRaises(KeyError, fail)
        self.assertEqual({}, locks._held)


class TestRounds(base.TestCase):

    def rounds(self, work, interval):
        found = threads.Rounds('rounds', work, interval, 'Could not work',
                               exceptions.ServiceUnavailable)
        self.addCleanup(found.stop)
        return found

    def test_errors_end_no_thread(self):
        errors = [exceptions.ServiceUnavailable('down'), ValueError('odd')]
        done = threading.Event()

        def work():
            if errors:
                raise errors.pop()
            done.set()

        log = self.useFixture(fixtures.FakeLogger(level=logging.INFO))
        self.rounds(work, 0.01).start()
        self.assertTrue(done.wait(SECONDS))
        self.assertIn('Could not work, will retry in 0.01 s', log.output)
        self.assertIn('odd', log.output)
        self.assertNotIn('down', log.output)

    def test_what_wakes_it_in_a_round_starts_another(self):
        entered, going = threading.Semaphore(0), threading.Semaphore(0)

        def work():
            entered.release()
            going.acquire(timeout=SECONDS)

        rounds = self.rounds(work, 3600.0)
        rounds.start()
        self.assertTrue(entered.acquire(timeout=SECONDS))
        rounds.wake()
        going.release()
        self.assertTrue(entered.acquire(timeout=SECONDS))
        going.release()

    def test_a_stop_in_a_round_ends_the_thread(self):
        rounds = self.rounds(lambda: rounds._stopped.set() or rounds.wake(),
                             3600.0)
        rounds.start()
        rounds.stop()
        self.assertFalse(rounds._thread.is_alive())

    def test_one_that_was_never_started_stops(self):
        self.rounds(self.fail, 3600.0).stop()


class TestEnd(base.TestCase):

    def test_what_a_broker_holds_is_cut_off(self):
        answer = threading.Event()
        self.addCleanup(answer.set)
        self.patch(threads, 'STOP_SECONDS', 0.01)
        log = self.useFixture(fixtures.FakeLogger())
        self.assertFalse(threads.end('listener-stop', answer.wait))
        self.assertIn('listener-stop', log.output)

    def test_what_ends_in_time(self):
        done = threading.Event()
        self.assertTrue(threads.end('listener-stop', done.set))
        self.assertTrue(done.is_set())


class TestJoin(base.TestCase):

    def test_a_thread_that_waits_for_another_host_is_cut_off(self):
        answer = threading.Event()
        self.addCleanup(answer.set)
        thread = threading.Thread(target=answer.wait, daemon=True,
                                  name='waits-for-a-host')
        thread.start()
        log = self.useFixture(fixtures.FakeLogger())
        self.patch(threads, 'STOP_SECONDS', 0.01)
        self.assertFalse(threads.join(thread))
        self.assertIn('waits-for-a-host', log.output)
        answer.set()
        thread.join()
        self.assertTrue(threads.join(thread))


class TestCall(base.TestCase):

    def test_result_and_error(self):
        going = threading.Event()
        self.assertEqual(3, threads.call(lambda: 3, going))
        self.assertRaises(ZeroDivisionError, threads.call, lambda: 1 // 0,
                          going)

    def test_a_stop_ends_the_wait(self):
        answer, stopping = threading.Event(), threading.Event()
        self.addCleanup(answer.set)

        def work():
            stopping.set()
            answer.wait()

        self.assertRaises(exceptions.Interrupted, threads.call, work,
                          stopping)
        self.assertFalse(answer.is_set())

    def test_nothing_is_called_after_a_stop(self):
        stopping, called = threading.Event(), threading.Event()
        stopping.set()
        self.assertRaises(exceptions.Interrupted, threads.call, called.set,
                          stopping)
        self.assertFalse(called.is_set())
