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

import types
from unittest import mock

from diffcache_openstack.agent.images import failover
from diffcache_openstack.agent.images import site_transfers
from diffcache_openstack.common import exceptions
from diffcache_openstack.sites import routes
from diffcache_openstack.sites import views
from tests import base

KEY = views.Key(views.IMAGES, 'a' * 64)
OWN, PEER, REPOSITORY = 'host-1', 'host-2', 'repository'


def route(host):
    return routes.Route(routes.Part(KEY, host), (), 1.0)


class Sources:
    """Hosts that hold the image, of which some do not answer."""

    def __init__(self, hosts, silent=()):
        self.hosts = hosts
        self.silent = silent

    def is_own(self, host):
        return host == OWN

    def lookup_table(self, excluded=()):
        return [host for host in self.last_table(excluded)
                if host not in self.silent]

    def last_table(self, excluded):
        return [host for host in self.hosts
                if (host, None) not in excluded
                and (host, KEY) not in excluded]


class Attempt:
    """Reads the image from the first host; some fail.

    :param failures: the error of each host that fails
    """

    targets = ()
    blamed = None

    def __init__(self, failures, excluded=()):
        self.throttle = types.SimpleNamespace(excluded=excluded)
        self.failures = failures
        self.tried = []
        self.read = ()

    def candidates(self, table):
        return [route(host) for host in table]

    def execute(self, candidates):
        first = candidates[0]
        self.tried.append(first.source.host)
        self.read = (first.source,)
        if first.source.host in self.failures:
            raise self.failures[first.source.host]
        return failover.Outcome(first)

    def describe(self, route):
        return route.source.host


class FailoverTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.transfers = mock.Mock(spec=site_transfers.Transfers, host=OWN,
                                   plane=mock.Mock())
        self.host = mock.Mock()
        self.host.held.readable.return_value = frozenset()

    def bring(self, sources, attempt):
        """Return the host that delivered, and the number of failures."""
        search = failover.Failover(sources, self.transfers, self.host)
        found, _moved, failures = search.first_that_works(KEY, attempt)
        return found.source.host, failures

    def test_the_next_source_follows_one_that_fails(self):
        attempt = Attempt({PEER: exceptions.PeerUnavailable('gone')})
        self.assertEqual((REPOSITORY, 1), self.bring(
            Sources([PEER, REPOSITORY]), attempt))
        self.assertEqual([PEER, REPOSITORY], attempt.tried)
        self.transfers.plane.clear_unreachable.assert_not_called()

    def test_silent_hosts_are_the_last_resort(self):
        attempt = Attempt({PEER: exceptions.PeerUnavailable('gone')})
        self.assertEqual((REPOSITORY, 1), self.bring(
            Sources([PEER, REPOSITORY], silent=[REPOSITORY]), attempt))
        self.transfers.plane.clear_unreachable.assert_called_once_with()

    def test_no_source_is_tried_twice(self):
        attempt = Attempt({host: exceptions.PeerUnavailable(f'{host} is gone')
                           for host in (PEER, REPOSITORY)})
        error = self.assertRaises(
            exceptions.PeerUnavailable, self.bring,
            Sources([PEER, REPOSITORY], silent=[REPOSITORY]), attempt)
        self.assertEqual([PEER, REPOSITORY], attempt.tried)
        self.assertIn('2 sources were tried', str(error))
        self.assertIn(f'{REPOSITORY} is gone', str(error))

    def test_no_source_at_all(self):
        self.assertRaises(exceptions.PeerUnavailable, self.bring,
                          Sources([]), Attempt({}))

    def test_what_the_caller_excludes_is_not_tried(self):
        attempt = Attempt({}, excluded=[PEER])
        self.assertEqual((REPOSITORY, 0), self.bring(
            Sources([PEER, REPOSITORY]), attempt))

    def test_a_damaged_object_is_reported(self):
        attempt = Attempt({PEER: exceptions.IntegrityError('a wrong leaf')})
        self.assertEqual((REPOSITORY, 1), self.bring(
            Sources([PEER, REPOSITORY]), attempt))
        self.host.suspect.assert_called_once_with(PEER, KEY)

    def test_a_full_disk_is_cleared_before_the_same_source_again(self):
        class Full(Attempt):
            def execute(self, candidates):
                self.failures = {} if self.tried else self.failures
                return super().execute(candidates)

        self.transfers.plane.stop_lending.return_value = True
        self.host.held.free_disk.return_value = False
        attempt = Full({PEER: exceptions.NoSpace('full')})
        self.assertEqual((PEER, 0), self.bring(
            Sources([PEER, REPOSITORY]), attempt))
        self.assertEqual([PEER, PEER], attempt.tried)

    def test_a_full_disk_that_stays_full_is_the_error(self):
        self.transfers.plane.stop_lending.return_value = False
        self.host.held.free_disk.return_value = False
        self.assertRaises(
            exceptions.NoSpace, self.bring, Sources([PEER]),
            Attempt({PEER: exceptions.NoSpace('full')}))

    def test_a_cancelled_request_tries_nothing_else(self):
        attempt = Attempt({PEER: exceptions.Cancelled('stopped')})
        self.assertRaises(exceptions.Cancelled, self.bring,
                          Sources([PEER, REPOSITORY]), attempt)
        self.assertEqual([PEER], attempt.tried)
