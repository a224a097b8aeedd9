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
"""What the scheduler is told that images cost."""

import hashlib

from diffcache_openstack.conductor import costs
from diffcache_openstack.db.lazy import boot_sets
from diffcache_openstack import objects
from diffcache_openstack.objects import boot_set
from diffcache_openstack.objects import versioned
from diffcache_openstack.remote_calls import conductor_costs_api
from diffcache_openstack.rpc import conductor_lazy_api
from diffcache_openstack.sites import routes
from diffcache_openstack.sites import views
from tests import base
from tests.unit.conductor.endpoints import test_agents
from tests.unit.db import database

MB = 10 ** 6
ANSWER_SECONDS = 60
IMAGES, PATCHES = views.IMAGES, views.PATCHES


def content(name):
    return hashlib.sha256(name.encode()).hexdigest()


def image(name, megabytes=100):
    return views.ImageRef(f'id-{name}', name, content(name),
                          megabytes * MB, megabytes * MB)


def patch(first, second, megabytes=1, apply_seconds=0.0):
    return views.PatchRef(content(f'{first}>{second}'), content(first),
                          content(second), megabytes * MB, apply_seconds)


def host(name, *holdings, alive=True, role='compute'):
    return views.HostRef(name, role, 'http://host', alive, frozenset(
        views.Key(kind, content(what)) for kind, what in holdings))


REPOSITORY = host('repository', role='repository')
# Mbit/s; an image of 100 MB takes 2, 4 and 80 seconds.
LINKS = views.Links(local=400.0, peer=200.0, repo=10.0)


def view(images, patches, hosts):
    return views.SiteView(1, tuple(images), tuple(patches),
                          (*hosts, REPOSITORY), LINKS)


class TestSeconds(base.TestCase):

    def costs_of(self, a_view, hosts, hops=1):
        found = costs.seconds(a_view, content('t'), hosts, hops)
        return {name: round(cost, 6) for name, cost in found.items()}

    def test_from_own_disk_from_a_peer_and_over_the_wan(self):
        held = (IMAGES, 't')
        site = view([image('t')], [], [host('h1', held), host('h2')])
        self.assertEqual({'h1': 2.0, 'h2': 4.0},
                         self.costs_of(site, ['h1', 'h2']))
        nobody = view([image('t')], [], [host('h1'), host('h2')])
        self.assertEqual({'h1': 80.0, 'h2': 80.0},
                         self.costs_of(nobody, ['h1', 'h2']))

    def test_a_base_and_a_patch_are_cheaper_than_the_wan(self):
        site = view([image('t'), image('b')],
                    [patch('b', 't', 10, apply_seconds=1.0)],
                    [host('h1', (IMAGES, 'b')), host('h2')])
        # The patch's 10 MB come over the WAN: 8 s.
        self.assertEqual({'h1': 2.0 + 8.0 + 1.0, 'h2': 4.0 + 8.0 + 1.0},
                         self.costs_of(site, ['h1', 'h2']))

    def test_chains_count_as_far_as_agents_go(self):
        site = view([image('t'), image('m'), image('b')],
                    [patch('b', 'm'), patch('m', 't')],
                    [host('h1', (IMAGES, 'b'))])
        self.assertEqual({'h1': 80.0}, self.costs_of(site, ['h1'], hops=1))
        self.assertEqual({'h1': 3.6},  # 2.0 and twice 0.8
                         self.costs_of(site, ['h1'], hops=2))

    def test_the_dead_are_no_candidates_and_give_nothing(self):
        held = (IMAGES, 't')
        site = view([image('t')], [],
                    [host('h1', held, alive=False), host('h2')])
        self.assertEqual({'h2': 80.0},
                         self.costs_of(site, ['h1', 'h2', 'unknown']))

    def test_nothing_without_any_way(self):
        lonely = views.SiteView(1, (image('t'),), (), (host('h1'),), LINKS)
        self.assertEqual({}, self.costs_of(lonely, ['h1']))

    def test_the_same_as_the_agents_predict(self):
        site = view(
            [image('t'), image('b', 90), image('c', 70),
             image('d', 80)],
            [patch('b', 't', 5, 0.5), patch('c', 't', 3), patch('d', 'b', 2),
             patch('d', 'c', 4, 0.1)],
            [host('h1', (IMAGES, 'b'), (PATCHES, 'c>t')),
             host('h2', (IMAGES, 'd'), (PATCHES, 'd>c')),
             host('h3', (PATCHES, 'b>t')), host('h4')])
        for hops in (1, 2, 3):
            predicted = {}
            for one in site.compute_hosts():
                ways = routes.Routes(site, one.name, one.holdings,
                                     hops=hops)
                predicted[one.name] = round(
                    ways.to_image(content('t'))[0].seconds, 6)
            self.assertEqual(predicted, self.costs_of(
                site, ['h1', 'h2', 'h3', 'h4'], hops))


class TestBuildCosts(test_agents.ConductorTest):

    def setUp(self):
        super().setUp()
        self.costs = conductor_costs_api.CostsAPI(self.bus, ANSWER_SECONDS)

    def build_costs(self, image_id, hosts):
        return self.costs.build_costs(self.ctxt, image_id, hosts)

    def test_costs_follow_what_hosts_report(self):
        self.register(1)
        image_id = database.image(1).id
        self.api.register_host(self.ctxt, database.host('h2'))
        self.api.register_host(
            self.ctxt, database.host('centre', role='repository'))
        before = self.build_costs(image_id, ['h1', 'h2', 'elsewhere'])
        self.assertEqual({'h1', 'h2'}, set(before))
        self.assertEqual(before['h1'], before['h2'])
        self.api.report_holdings(self.ctxt, 'h2', [objects.Holding(
            kind=objects.IMAGES, id=database.image(1).content_id)])
        after = self.build_costs(image_id, ['h1', 'h2'])
        self.assertLess(after['h2'], after['h1'])
        self.assertLess(after['h1'], before['h1'])

    def test_lazy_boots_cost_what_the_boot_set_lacks(self):
        self.register(1)
        image = database.image(1, size=100 * MB, data_size=100 * MB)
        self.api.register_image(self.ctxt, image)
        for name, role in (('h2', 'compute'), ('h3', 'compute'),
                           ('centre', 'repository')):
            self.api.register_host(self.ctxt, database.host(name, role=role))
        lazy = conductor_lazy_api.LazyAPI(self.bus, self.conf)

        def costs_of():
            names = ['h1', 'h2', 'h3', 'elsewhere']
            whole = self.build_costs(image.id, names)
            found = self.costs.lazy_costs(self.ctxt, image.id, names)
            self.assertEqual(whole.keys(), found.keys())
            return whole, found

        # What boots read is not known yet, nor who has diffcached.
        self.assertEqual(*costs_of())
        lazy.exchange_reads(self.ctxt, 'h1', conductor_lazy_api.Reads(
            image.id, ['p'], '', 1, 1, {0: (1, 10), 40: (1, 20)}), None)
        self.assertEqual(*costs_of())
        for name in ('h1', 'h2'):
            lazy.exchange_boot_sets(self.ctxt, name, [], None)
        whole, found = costs_of()
        self.assertAlmostEqual(2 * 2 ** 20 / (100 * MB) * whole['h1'],
                               found['h1'])
        self.assertEqual(found['h1'], found['h2'])
        self.assertEqual(whole['h3'], found['h3'])
        # Not known by instances that are too few.
        self.conf.set_override('threshold', 2.0, 'lazy')
        self.assertEqual(*costs_of())
        self.conf.clear_override('threshold', 'lazy')
        reads = self.database.read(boot_sets.of_content,
                                   image.content_id, 0.1)
        database.put_wanted(self.database, ['h1'], [boot_sets.PlannedSet(
            'h1', image.content_id, reads, 1.0, 1.0, False, 1.0, False)],
            versioned.now())
        lazy.exchange_boot_sets(self.ctxt, 'h1', [
            (image.content_id, reads.bytes, boot_set.READY, None)], None)
        whole, with_set = costs_of()
        self.assertLess(with_set['h1'], with_set['h2'])
        self.assertLess(with_set['h2'], found['h2'])
        # A full start uses nothing of the set.
        self.assertEqual(whole['h1'], whole['h2'])

    def test_unknown_and_withdrawn_images_cost_nothing_known(self):
        self.register(1)
        self.assertEqual({}, self.build_costs('no-such-image', ['h1']))
        gone = database.image(1)
        gone.status = objects.DELETED
        self.api.register_image(self.ctxt, gone)
        self.assertEqual({}, self.build_costs(gone.id, ['h1']))
        self.assertEqual({}, self.costs.lazy_costs(self.ctxt, gone.id, ['h1']))

    def test_no_host_is_known(self):
        self.assertEqual({}, self.build_costs('image', ['h1']))
