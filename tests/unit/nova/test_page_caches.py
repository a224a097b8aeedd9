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
"""Page caches of guests that are reported to the agent."""

import pathlib
import time
from unittest import mock

from tests.unit.nova import needs  # Before Nova itself, which may be missing.

import libvirt

from diffcache_openstack.agent_client import local_client
from diffcache_openstack.common import exceptions
from diffcache_openstack.nova import page_caches
from diffcache_openstack.nova import tally as tallies
from tests.unit.nova import test_volume_nodes

VOLUME = test_volume_nodes.VOLUME


class TestPageCache(needs.NovaTest):

    def test_statistics(self):
        for statistics, found in (
                ({'actual': 500, 'disk_caches': 120, 'last_update': 1000},
                 120 * 1024),
                # What a guest says may be more than it has.
                ({'actual': 500, 'disk_caches': 700, 'last_update': 1000},
                 500 * 1024),
                # Without a driver, with one that is silent, or too old.
                ({'actual': 500, 'rss': 400}, None),
                ({'actual': 500, 'disk_caches': 120, 'last_update': 0}, None),
                ({'actual': 500, 'disk_caches': 120, 'last_update': 800},
                 None),
                ({'actual': 500, 'disk_caches': -1, 'last_update': 1000},
                 None)):
            self.assertEqual(found, page_caches.page_cache(statistics, 900.0),
                             statistics)


class TestWatch(needs.NovaTest):

    def setUp(self):
        super().setUp()
        self.client = mock.create_autospec(local_client.LocalClient,
                                           instance=True)
        self.path = pathlib.Path(self.directory, 'tally.json')
        self.tally = tallies.Tally(self.path)
        self.guests = [self.guest('a-server')]
        self.watch = page_caches.PageCacheWatch(lambda: self.guests,
                                                self.client, self.tally, 10)

    def guest(self, name, document=test_volume_nodes.DOCUMENT, **statistics):
        found = mock.Mock(uuid=name)
        found._domain.XMLDesc.return_value = document
        found._domain.memoryStats.return_value = statistics or {
            'actual': 1 << 20, 'disk_caches': 4096,
            'last_update': int(time.time())}
        return found

    def silent(self):
        return self.tally.summary()['guests_without_statistics']

    def test_what_is_reported(self):
        self.watch.look()
        self.client.report_page_cache.assert_called_once_with(
            'a-server', 4 << 20, [VOLUME])
        self.assertEqual({}, self.silent())

    def test_servers_without_cached_volumes(self):
        self.guests = [self.guest('other', '<domain><devices/></domain>')]
        self.watch.look()
        self.guests[0]._domain.memoryStats.assert_not_called()
        self.client.report_page_cache.assert_not_called()

    def test_servers_without_statistics_are_counted_once(self):
        self.guests.insert(0, self.guest('silent', actual=500))
        for _look in range(3):
            self.watch.look()
        self.assertEqual({'page_cache': 1}, self.silent())
        self.assertEqual(3, self.client.report_page_cache.call_count)
        self.assertEqual({'page_cache': 1}, tallies.Tally(
            self.path).summary()['guests_without_statistics'])

    def test_a_server_that_ends_meanwhile(self):
        self.guests.insert(0, self.guest('gone'))
        self.guests[0]._domain.memoryStats.side_effect = \
            libvirt.libvirtError('gone')
        self.watch.look()
        self.client.report_page_cache.assert_called_once()

    def test_an_agent_that_is_older_is_asked_again_later(self):
        self.client.report_page_cache.side_effect = exceptions.NotFound('?')
        with mock.patch.object(page_caches.time, 'monotonic') as clock:
            for now, calls in ((1000.0, 1), (1010.0, 1), (1599.0, 1),
                               (1601.0, 2)):
                clock.return_value = now
                self.watch.look()
                self.assertEqual(
                    calls, self.client.report_page_cache.call_count, now)

    def test_an_agent_that_does_not_answer_is_asked_again(self):
        self.client.report_page_cache.side_effect = \
            exceptions.ServiceUnavailable('restarting')
        self.guests = [self.guest('silent', actual=500), *self.guests,
                       self.guest('another')]
        for calls in (1, 2):
            self.watch.look()
            self.assertEqual(calls, self.client.report_page_cache.call_count)
        self.assertEqual({'page_cache': 1}, self.silent())
        self.client.report_page_cache.side_effect = None
        self.watch.look()
        self.assertEqual(4, self.client.report_page_cache.call_count)

    def test_one_that_the_agent_refuses_stops_no_other(self):
        self.client.report_page_cache.side_effect = [
            exceptions.InvalidInput('bad'), None]
        self.guests.append(self.guest('another'))
        self.watch.look()
        self.assertEqual(2, self.client.report_page_cache.call_count)

    def test_statistics_are_as_old_as_their_period_is_long(self):
        old = self.guest('slow', actual=500, disk_caches=4,
                         last_update=int(time.time()) - 300)
        self.guests = [old]
        for period, calls in ((10, 0), (150, 1)):
            page_caches.PageCacheWatch(lambda: self.guests, self.client,
                                       self.tally, period).look()
            self.assertEqual(calls,
                             self.client.report_page_cache.call_count)
