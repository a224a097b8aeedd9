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
import dataclasses
import datetime
import math

from diffcache_openstack.conf import opts
from diffcache_openstack.db.planning import history
from diffcache_openstack import objects
from diffcache_openstack.placement import instances
from diffcache_openstack.placement import objectives
from diffcache_openstack.placement import placements
from diffcache_openstack.planning import model
from diffcache_openstack.planning import site_state
from diffcache_openstack.sites import link_rates
from tests import base
from tests.unit.placement import shapes

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
DAY = 86400
MB = 10 ** 6
SECONDS = objectives.OBJECTIVES['seconds']
A, B, C = (f'{n:064x}' for n in (1, 2, 3))
PATCH_AB, PATCH_BC = (f'{n:064x}' for n in (12, 23))


def past(host_name, content, age=0):
    """A request of some seconds ago."""
    return history.Demand(host_name, content,
                          NOW - datetime.timedelta(seconds=age))


def image(content, **values):
    return objects.Image(**{'id': content[-1], 'content_id': content,
                            'size': 4000 * MB, 'data_size': 1000 * MB,
                            **values})


def patch(patch_id, source, target, **values):
    return objects.Patch(**{'id': patch_id, 'base': source, 'target': target,
                            'size': 50 * MB, 'apply_seconds': 3.0, **values})


def host(name, capacity=3000 * MB):
    return objects.Host(name=name, site='edge', role=objects.COMPUTE,
                        capacity=capacity)


class ModelTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.options = opts.new_config()

    def set(self, **values):
        for name, value in values.items():
            self.options.set_override(name, value, 'planner')

    def set_plain(self, prior=model.PRIOR, half_life=DAY):
        """Neither trends, nor families, nor what other hosts ask for."""
        self.patch(model, 'PRIOR', prior)
        self.forecast(half_life_s=half_life, trend_limit=1.0,
                      family_weight=0.0, host_weight=0.0)

    def forecast(self, **values):
        self.patch(model, 'FORECAST',
                   dataclasses.replace(model.FORECAST, **values))

    def build(self, **values):
        state = {'site': 'edge', 'hosts': [host('h2'), host('h1', 500 * MB)],
                 'images': [image(B), image(A)],
                 'patches': [patch(PATCH_AB, A, B)], 'demand': [],
                 'now': NOW, **values}
        return model.build(site_state.SiteState(**state), self.options.planner)


class TestBuild(ModelTest):

    def test_the_wan_carries_compressed_images(self):
        built = self.build(images=[
            image(A, compressed_size=300 * MB), image(B),
            image(A, id='same', compressed_size=None),
            image(C, data_size=10 * MB, compressed_size=20 * MB)])
        self.assertEqual([300.0, 1000.0, 10.0],
                         built.instance.wire_sizes.tolist())
        self.assertEqual([1000.0, 1000.0, 10.0],
                         built.instance.sizes.tolist())

    def test_sizes_are_megabytes_of_data(self):
        built = self.build()
        self.assertEqual([1000.0, 1000.0], built.instance.sizes.tolist())
        self.assertEqual([50.0], built.instance.patch_sizes.tolist())
        self.assertEqual([A, B], built.contents)

    def test_hosts_are_by_name(self):
        built = self.build()
        self.assertEqual(['h1', 'h2'], built.hosts)
        self.assertEqual([500.0, 3000.0],
                         built.instance.capacities.tolist())

    def test_rates_are_history_and_prior(self):
        self.set_plain(0.5, half_life=3600)
        built = self.build(demand=[
            past('h1', B), past('h1', B, age=3600), past('gone', A),
            past('h2', C)])
        hourly = built.instance.rates / 24 / math.log(2)
        self.assertEqual([[0.5, 0.5], [2.0, 0.5]],
                         hourly.round(6).tolist())

    def test_steady_demand_is_its_rate(self):
        self.set_plain(0.0)
        built = self.build(demand=[past('h1', A, age=n * DAY / 4)
                                   for n in range(40)])
        self.assertAlmostEqual(4.0, built.instance.rates[0, 0], delta=0.4)

    def test_clock_ahead_counts_as_now(self):
        ahead = self.build(demand=[past('h1', A, age=-60)])
        self.assertEqual(
            self.build(demand=[past('h1', A)]).instance.rates.tolist(),
            ahead.instance.rates.tolist())

    def test_what_is_beyond_the_horizon_hardly_counts(self):
        self.patch(model, 'PRIOR', 0.0)
        age = NOW - site_state.horizon(NOW)
        old = self.build(demand=[past('h1', A, age=age.total_seconds())])
        new = self.build(demand=[past('h1', A)])
        self.assertLess(old.instance.rates[0, 0],
                        new.instance.rates[0, 0] / 1000)

    def test_instance_is_valid(self):
        built = self.build()
        document = shapes.to_dict(built.instance)
        self.assertEqual(document,
                         shapes.to_dict(instances.from_dict(document)))

    def test_same_content_is_one_template(self):
        built = self.build(images=[image(A), image(A, id='copy')],
                           patches=[])
        self.assertEqual([A], built.contents)

    def test_patches_between_what_is_planned(self):
        built = self.build(patches=[patch(PATCH_AB, A, B),
                                    patch(PATCH_BC, B, C)])
        self.assertEqual([(0, 1)], list(built.patches))

    def test_empty_image_has_a_size(self):
        built = self.build(images=[image(A, data_size=0)], patches=[])
        self.assertGreater(built.instance.sizes[0], 0)

    def test_measured_time_is_taken(self):
        self.assertEqual([3.0],
                         self.build().instance.patch_seconds.tolist())

    def test_unmeasured_time_is_estimated(self):
        self.set(local_bandwidth=800.0)
        built = self.build(patches=[patch(PATCH_AB, A, B, apply_seconds=0)])
        self.assertEqual([10.5], built.instance.patch_seconds.tolist())

    def test_large_catalogue_is_cut_to_the_highest_demand(self):
        self.patch(model, 'MAX_TEMPLATES', 2)
        built = self.build(
            images=[image(c) for c in (A, B, C)],
            demand=[past('h1', C)] * 5 + [past('h2', B)]
            + [past('gone', A)] * 99)
        self.assertEqual([B, C], built.contents)

    def test_links_of_the_site(self):
        self.set(site_repository_bandwidth={'edge': '7.5'},
                 repository_bandwidth=100.0)
        self.assertEqual([7.5, 7.5],
                         self.build().instance.bandwidths.repo.tolist())
        self.assertEqual(
            100.0, link_rates.links_of('other', self.options.planner).repo)

    def test_measured_rates_are_limited(self):
        self.set(measured_bandwidths=True)
        found = link_rates.links_of('edge', self.options.planner, {
            name: objects.HostNetwork(peer_mbps=mbps, repositories=[
                objects.RepositoryStanding(name='hub', mbps=mbps),
                objects.RepositoryStanding(name='dead')])
            for name, mbps in (('h1', 1e18), ('h2', 1e-300), ('h3', 0.0),
                               ('h4', 50.0), ('h5', None))})
        self.assertEqual(
            [('h1', 1e6, 1e6), ('h2', 0.001, 0.001), ('h4', 50.0, 50.0)],
            [(each.host, each.peer, each.repo) for each in found.hosts])

    def test_links_of_single_hosts(self):
        self.set(measured_bandwidths=True, repository_bandwidth=20.0,
                 peer_bandwidth=1000.0)
        links = self.build(networks={
            'h1': objects.HostNetwork(peer_mbps=50.0),
            'h2': objects.HostNetwork(repositories=[
                objects.RepositoryStanding(name='hub', mbps=3.0)]),
        }).instance.bandwidths
        self.assertEqual([20.0, 3.0], links.repo.tolist())
        self.assertEqual([50.0, 1000.0], links.peer.tolist())

    def test_links_of_named_repositories(self):
        self.set(repository_bandwidth=20.0, named_repository_bandwidth={
            'near': '100', 'edge/near': '90', 'other/near': '1',
            'far': '2'})
        for alive, mbps in (((), 20.0), (('far',), 2.0), (('new',), 20.0),
                            (('far', 'near'), 90.0)):
            self.assertEqual(
                [mbps, mbps], self.build(
                    repositories=alive).instance.bandwidths.repo.tolist())
        self.assertEqual(
            [('far', 2.0), ('near', 100.0)],
            [(each.name, each.mbps) for each in link_rates.links_of(
                'third', self.options.planner).repositories])

    def test_what_hosts_hold_is_placed(self):
        held = [objects.Holding(kind=objects.IMAGES, id=A),
                objects.Holding(kind=objects.IMAGES, id=C),
                objects.Holding(kind=objects.PATCHES, id=PATCH_AB)]
        built = self.build(hosts=[host('h1'), objects.Host(
            name='h2', site='edge', role=objects.COMPUTE, capacity=0,
            holdings=held)])
        self.assertEqual(instances.Held(((0, 2),), ((0, 1, 2),)),
                         built.instance.placed)

    def test_plan_in_force_is_placed_too(self):
        built = self.build()
        items = built.items(placements.Placement.of([(1, 2)]), 1,
                            SECONDS)
        self.assertEqual(((1, 2),),
                         built.placed_too(items).instance.placed.templates)

    def test_drained_hosts_take_nothing(self):
        self.set(drained_hosts=['h2', 'elsewhere'])
        built = self.build(jobs=[objects.PrecacheDemand(
            host='h2', content_id=A, requests=1.0, pinned=True)])
        self.assertEqual({2}, built.instance.excluded)
        self.assertEqual((), built.instance.pinned.templates)


class TestForecast(ModelTest):

    def rates(self, demand, **values):
        self.set_plain(0.0)
        self.forecast(**values)
        return self.build(demand=demand).instance.rates

    def test_rising_demand_counts_more(self):
        rising = [past('h1', A, age=n * 3600) for n in range(6)]
        plain = self.rates(rising)[0, 0]
        self.assertGreater(self.rates(rising, trend_limit=2.0)[0, 0],
                           1.3 * plain)
        falling = [past('h1', A, age=DAY + n * 3600) for n in range(6)]
        plain = self.rates(falling)[0, 0]
        self.assertLess(self.rates(falling, trend_limit=2.0)[0, 0],
                        0.7 * plain)

    def test_new_image_starts_with_its_family(self):
        asked = [past('h1', A)] * 8
        self.assertEqual(0.0, self.rates(asked)[1].sum())
        rates = self.rates(asked, family_weight=1.0)
        self.assertGreater(rates[1].sum(), 0.3 * rates[0].sum())

    def test_origin_is_family_without_a_patch(self):
        self.set_plain(0.0)
        self.forecast(family_weight=1.0)
        built = self.build(
            patches=[], demand=[past('h1', A)] * 8,
            images=[image(A), image(B, family=A[-1]), image(C)])
        rates = built.instance.rates.sum(axis=1)
        self.assertGreater(rates[1], 0.3 * rates[0])
        self.assertEqual(0.0, rates[2])

    def test_few_requests_at_one_host_are_expected_at_others(self):
        asked = [past('h1', A)] * 2 + [past('h2', B)] * 2
        self.assertAlmostEqual(0.0, self.rates(asked)[0, 1], places=3)
        rates = self.rates(asked, host_weight=2.0)
        self.assertGreater(rates[0, 1], 0.2 * rates[0, 0])


class TestItems(ModelTest):

    def test_most_valuable_bytes_come_first(self):
        self.set_plain()
        built = self.build(demand=[past('h2', A)] + [past('h2', B)] * 100)
        items = built.items(placements.Placement.of([(0, 2), (1, 2)]), 1,
                            SECONDS)
        self.assertEqual([(B, 0), (A, 1)],
                         [(item.id, item.priority) for item in items])
        self.assertGreater(items[0].saved_seconds, items[1].saved_seconds)

    def test_priorities_are_per_host(self):
        built = self.build()
        items = built.items(
            placements.Placement.of([(0, 2)], [(0, 1, 1), (0, 1, 2)]), 1,
            SECONDS)
        by_host = {}
        for item in items:
            by_host.setdefault(item.host, []).append(item.priority)
        self.assertEqual({'h1': [0], 'h2': [0, 1]}, by_host)

    def test_sizes_are_bytes(self):
        built = self.build()
        items = built.items(placements.Placement.of([(0, 2)], [(0, 1, 1)]), 1,
                            SECONDS)
        self.assertEqual({A: 1000 * MB, PATCH_AB: 50 * MB},
                         {item.id: item.bytes for item in items})

    def test_placement_of_items_is_the_placement(self):
        built = self.build()
        given = placements.Placement.of([(0, 2), (1, 1)], [(0, 1, 1)])
        items = built.items(given, 1, SECONDS)
        self.assertEqual(given, built.placement(items))

    def test_what_is_gone_is_not_placed(self):
        built = self.build()
        items = built.items(
            placements.Placement.of([(0, 2)], [(0, 1, 1)]), 1, SECONDS)
        later = self.build(hosts=[host('h2')], patches=[])
        self.assertEqual(placements.Placement.of([(0, 1)]),
                         later.placement(items))


class TestPrecacheJobs(ModelTest):

    def wanted(self, content, **values):
        return objects.PrecacheDemand(**{
            'host': 'h1', 'content_id': content, 'requests': 10.0, **values})

    def build_with(self, *jobs):
        return model.build(site_state.SiteState(
            'edge', [host('h1'), host('h2')],
            [image(A), image(B), image(C)], [], [], NOW,
            list(jobs)), self.options.planner)

    def test_are_demand(self):
        rates = self.build_with(self.wanted(B)).instance.rates
        self.assertEqual((1, 0), divmod(int(rates.argmax()), 2))
        self.assertGreater(rates[1, 0], 100 * rates[0, 0])

    def test_pins_are_held_while_they_fit(self):
        self.patch(model, 'MAX_TEMPLATES', 1)
        found = self.build_with(
            self.wanted(A, pinned=True), self.wanted(B, pinned=True),
            self.wanted(C, pinned=True, host='h9'))
        self.assertEqual(((0, 1), (1, 1)), found.instance.pinned.templates)

    def test_pins_without_room_are_left_out_lightest_first(self):
        found = model.build(site_state.SiteState(
            'edge', [host('h1', 1500 * MB)], [image(A), image(B)], [],
            [], NOW, [self.wanted(A, pinned=True, requests=1.0),
                      self.wanted(B, pinned=True)]), self.options.planner)
        self.assertEqual(((1, 1),), found.instance.pinned.templates)
