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
from unittest import mock

from diffcache_openstack.agent.images import throttle
from diffcache_openstack.agent.images import transfers
from diffcache_openstack.common import exceptions
from diffcache_openstack.sites import view
from tests import base
from tests.unit.agent import fakes

CONTENT = b'target'
KEY = fakes.key_of(CONTENT)


class TransfersTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.patch(transfers, 'HOLDER_PATIENCE', (0.0, 0.0))
        self.network = fakes.Network()
        self.hosts = {name: fakes.Host(self.directory, self.network, name)
                      for name in ('repo', 'h1', 'h2', 'h3')}
        self.network.files['http://repo'][KEY] = CONTENT
        site = fakes.site_view(list(self.hosts.values()), {'t': CONTENT}, [])
        for host in self.hosts.values():
            host.view = site

    def fetch(self, name):
        host = self.hosts[name]
        dest = self.directory / f'{name}.out'
        job = transfers.Job(KEY, dest, None, host.new_pace())
        moved = host.transfers.from_repository(job)
        self.assertEqual(CONTENT, dest.read_bytes())
        return moved

    def wan_fetches(self):
        return [f for f in self.network.fetches if f[1] == 'http://repo']

    def test_once_over_the_wan_then_from_the_holder(self):
        self.assertEqual(transfers.Moved(wan_bytes=6), self.fetch('h1'))
        for name in ('h2', 'h3'):
            self.assertEqual(transfers.Moved(lan_bytes=6), self.fetch(name))
        self.assertEqual(1, len(self.wan_fetches()))

    def test_a_dead_holder_is_taken_over(self):
        self.fetch('h1')
        coordinator = self.claimed_at()
        self.network.down.add('http://h1')
        survivor = 'h2' if coordinator != 'http://h2' else 'h3'
        self.assertEqual(6, self.fetch(survivor).wan_bytes)

    def claimed_at(self):
        (url, _), = self.network.claims
        return url

    def test_dead_coordinators_are_passed_over(self):
        first, *_ = transfers.rendezvous_order(KEY, ('h1', 'h2', 'h3'))
        self.network.down.add(f'http://{first}')
        alive = [n for n in ('h1', 'h2', 'h3') if n != first]
        self.assertEqual(6, self.fetch(alive[0]).wan_bytes)
        self.assertEqual(6, self.fetch(alive[1]).lan_bytes)
        self.assertNotEqual(f'http://{first}', self.claimed_at())

    def test_alone_it_goes_straight_to_the_repository(self):
        for name in ('h1', 'h2', 'h3'):
            self.network.down.add(f'http://{name}')
        self.assertEqual(6, self.fetch('h1').wan_bytes)

    def test_a_failed_holder_gives_its_claim_back(self):
        del self.network.files['http://repo'][KEY]
        self.assertRaises(exceptions.ObjectMissing, self.fetch, 'h1')
        self.assertEqual({}, self.network.claims)

    def test_an_unreachable_repository_is_remembered(self):
        self.network.down.add('http://repo')
        self.assertRaises(exceptions.PeerUnavailable, self.fetch, 'h1')
        self.assertEqual({'repo'},
                         self.hosts['h1'].transfers.unreachable.names())

    def test_a_holder_that_sends_garbage_is_taken_over(self):
        self.fetch('h1')
        self.network.files['http://h1'][KEY] = b'garbage'
        self.assertEqual(6, self.fetch('h2').wan_bytes)

    def test_everybody_names_the_same_coordinator(self):
        names = [f'h{n}' for n in range(20)]
        self.assertEqual(transfers.rendezvous_order(KEY, names),
                         transfers.rendezvous_order(KEY, reversed(names)))
        firsts = {transfers.rendezvous_order(
            view.Key(view.PATCHES, f'{n:064x}'), names)[0]
            for n in range(200)}
        self.assertGreater(len(firsts), 15)


class TestArrival(TransfersTest):
    """What comes to the site by other hands is not brought besides."""

    def setUp(self):
        super().setUp()
        self.expecting = self.hosts['h1'].transfers.expecting

    def fill(self, name, key=KEY, promoted=False):
        """What a fill moves, in bytes over the WAN and between hosts."""
        host = self.hosts[name]
        own = throttle.BackgroundPace(host.gate, fakes.Token, None,
                                      lambda: True)
        if promoted:
            own.promote()
        moved = host.transfers.from_repository(
            transfers.Job(key, self.directory / f'{name}.out', None, own))
        return moved.wan_bytes, moved.lan_bytes

    def test_fills_of_the_site_leave_it_to_them(self):
        with self.expecting(KEY):
            for name in ('h1', 'h2', 'h3'):
                error = self.assertRaises(exceptions.Cancelled, self.fill,
                                          name)
                self.assertIn(KEY.id, str(error))
        self.assertEqual([], self.network.fetches)

    def test_then_they_take_it_from_there(self):
        with self.expecting(KEY):
            self.network.files['http://h1'][KEY] = CONTENT
            self.hosts['h1'].transfers.offer(KEY)
        self.assertEqual((0, 6), self.fill('h2'))

    def test_if_it_does_not_come_fills_bring_it(self):
        with self.expecting(KEY):
            pass
        self.assertEqual({}, self.network.claims)
        self.assertEqual((6, 0), self.fill('h2'))

    def test_requests_do_not_care(self):
        with self.expecting(KEY):
            self.assertEqual(6, self.fetch('h2').wan_bytes)
            self.assertEqual((0, 6), self.fill('h3', promoted=True))

    def test_two_may_expect_it_at_once(self):
        with self.expecting(KEY):
            with self.expecting(KEY):
                pass
            self.assertRaises(exceptions.Cancelled, self.fill, 'h1')
        self.assertEqual((6, 0), self.fill('h1'))

    def test_a_fill_that_looks_at_that_moment_hides_nothing(self):
        self.patch(transfers, 'HOLDER_PATIENCE', (0.0, 0.0))
        h1, looks = self.hosts['h1'].plane, []
        claim = h1.claim

        def claim_after_a_look(url, key, suspect):
            looks.append(key)
            if len(looks) == 1:
                self.network.claims[url, key] = ('h2', 'http://h2')
                return 'h2', 'http://h2'
            self.network.claims.pop((url, key), None)
            return claim(url, key, suspect)

        self.patch(h1, 'claim', claim_after_a_look)
        with self.expecting(KEY):
            self.assertRaises(exceptions.Cancelled, self.fill, 'h3')

    def test_what_could_not_be_claimed_is_not_waited_for(self):
        h1 = self.hosts['h1']
        claim = h1.plane.claim
        self.patch(h1.plane, 'claim', mock.Mock(
            side_effect=exceptions.IntegrityError('nonsense')))
        with self.assertRaisesRegex(exceptions.IntegrityError, 'nonsense'):
            with self.expecting(KEY):
                pass
        self.patch(h1.plane, 'claim', claim)
        self.assertEqual((6, 0), self.fill('h1'))

    def test_patches_are_nobody_elses(self):
        key = fakes.key_of(CONTENT, view.PATCHES)
        self.network.files['http://repo'][key] = CONTENT
        with self.expecting(key):
            self.assertEqual((6, 0), self.fill('h2', key))
