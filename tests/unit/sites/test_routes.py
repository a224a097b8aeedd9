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
import itertools
import random

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies

from diffcache_openstack.placement import cost
from diffcache_openstack.placement import instances
from diffcache_openstack.placement import placements
from diffcache_openstack.sites import routes
from diffcache_openstack.sites import views
from tests import base

A, B = 'a' * 64, 'b' * 64
PATCH = 'c' * 64
MB = 10 ** 6


def site(*holdings, alive=True):
    """Hosts h1.. with these holdings, the repository, images A and B."""
    hosts = [views.HostRef(f'h{n}', 'compute', f'http://h{n}', alive,
                           frozenset(held))
             for n, held in enumerate(holdings, start=1)]
    hosts.append(views.HostRef('repo', 'repository', 'http://repo', True,
                               frozenset()))
    return views.SiteView(
        1, (views.ImageRef('ida', 'a', A, 100 * MB, 100 * MB),
            views.ImageRef('idb', 'b', B, 100 * MB, 100 * MB)),
        (views.PatchRef(PATCH, A, B, 5 * MB, 0.2),), tuple(hosts),
        views.Links(4000.0, 1000.0, 20.0))


IMAGE_A = views.Key(views.IMAGES, A)
IMAGE_B = views.Key(views.IMAGES, B)
THE_PATCH = views.Key(views.PATCHES, PATCH)


class RoutesTest(base.TestCase):

    def routes(self, site_view, held=(), excluded=()):
        return routes.Routes(site_view, 'h1', frozenset(held),
                             frozenset(excluded))

    def test_local_then_peer_then_build_then_repository(self):
        found = self.routes(
            site([], [IMAGE_B], [IMAGE_A, THE_PATCH]),
            held=[IMAGE_B]).to_image(B)
        self.assertEqual(
            ['image from h1', 'image from h2'],
            [route.describe() for route in found[:2]])
        self.assertEqual((IMAGE_A, THE_PATCH),
                         (found[2].source.key, found[2].patches[0].key))
        self.assertEqual('image from repo', found[-1].describe())
        self.assertEqual(sorted(r.seconds for r in found),
                         [r.seconds for r in found])
        self.assertAlmostEqual(0.8, found[1].seconds)
        self.assertAlmostEqual(0.84 + 0.2, found[2].seconds)

    def test_what_is_really_held_counts_not_the_map(self):
        found = self.routes(site([IMAGE_B])).to_image(B)
        self.assertEqual('image from repo', found[0].describe())

    def test_patch_from_the_repository_on_a_base_at_a_peer(self):
        found = self.routes(site([], [IMAGE_A])).to_image(B)
        self.assertEqual(('h2', 'repo'),
                         (found[0].source.host, found[0].patches[0].host))

    def test_dead_hosts_are_no_sources(self):
        found = self.routes(site([], [IMAGE_B], alive=False)).to_image(B)
        self.assertNotIn('h2', {p.host for r in found for p in r.parts})

    def test_excluded_objects_and_hosts(self):
        two = site([], [IMAGE_B], [IMAGE_B])
        found = self.routes(
            two, excluded=[('h2', IMAGE_B)]).to_image(B)
        self.assertEqual('image from h3', found[0].describe())
        found = self.routes(two, excluded=[('h2', None), ('h3', None)]
                            ).to_image(B)
        self.assertEqual('image from repo', found[0].describe())

    def test_without_the_repository_slower_ways_come_up(self):
        slow = site([IMAGE_A, THE_PATCH])
        slow = dataclasses.replace(slow, patches=(
            dataclasses.replace(slow.patches[0], apply_seconds=9e4),))
        held = [IMAGE_A, THE_PATCH]
        found = self.routes(slow, held).to_image(B)
        self.assertEqual(['image from repo'],
                         [r.describe() for r in found])
        for gone in (('repo', None), ('repo', IMAGE_B)):
            found = self.routes(slow, held, [gone]).to_image(B)
            self.assertEqual(['h1', 'h1'],
                             [part.host for part in found[0].parts])

    def test_the_repository_sends_images_compressed(self):
        """Its image counts with the bytes that cross the WAN."""
        plain = site([], [IMAGE_A])
        images = tuple(dataclasses.replace(
            ref, compressed_size=25 * MB) for ref in plain.images)
        found = self.routes(dataclasses.replace(
            plain, images=images)).to_image(B)
        self.assertEqual('image from repo', found[-1].describe())
        self.assertAlmostEqual(10.0, found[-1].seconds)
        # Between hosts it crosses as it is.
        self.assertAlmostEqual(0.8 + 2.0 + 0.2, found[0].seconds)

    def test_a_form_makes_the_repository_cheaper_than_a_patch(self):
        plain = site([], [IMAGE_A])
        patch = dataclasses.replace(plain.patches[0], size=50 * MB)
        plain = dataclasses.replace(plain, patches=(patch,))
        self.assertTrue(self.routes(plain).to_image(B)[0].builds)
        small = dataclasses.replace(plain, images=tuple(
            dataclasses.replace(ref, compressed_size=40 * MB)
            for ref in plain.images))
        self.assertEqual(
            ['image from repo'],
            [route.describe() for route in self.routes(small).to_image(B)])
        self.assertAlmostEqual(
            16.0, self.routes(small).cheapest_seconds(B))

    def test_links_of_its_own(self):
        """A host with a thin WAN and LAN counts with those."""
        plain = site([], [IMAGE_A])
        own = dataclasses.replace(plain.links, hosts=(
            views.HostLinks('h1', 500.0, 2.0),
            views.HostLinks('h3', 1.0, 1.0)))
        found = self.routes(dataclasses.replace(
            plain, links=own)).to_image(B)
        # The base from a peer, the patch over the WAN, and applying it.
        self.assertAlmostEqual(1.6 + 20.0 + 0.2, found[0].seconds)
        self.assertAlmostEqual(400.0, found[-1].seconds)
        other = routes.Routes(dataclasses.replace(plain, links=own), 'h2',
                              frozenset([IMAGE_A])).to_image(B)
        self.assertAlmostEqual(0.2 + 2.0 + 0.2, other[0].seconds)

    def test_a_form_larger_than_the_data_counts_as_the_data(self):
        for size in (None, 0, 101 * MB, 2 ** 60):
            ref = views.ImageRef('i', 'n', A, 200 * MB, 100 * MB,
                                 compressed_size=size)
            self.assertEqual(100 * MB, ref.wire_size)

    def several(self, rates=(), **holdings):
        """A site whose repositories hold this."""
        found = site([])
        return dataclasses.replace(
            found, links=dataclasses.replace(found.links, repositories=rates),
            patches=found.patches if THE_PATCH in sum(
                holdings.values(), []) else (),
            hosts=(*found.hosts[:1], *(
                views.HostRef(name, 'repository', f'http://{name}',
                              name != 'dead', frozenset(held))
                for name, held in holdings.items())))

    def test_the_fastest_repository_that_has_it_comes_first(self):
        both = self.several((('near', 100.0),), far=[IMAGE_B],
                            near=[IMAGE_A, IMAGE_B])
        found = self.routes(both).to_image(B)
        self.assertEqual([('near', 8.0), ('far', 40.0)],
                         [(r.source.host, r.seconds) for r in found])
        only = self.several((('near', 100.0),), far=[IMAGE_B],
                            near=[IMAGE_A])
        table = self.routes(only)
        self.assertEqual(['far'], [
            r.source.host for r in table.to_image(B)])
        self.assertEqual(40.0, table.cheapest_seconds(B))

    def test_a_patch_that_one_repository_has_is_worth_another_base(self):
        found = self.routes(self.several(
            (('near', 100.0),), near=[IMAGE_B], far=[THE_PATCH]),
            held=[IMAGE_A]).to_image(B)
        self.assertEqual(['h1', 'far'], [p.host for p in found[0].parts])
        self.assertAlmostEqual(0.2 + 0.2 + 2.0, found[0].seconds)
        self.assertEqual(['near'], [p.host for p in found[-1].parts])

    def test_repositories_without_heartbeat_come_last(self):
        found = self.routes(self.several(
            (('dead', 100.0),), dead=[IMAGE_B], slow=[IMAGE_B])
            ).to_image(B)
        self.assertEqual(['slow', 'dead'], [r.source.host for r in found])

    def test_a_repository_may_have_more_than_it_reported(self):
        unreported = self.several(one=[IMAGE_B], two=[])
        found = self.routes(unreported, excluded=[('one', None)])
        self.assertEqual('two', found.to_image(B)[0].source.host)
        self.assertEqual(['one', 'two'], [
            part.host for part in self.routes(unreported).to_object(
                THE_PATCH)])

    @given(strategies.lists(strategies.tuples(
        strategies.sampled_from([None, 5.0, 20.0, 100.0]),
        strategies.booleans(), strategies.booleans(),
        strategies.booleans()), min_size=1, max_size=5))
    def test_order_of_repositories(self, made):
        """Rate, holds it, is alive, is excluded: of each repository."""
        names = [f'r{n}' for n in range(len(made))]
        found = site([])
        every = dataclasses.replace(
            found, patches=(),
            links=dataclasses.replace(found.links, repositories=tuple(
                (name, rate) for name, (rate, *_) in zip(names, made)
                if rate)),
            hosts=(*found.hosts[:1], *(
                views.HostRef(name, 'repository', '', alive, frozenset(
                    [IMAGE_B] if holds else []))
                for name, (_, holds, alive, _) in zip(names, made))))
        out = {(name, None) for name, (*_, gone) in zip(names, made) if gone}
        order = [route.source.host for route in self.routes(
            every, excluded=out).to_image(B)]
        about = dict(zip(names, made))
        usable = {name for name in names if not about[name][3]}
        holders = {name for name in usable if about[name][1]}
        self.assertEqual(holders or usable, set(order))
        self.assertEqual(len(order), len(set(order)))
        ranks = [(not about[name][2], -(about[name][0] or 20.0))
                 for name in order]
        self.assertEqual(sorted(ranks), ranks)

    def test_nothing_left(self):
        self.assertEqual([], self.routes(
            site([]), excluded=[('repo', None)]).to_image(B))

    def test_of_two_patches_the_smaller_is_used(self):
        two = site([IMAGE_A, THE_PATCH, views.Key(views.PATCHES, 'd' * 64)])
        two = dataclasses.replace(two, patches=(
            *two.patches, views.PatchRef('d' * 64, A, B, MB, 0.2)))
        found = self.routes(two, held=two.hosts[0].holdings).to_image(B)
        self.assertEqual('d' * 64, found[0].patches[0].key.id)

    def test_objects_from_peers_first(self):
        table = self.routes(site([], [THE_PATCH]), excluded=())
        self.assertEqual(['h2', 'repo'],
                         [p.host for p in table.to_object(THE_PATCH)])
        table = self.routes(site([], [THE_PATCH]),
                            excluded=[('h2', THE_PATCH)])
        self.assertEqual(['repo'],
                         [p.host for p in table.to_object(THE_PATCH)])


C, D = 'd' * 64, 'e' * 64
IMAGE_C = views.Key(views.IMAGES, C)


def line(*held_by_peer, patches=((A, B), (B, C))):
    """Images A to D, patches of 5 MB and 0.2 s, h1 and h2."""
    refs = tuple(views.PatchRef(patch_id(*pair), *pair, 5 * MB, 0.2)
                 for pair in patches)
    return dataclasses.replace(
        site([], held_by_peer), patches=refs, images=tuple(
            views.ImageRef(c[0], c[0], c, 100 * MB, 100 * MB)
            for c in (A, B, C, D)))


def patch_id(source, target):
    return (source[0] + target[0]) * 32


def patch_key(source, target):
    return views.Key(views.PATCHES, patch_id(source, target))


class ChainsTest(base.TestCase):

    def find(self, site_view, held, excluded=(), target=C,
             hops=routes.MAX_HOPS):
        return routes.Routes(site_view, 'h1', frozenset(held),
                             frozenset(excluded),
                             hops).to_image(target)

    def test_none_where_one_patch_is_the_limit(self):
        found = self.find(line(patch_key(B, C)),
                          [IMAGE_A, patch_key(A, B)], hops=1)
        self.assertEqual({0}, {len(route.patches) for route in found})

    def test_without_a_direct_patch(self):
        first, *_, last = self.find(line(patch_key(B, C)),
                                    [IMAGE_A, patch_key(A, B)])
        self.assertEqual(
            (routes.Part(IMAGE_A, 'h1'),
             routes.Part(patch_key(A, B), 'h1'),
             routes.Part(patch_key(B, C), 'h2')), first.parts)
        self.assertEqual((B,), first.through)
        # 100 and 5 MB from the disk, 5 MB from the peer, two patches applied.
        self.assertAlmostEqual(0.2 + 0.01 + 0.04 + 0.4, first.seconds)
        self.assertEqual(
            f'base {A[:12]} from h1, patch {patch_id(A, B)[:12]} from h1, '
            f'patch {patch_id(B, C)[:12]} from h2', first.describe())
        self.assertEqual('image from repo', last.describe())

    def test_a_direct_patch_that_is_dearer_comes_later(self):
        found = self.find(
            line(patches=[(A, B), (B, C), (A, C)]),
            [IMAGE_A, patch_key(A, B), patch_key(B, C)])
        self.assertEqual([2, 1], [len(r.patches) for r in found[:2]])

    def test_a_direct_patch_that_is_cheaper_comes_first(self):
        found = self.find(
            line(patches=[(A, B), (B, C), (A, C)]),
            [IMAGE_A, patch_key(A, B), patch_key(B, C), patch_key(A, C)])
        self.assertEqual([1, 2], [len(r.patches) for r in found[:2]])

    def test_what_is_excluded_is_in_no_chain(self):
        pairs = [(A, B), (B, C)]
        held = [IMAGE_A, patch_key(A, B)]
        found = self.find(line(patch_key(B, C), patches=pairs), held,
                          [('h2', patch_key(B, C))])
        self.assertEqual(['h1', 'h1', 'repo'],
                         [p.host for p in found[0].parts])
        found = self.find(line(patch_key(B, C), patches=pairs), held,
                          [('h2', None), ('repo', None)])
        self.assertEqual([], found)

    def test_nothing_dearer_than_the_wan(self):
        slow = line()
        slow = dataclasses.replace(slow, patches=tuple(
            dataclasses.replace(patch, apply_seconds=30.0)
            for patch in slow.patches))
        found = self.find(slow, [IMAGE_A, patch_key(A, B),
                                 patch_key(B, C)])
        self.assertEqual({0}, {len(route.patches) for route in found})

    def test_chains_have_an_end(self):
        contents = [f'{n:x}' * 64 for n in range(8)]
        pairs = list(itertools.permutations(contents, 2))
        steps = list(itertools.pairwise(contents))
        every = line(patches=pairs)
        images = tuple(views.ImageRef(c, c, c, 100 * MB, 100 * MB)
                       for c in contents)
        every = dataclasses.replace(every, images=images)
        start = routes.MAX_HOPS
        held = [views.Key(views.IMAGES, contents[0]),
                *(patch_key(*step) for step in steps)]
        longest = self.find(every, held, target=contents[start])[0]
        self.assertEqual(tuple(contents[1:start]), longest.through)
        found = self.find(every, held, target=contents[start + 1])
        self.assertEqual(start, max(len(r.patches) for r in found))
        for route in found:
            self.assertEqual(len(set(route.through)), len(route.through))

    def test_none_is_looked_for_if_the_image_is_here(self):
        found = self.find(line(), [IMAGE_A, IMAGE_C, patch_key(A, B),
                                   patch_key(B, C)])
        self.assertEqual('image from h1', found[0].describe())
        self.assertNotIn(2, [len(route.patches) for route in found])


def random_site(seed):
    """A view of three hosts and five images, and the same as an instance.

    :returns: (view, instance, placement); images and hosts are numbered
        in the view's order
    """
    rng = random.Random(seed)
    contents = [f'{n:x}' * 64 for n in range(5)]
    images = tuple(
        views.ImageRef(c, c, c, size, size) for c in contents
        for size in [rng.randrange(50, 200) * MB])
    patches = tuple(
        views.PatchRef(patch_id(*pair), *pair, rng.randrange(1, 60) * MB,
                       rng.uniform(0.0, 2.0))
        for pair in itertools.permutations(contents, 2)
        if rng.random() < 0.5)
    hosts = tuple(
        views.HostRef(f'h{n}', 'compute', f'http://h{n}', True, frozenset(
            key for key in (
                *(views.Key(views.IMAGES, c) for c in contents),
                *(patch.key for patch in patches)) if rng.random() < 0.3))
        for n in (1, 2, 3))
    hub = views.HostRef('repo', 'repository', 'http://repo', True, frozenset())
    site_view = views.SiteView(1, images, patches, (*hosts, hub),
                               views.Links(400.0, 100.0, 20.0))
    instance = instances.from_dict({
        'sizes': [image.size / MB for image in images],
        'patch_sizes': [
            [contents.index(patch.base), contents.index(patch.target),
             patch.size / MB, patch.apply_seconds] for patch in patches],
        'capacities': [1e6] * 3, 'rates': [[1] * 3] * 5,
        'bandwidths': {'local': 400, 'peer': 100, 'repo': 20}})
    placement = placements.Placement.of(
        ((n, h) for h, host in enumerate(hosts, 1)
         for n, c in enumerate(contents)
         if views.Key(views.IMAGES, c) in host.holdings),
        ((contents.index(patch.base), contents.index(patch.target), h)
         for h, host in enumerate(hosts, 1) for patch in patches
         if patch.key in host.holdings))
    return site_view, instance, placement


class ConformanceTest(base.TestCase):
    """Hosts take the ways that plans are made for."""

    @settings(max_examples=30)
    @given(seed=strategies.integers(0, 10**6), hops=strategies.integers(1, 4))
    def test_the_first_route_costs_what_the_solvers_expect(self, seed, hops):
        site_view, instance, placement = random_site(seed)
        limits = {limit: cost.service_seconds(instance, placement, limit)
                  for limit in (1, hops)}
        for r, host in enumerate(site_view.compute_hosts()):
            table = routes.Routes(site_view, host.name, host.holdings,
                                  hops=hops)
            for j, image in enumerate(site_view.images):
                # What is here is not built by a chain.
                here = views.Key(views.IMAGES, image.id) in host.holdings
                expected = limits[1 if here else hops][j, r]
                for found in (table.to_image(image.id)[0].seconds,
                              table.cheapest_seconds(image.id)):
                    self.assertAlmostEqual(1.0, found / expected, places=12)

    @settings(max_examples=20)
    @given(seed=strategies.integers(0, 10**6))
    def test_what_only_this_host_knows_of_counts_as_well(self, seed):
        site_view, _, _ = random_site(seed)
        own, *others = site_view.hosts
        unknown = dataclasses.replace(site_view, hosts=(
            dataclasses.replace(own, holdings=frozenset()), *others))
        for image in site_view.images:
            expected, found = (
                routes.Routes(one, own.name, own.holdings
                              ).to_image(image.id)
                for one in (site_view, unknown))
            self.assertEqual(expected, found)
