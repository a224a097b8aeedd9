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
from diffcache_openstack import objects
from diffcache_openstack.sites import map_state
from diffcache_openstack.sites import views
from tests import base
from tests.unit.db import database

LINKS = objects.Links(local=4.0, peer=2.0, repo=1.0)


def a_map(**values):
    return objects.SiteMap(**{
        'site': 'edge', 'generation': 5, 'links': LINKS, 'hops': 1,
        'images': [database.image(1), database.image(2)],
        'patches': [database.patch(1, 2, apply_seconds=0.5)],
        'hosts': [database.host('h1', url='http://h1', holdings=[
            database.holding(1), database.holding(2)])], **values})


def a_change(**values):
    return objects.MapChange(**{
        'site': 'edge', 'previous': 5, 'generation': 6, **values})


class TestMapState(base.TestCase):

    def setUp(self):
        super().setUp()
        self.state = map_state.MapState(a_map())

    def apply(self, **values):
        self.assertTrue(self.state.apply(a_change(**values)))

    def equals(self, **values):
        """The state is what the whole map would have made."""
        whole = map_state.MapState(a_map(generation=6, **values))
        self.assertEqual(whole.view(), self.state.view())
        self.assertEqual(whole.digest, self.state.digest)

    def test_maps_of_sites_share_the_catalogue(self):
        other = map_state.MapState(a_map(site='far')).view()
        ours = self.state.view()
        for one, another in zip(ours.images + ours.patches,
                                other.images + other.patches):
            self.assertIs(one, another)
        # Of two that differ, each has its own.
        changed = map_state.MapState(a_map(
            images=[database.image(1, name='new'), database.image(2)])).view()
        self.assertEqual('new', changed.images[0].name)
        self.assertNotEqual('new', ours.images[0].name)
        self.assertIs(ours.images[1], changed.images[1])

    def test_images(self):
        changed = database.image(2, name='new', data_size=9)
        self.apply(images=[changed, database.image(3)],
                   gone_images=['t1', 't9'])
        self.equals(images=[changed, database.image(3)])

    def test_patches(self):
        self.apply(patches=[database.patch(2, 1)],
                   gone_patches=[database.patch(1, 2).id])
        self.equals(patches=[database.patch(2, 1)])

    def test_hosts_keep_their_objects(self):
        dead = database.host('h1', url='http://h1', alive=False)
        self.state.view()
        self.apply(hosts=[dead, database.host('h2')])
        dead.holdings = a_map().hosts[0].holdings
        self.equals(hosts=[dead, database.host('h2')])

    def test_hosts_that_are_gone(self):
        self.apply(gone_hosts=['h1', 'h9'])
        self.equals(hosts=[])

    def test_holdings(self):
        self.state.view()
        self.apply(holdings=[objects.HostHoldings(
            host='h1', held=[database.holding(3)],
            gone=[database.holding(1), database.holding(9)])])
        host = a_map().hosts[0]
        host.holdings = [database.holding(2), database.holding(3)]
        self.equals(hosts=[host])

    def test_an_object_that_takes_the_place_of_another_is_shown(self):
        """The number of objects stays the same."""
        self.state.view()
        self.apply(holdings=[objects.HostHoldings(
            host='h1', held=[database.holding(3)],
            gone=[database.holding(1)])])
        self.assertIn(views.Key('images', database.content(3)),
                      self.state.view().holdings('h1'))

    def test_all_holdings(self):
        self.apply(holdings=[objects.HostHoldings(
            host='h1', whole=True, held=[database.holding(7)])])
        host = a_map().hosts[0]
        host.holdings = [database.holding(7)]
        self.equals(hosts=[host])

    def test_options(self):
        links = objects.Links(local=9.0, peer=8.0, repo=7.0)
        self.apply(links=links, hops=3)
        self.equals(links=links, hops=3)

    def test_what_did_not_change_is_not_made_again(self):
        before = self.state.view()
        self.apply(images=[database.image(3)])
        self.assertIs(before.patches, self.state.view().patches)
        self.assertIs(before.hosts, self.state.view().hosts)

    def test_views_do_not_change(self):
        before = self.state.view()
        self.apply(gone_images=['t1'], gone_hosts=['h1'],
                   gone_patches=[database.patch(1, 2).id])
        self.assertEqual(map_state.MapState(a_map()).view(), before)

    def test_a_change_of_another_generation_or_site_is_refused(self):
        self.assertFalse(self.state.apply(a_change(previous=4)))
        self.assertFalse(self.state.apply(a_change(site='other')))
        self.assertEqual(5, self.state.generation)

    def test_another_result_than_the_senders_is_noticed(self):
        sender = map_state.MapState(a_map(images=[]))
        change = a_change(images=[database.image(3)])
        self.assertTrue(sender.apply(change))
        change.digest = sender.digest
        self.assertFalse(self.state.apply(change))

    def test_distrusted_images_are_not_shown_but_counted(self):
        state = map_state.MapState(
            a_map(), lambda image: image.id == 't2')
        self.assertEqual(['t2'], [each.id for each in state.view().images])
        self.assertEqual(self.state.digest, state.digest)

    def test_the_kept_map_is_the_same(self):
        kept = map_state.MapState(objects.SiteMap.parse_kept(
            self.state.to_map().obj_to_primitive()))
        self.assertEqual(self.state.view(), kept.view())
        self.assertEqual(self.state.digest, kept.digest)
