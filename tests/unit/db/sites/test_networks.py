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
"""What hosts report of their links."""

from diffcache_openstack.common import exceptions
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack.db.sites import networks
from diffcache_openstack import objects
from tests.unit.db import database


def standing(name, **values):
    """A repository as a host sees it."""
    return objects.RepositoryStanding(name=name, **values)


class TestNetworks(database.DatabaseTest):

    def setUp(self):
        super().setUp()
        for host in (database.host('h1'), database.host('h2'),
                     database.host('o1', site='other')):
            self.write(host_rows.put_host, host, database.at(0))

    def put(self, host, **values):
        return self.write(networks.put, host, objects.HostNetwork(**values))

    def test_kept_as_reported(self):
        dead = standing('a', answers=False, since=database.at(5),
                        reason='no answer', failures=1)
        first = {'fill_rate': 1000, 'fill_windows': ['mon 22:00-06:00'],
                 'peer_mbps': 900.5, 'repositories': [
                     dead, standing('b', mbps=20.25, transfers=3,
                                    bytes=10 ** 12)]}
        self.put('h1', **first)
        self.put('o1')
        self.assertEqual({'h1': objects.HostNetwork(**first)},
                         self.read(networks.of_site, database.SITE))
        self.assertEqual({'h1': dead}, self.read(networks.clients_of, 'a'))
        self.put('h1')
        self.assertEqual(objects.HostNetwork(),
                         self.read(networks.of_host, 'h1'))
        self.assertIsNone(self.read(networks.of_host, 'h2'))

    def test_rates_that_are_others_than_before(self):
        self.assertTrue(self.put('h1', peer_mbps=1.0))
        self.assertFalse(self.put('h1', peer_mbps=1.0, fill_rate=5))
        self.assertTrue(self.put('h1', peer_mbps=1.0, repositories=[
            standing('a', mbps=3.0)]))
        self.assertFalse(self.put('h1', peer_mbps=1.0, repositories=[
            standing('a', mbps=3.0, transfers=7)]))
        self.assertTrue(self.put('h1', peer_mbps=1.0, repositories=[
            standing('a', mbps=4.0)]))

    def test_one_repository_twice_is_kept_once(self):
        self.put('h1', repositories=[standing('a', mbps=1.0),
                                     standing('a', mbps=2.0)])
        self.assertEqual([standing('a', mbps=2.0)],
                         self.read(networks.of_host, 'h1').repositories)

    def test_refused(self):
        self.assertRaises(exceptions.NotFound, self.put, 'h9')
        self.assertRaises(exceptions.InvalidInput, self.put, 'h1',
                          fill_windows=['at night'])
        self.assertIsNone(self.read(networks.of_host, 'h1'))

    def test_they_go_with_their_host(self):
        self.put('h1', repositories=[standing('a')])
        self.write(host_rows.remove_host, 'h1')
        self.assertEqual({}, self.read(networks.clients_of, 'a'))
        self.write(host_rows.put_host, database.host('h1'), database.at(1))
        self.assertIsNone(self.read(networks.of_host, 'h1'))
