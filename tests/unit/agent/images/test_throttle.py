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

from diffcache_openstack.agent.images import throttle
from diffcache_openstack.common import exceptions
from tests import base
from tests.unit.agent import fakes


class PaceTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.gate = throttle.WanGate()
        self.open = True
        self.request = throttle.Pace(self.gate, fakes.Token)
        self.fill = throttle.BackgroundPace(self.gate, fakes.Token, 1000,
                                            lambda: self.open)

    def test_a_request_takes_the_fill_off_the_wan(self):
        with self.fill.transfer(True) as token:
            with self.request.transfer(True):
                self.assertTrue(token.cancelled.is_set())
        self.assertTrue(self.fill.may_retry())

    def test_a_fill_between_hosts_goes_on(self):
        with self.fill.transfer(False) as token:
            with self.request.transfer(True):
                self.assertFalse(token.cancelled.is_set())

    def test_a_request_between_hosts_pauses_nothing(self):
        with self.fill.transfer(True) as token:
            with self.request.transfer(False):
                self.assertFalse(token.cancelled.is_set())

    def test_the_fill_waits_until_the_request_is_through(self):
        began = threading.Event()

        def fill():
            with self.fill.transfer(True):
                began.set()

        with self.request.transfer(True):
            thread = threading.Thread(target=fill)
            thread.start()
            self.assertFalse(began.wait(0.05))
        thread.join()
        self.assertTrue(began.is_set())

    def test_promoted_it_neither_waits_nor_keeps_to_the_rate(self):
        with self.fill.transfer(True) as token:
            self.fill.promote()
            self.assertTrue(token.cancelled.is_set())
        self.open = False
        with self.request.transfer(True):
            with self.fill.transfer(True) as token:
                self.assertIsNone(self.fill.rate)
                self.fill.check()
                self.assertFalse(token.cancelled.is_set())

    def test_closed_windows_bind_the_wan_only(self):
        self.open = False
        with self.fill.transfer(False):
            self.fill.check()
        self.assertTrue(self.fill.may_retry())
        with self.assertRaisesRegex(exceptions.Cancelled, 'stopped'):
            with self.fill.transfer(True):
                self.fail('began')

    def test_a_window_that_closes_ends_the_transfer(self):
        with self.fill.transfer(True) as token:
            self.open = False
            self.fill.check()
            self.assertTrue(token.cancelled.is_set())
        self.assertFalse(self.fill.may_retry())
