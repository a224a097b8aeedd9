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
"""Two hosts' writers, between which a conductor decides over a bus."""

import threading

from diffcache_openstack.agent.versions import arbiters
from diffcache_openstack.common import exceptions
from diffcache_openstack.rpc import conductor_versions_api
from diffcache_openstack.versions.store.commits import arbitration
from diffcache_openstack.versions.store.commits import reservations
from tests.unit.api.handlers import test_versions

PLACE = 'a' * 16


class TestArbiters(test_versions.VersionsTest):

    def setUp(self):
        super().setUp()
        self.stopping = threading.Event()

    def arbiter(self, host, task, place=PLACE):
        return arbiters.ConductorArbiter(
            conductor_versions_api.VersionsAPI(self.bus, self.conf), host,
            task.id, place, self.stopping)

    def test_the_conductor_decides(self):
        self.create()
        task = self.host.next()
        one, other = (self.arbiter('h1', task) for _ in range(2))
        self.assertIsNone(one.read())
        first, second, lost = (
            arbitration.Position(number, letter * 64)
            for number, letter in ((1, 'a'), (2, 'b'), (2, 'c')))
        one.move(None, first)
        self.assertEqual(first, other.read())
        for _attempt in range(2):
            other.move(first, second)
        self.assertRaises(exceptions.Busy, one.move, first, lost)
        self.assertEqual(second, one.read())
        self.assertIsNone(self.arbiter('h1', task, 'b' * 16).read())
        least, count = (reservations.Numbers(1, 1, 1),
                        reservations.Numbers(7, 1, 1))
        self.assertEqual(least, one.take_numbers(least, count))
        self.assertEqual(reservations.Numbers(8, 2, 2),
                         other.take_numbers(least, count))

    def test_hosts_without_the_task_move_nothing(self):
        self.create()
        task = self.host.next()
        arbiter = self.arbiter('h2', task)
        self.assertRaises(exceptions.Forbidden, arbiter.read)
        self.assertRaises(exceptions.Forbidden, arbiter.take_numbers,
                          reservations.Numbers(1, 1, 1),
                          reservations.Numbers(1, 1, 1))
        self.assertRaises(exceptions.Forbidden, arbiter.move, None,
                          arbitration.Position(1, 'a' * 64))

    def test_a_stop_ends_the_wait_for_the_conductor(self):
        self.stopping.set()
        self.create()
        arbiter = self.arbiter('h1', self.host.next())
        self.assertRaises(exceptions.Interrupted, arbiter.read)
        self.assertRaises(exceptions.Interrupted, arbiter.move, None,
                          arbitration.Position(1, 'a' * 64))
