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
from diffcache_openstack.agent.images import contents
from diffcache_openstack.agent.images.limits import pulses
from tests import base


class PulseTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.pulse = pulses.Pulse()
        self.watch = contents.Watch()
        self.watch.pulse = self.pulse

    def shown(self, count=3):
        return [self.watch.shows_life() for _ in range(count)]

    def test_local_work_is_alive(self):
        self.assertEqual([True] * 3, self.shown())

    def test_a_transfer_is_alive_while_bytes_come(self):
        with self.pulse.transferring():
            self.pulse.note(0, 0)
            self.assertEqual([True, False, False], self.shown())
            self.pulse.note(0, 0)
            self.assertEqual([False], self.shown(1))
            for done in range(1, 4):
                self.pulse.note(done, 10)
                self.assertEqual([True, False], self.shown(2))
        self.assertEqual([True] * 3, self.shown())

    def test_who_follows_is_as_alive_as_the_leader(self):
        leader = pulses.Pulse()
        with self.pulse.following(leader):
            self.assertEqual([True] * 3, self.shown())
            with leader.transferring():
                self.shown(1)
                self.assertEqual([False] * 2, self.shown(2))
                leader.note(1, 10)
                self.assertEqual([True, False], self.shown(2))
        self.assertEqual([True] * 3, self.shown())
