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
"""Deliveries by manifests, borrowed files and chains of patches."""

import dataclasses
import itertools

from diffcache_openstack.agent.images import building
from diffcache_openstack.agent.state import holdings
from diffcache_openstack.common import exceptions
from diffcache_openstack.sites import views
from tests.unit.agent import fakes
from tests.unit.agent.images.delivery import test_serving


class ManifestTest(test_serving.ServeTestCase):
    """The target's manifest is that of the base, changed by the patch."""

    manifest = fakes.key_of(test_serving.TARGET, views.MANIFESTS)

    def setUp(self):
        super().setUp()
        self.of_base = fakes.key_of(test_serving.BASE, views.MANIFESTS)

    def assert_computed(self, mode):
        served = self.serve(mode)
        self.assertEqual(('build', len(test_serving.PATCH), 0), (
            served.way, served.wan_bytes, served.fallbacks))
        self.assertIn(self.manifest, self.hosts['h1'].held)
        self.assertNotIn(self.manifest,
                         [key for _, _, key in self.network.fetches])

    def test_it_does_not_cross(self):
        for mode in building.MODES:
            self.hosts[f'h{mode}'] = fakes.Host(
                self.directory, self.network, f'h{mode}', 10 ** 10)
            self.hosts[f'h{mode}'].put(test_serving.BASE)
            self.refresh()
            self.serve(mode, f'h{mode}')
            self.assertIn(self.manifest, self.hosts[f'h{mode}'].held)
        self.assertEqual({key.kind for _, _, key in self.network.fetches},
                         {views.PATCHES})

    def test_that_of_the_base_comes_from_a_peer(self):
        self.hosts['h2'].put(test_serving.BASE)
        self.refresh()
        self.assert_computed(building.ON_THE_FLY)
        self.assertIn(('h1', 'http://h2', self.of_base),
                      self.network.fetches)

    def assert_fetched(self):
        served = self.serve()
        self.assertEqual(('build', 0), (served.way, served.fallbacks))
        self.assertIn(('h1', 'http://repo', self.manifest),
                      self.network.fetches)

    def test_a_patch_that_does_not_say_it(self):
        self.hosts['h1'].put(test_serving.BASE)
        self.refresh()

        def refuse(*_paths):
            raise exceptions.FormatError('of a codec without manifests')

        self.patch(fakes.Tools, 'target_manifest', refuse)
        self.assert_fetched()

    def test_a_patch_that_says_another_one(self):
        self.hosts['h1'].put(test_serving.BASE)
        self.refresh()
        self.patch(fakes.Tools, 'target_manifest',
                   lambda _tools, base, _patch, output: output.write_bytes(
                       base.read_bytes()) and '0' * 64)
        self.assert_fetched()

    def test_a_manifest_without_a_source_is_not_blamed_on_the_patch(self):
        self.hosts['h1'].put(test_serving.BASE)
        self.refresh()
        self.patch(fakes.Tools, 'target_manifest', lambda *_args: '0' * 64)
        del self.network.files['http://repo'][self.manifest]
        self.assertRaises(exceptions.ObjectMissing, self.serve)
        self.assertIn(self.patch_keys[0],
                      [key for _, _, key in self.network.fetches])


class BorrowedTest(test_serving.ServeTestCase):
    """Hosts whose Nova has an image that is in no cache."""

    def borrow(self, host, content):
        path = self.write_file(f'{host}-base', content)
        self.addCleanup(self.hosts[host].borrowed.close)
        self.hosts[host].borrow(path)
        self.refresh()
        return path

    def test_copied_here(self):
        path = self.borrow('h1', test_serving.TARGET)
        for mode in building.MODES:
            served = self.serve(mode)
            self.assertEqual(('local', 0, 0), (
                served.way, served.wan_bytes, served.lan_bytes))
        self.assertEqual(test_serving.TARGET, path.read_bytes())

    def test_a_changed_file_here_is_withdrawn(self):
        path = self.borrow('h1', test_serving.TARGET)
        path.write_bytes(b'x' + test_serving.TARGET[1:])
        served = self.serve()
        self.assertEqual(('repository', 1), (served.way, served.fallbacks))
        self.assertEqual(frozenset(), self.hosts['h1'].borrowed.keys())
        self.assertEqual(b'x' + test_serving.TARGET[1:], path.read_bytes())

    def test_a_base_of_a_patch(self):
        self.borrow('h1', test_serving.BASE)
        self.assert_only_the_patch_crosses()

    def test_a_changed_base_is_withdrawn(self):
        path = self.borrow('h1', test_serving.BASE)
        path.write_bytes(b'x' + test_serving.BASE[1:])
        for mode in building.MODES:
            self.assertEqual('repository', self.serve(mode).way)
            self.network.claims.clear()
        self.assertEqual(frozenset(), self.hosts['h1'].borrowed.keys())

    def test_a_base_at_a_peer(self):
        self.borrow('h2', test_serving.BASE)
        self.hosts['h3'].put(test_serving.PATCH, views.PATCHES)
        self.refresh()
        for mode in building.MODES:
            served = self.serve(mode)
            self.assertEqual(('build', 0), (served.way, served.wan_bytes))

    def test_it_takes_nothing_of_the_cache_and_is_not_evicted(self):
        path = self.borrow('h1', test_serving.TARGET)
        held = self.hosts['h1'].held
        key = fakes.key_of(test_serving.TARGET)
        self.assertEqual((0, True, False), (
            held.used(), held.is_borrowed(key), key in held))
        held.free_disk()
        self.assertFalse(held.release(key))
        held.drop(key, 'its image was withdrawn')
        self.assertEqual(frozenset(), self.hosts['h1'].borrowed.keys())
        self.assertEqual(test_serving.TARGET, path.read_bytes())


class ChainTest(test_serving.ServeTestCase):
    """Three patches lead from the base to the target, none directly."""

    images = {'base': test_serving.BASE, 'low': b'low' * 100,
              'high': b'high' * 100,
              'target': test_serving.TARGET}
    patches = list(itertools.pairwise(images.values()))

    def setUp(self):
        super().setUp()
        self.files = [fakes.make_patch(*pair) for pair in self.patches]
        self.hosts['h1'].put(test_serving.BASE)

    def spread(self):
        """One patch at each host."""
        for name, patch in zip(('h1', 'h2', 'h3'), self.files):
            self.hosts[name].put(patch, views.PATCHES)
        self.refresh()

    def test_built_in_both_modes(self):
        self.spread()
        for mode in building.MODES:
            served = self.serve(mode)
            self.assertEqual(('build', 0, 0), (
                served.way, served.wan_bytes, served.fallbacks))
            self.assertEqual(sum(map(len, self.files[1:])), served.lan_bytes)
            for key in self.patch_keys:
                self.assertIn(key.id[:12], served.detail)
            # Its time is that of no single patch.
            self.assertIsNone(served.patch_id)

    def test_chains_are_as_long_as_the_site_map_says(self):
        self.spread()
        for hops, way in ((1, 'repository'), (2, 'repository'), (3, 'build')):
            self.hosts['h1'].view = dataclasses.replace(
                self.hosts['h1'].view, hops=hops)
            self.assertEqual(way, self.serve().way)

    def test_over_the_wan_in_both_modes(self):
        for mode in building.MODES:
            self.network.claims.clear()
            served = self.serve(mode)
            self.assertEqual(('build', sum(map(len, self.files))),
                             (served.way, served.wan_bytes))
            for key in self.patch_keys:
                del self.network.files['http://h1'][key]

    def test_one_file_in_between_at_a_time(self):
        self.spread()
        staging = self.hosts['h1'].held.root / holdings.STAGING
        seen = []
        build = self.hosts['h1'].plane.build

        def build_and_look(source, *args, **options):
            seen.append(len(list(staging.iterdir())))
            return build(source, *args, **options)

        self.hosts['h1'].plane.build = build_and_look
        self.serve()
        self.assertEqual([0, 1, 1], seen)

    def test_a_broken_middle_patch_is_read_elsewhere(self):
        for mode in building.MODES:
            self.network.claims.clear()
            self.spread()
            self.break_patch('http://h2')
            served = self.serve(mode)
            self.assertEqual(('build', 1, len(self.files[1])), (
                served.way, served.fallbacks, served.wan_bytes))
            suspects = self.hosts['h1'].state.suspects
            self.assertEqual([('h2', self.patch_keys[1])], list(suspects))
            suspects.clear()
            del self.network.files['http://h1'][self.patch_keys[1]]

    def test_a_middle_patch_broken_everywhere(self):
        for mode in building.MODES:
            self.network.claims.clear()
            self.spread()
            self.break_patch('http://h2')
            self.break_patch('http://repo')
            served = self.serve(mode)
            self.assertEqual(('repository', 2),
                             (served.way, served.fallbacks))
            self.network.files['http://h1'].pop(
                fakes.key_of(test_serving.TARGET))

    def test_a_broken_middle_patch_here_is_quarantined(self):
        for mode in building.MODES:
            self.network.claims.clear()
            key = self.hosts['h1'].put(self.files[1], views.PATCHES)
            self.spread()
            self.hosts['h1'].held.path(key).write_bytes(b'gar\nbage')
            served = self.serve(mode)
            self.assertEqual(('build', 1), (served.way, served.fallbacks))
            self.assertNotIn(key, self.hosts['h1'].held)

    def test_a_lost_peer(self):
        self.spread()
        self.network.down.add('http://h3')
        served = self.serve()
        self.assertEqual(('build', 1, len(self.files[2])), (
            served.way, served.fallbacks, served.wan_bytes))
        self.assertNotIn('h3', served.detail)

    def break_patch(self, url):
        self.network.files[url][self.patch_keys[1]] = b'garbage'
