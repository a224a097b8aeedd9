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
from diffcache_openstack import _native
from diffcache_openstack.agent.ssdcache import page_caches
from diffcache_openstack.agent.ssdcache import reports
from diffcache_openstack.agent.ssdcache import sizes
from diffcache_openstack.agent.ssdcache import volumes
from diffcache_openstack.agent.ssdcache import wanted
from diffcache_openstack.ssdcache.engines import base as engines
from tests import base
from tests.unit.ssdcache.engines import fakes

# Below a page cache of 1000 blocks: nothing is repeated before 1000 others.
BEFORE = _native.HitCurve(10000, 6000, [
    (size, size - 1000) for size in range(1100, 9001, 100)])
DIRECT = _native.HitCurve(10000, 6000, [
    (size, 3 * size) for size in range(100, 3001, 100)])


def epochs(**found):
    return {name: engines.Epoch(120.0, curve)
            for name, curve in found.items()}


class PageCachesTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.now = 0.0
        self.caches = page_caches.PageCaches(lambda: self.now)

    def end(self, *blocks, server='one', names=('a',), **found):
        """Note sizes during an epoch, and end it."""
        for each in blocks:
            self.caches.note(server, each, tuple(names))
        self.now += 120
        return self.caches.end_epoch(
            epochs(**(found or {'a': BEFORE})), {'a': 4000, 'b': 2000})


class TestChanges(PageCachesTest):

    def test_one_that_grew(self):
        found = self.end(1000, 1000, 1000, 2000)
        # On average it had 1250 blocks.
        expected = found.curves['a']
        # One hundredth may have shorter distances.
        self.assertEqual((9100, 100, 100, 1100), (
            expected.references, expected.hits(1199), expected.hits(2000),
            expected.hits(3000)))
        [line] = found.explain
        self.assertEqual(
            'a: the guest\'s page cache grew from 5 to 8 MiB: 9100 references'
            ' are expected instead of 10000; those that reuse a block within'
            ' 1199 to 2000 others stay in the guest', line)
        self.assertEqual(1, self.caches.status()['grown'])
        # The next epoch had this size all the time.
        self.assertEqual(({}, []), self.end(2000, 2000))

    def test_small_changes_and_small_page_caches(self):
        self.assertEqual(({}, []), self.end(1000, 1000, 1100))
        self.assertEqual(({}, []), self.end(10, 10, 200))

    def test_direct_io(self):
        found = self.end(1000, 1000, 3000, a=DIRECT)
        self.assertEqual({}, found.curves)
        self.assertIn('do not go through it', found.explain[0])

    def test_volumes_of_a_server_share_its_page_cache(self):
        half = _native.HitCurve(5000, 3000, [
            (size, size - 500) for size in range(600, 3001, 100)])
        found = self.end(1000, 1000, 1000, 2200, names='ab', a=half, b=half)
        self.assertEqual({'a', 'b'}, set(found.curves))
        self.assertEqual(0, found.curves['a'].hits(1000))

    def test_servers_without_requests_or_statistics(self):
        nothing = _native.HitCurve(0, 0, [])
        self.assertEqual(({}, []), self.end(1000, 9000, a=nothing))
        self.assertEqual({'a': 9000}, self.caches.sizes())
        self.assertEqual(({}, []), self.end())
        self.assertEqual({}, self.caches.sizes())
        self.assertEqual(0, self.caches.status()['guests'])

    def test_guests_are_bounded(self):
        for number in range(page_caches.MOST_GUESTS + 5):
            self.caches.note(f's{number}', 1, ('v',))
        self.assertEqual(page_caches.MOST_GUESTS,
                         self.caches.status()['guests'])


class TestShrinking(PageCachesTest):

    AFTER = _native.HitCurve(9000, 6000, [
        (size, size - 2000) for size in range(2100, 9001, 100)])

    def test_one_that_had_this_size_before(self):
        self.end(1000, 1000)
        self.end(2000, 2000, a=self.AFTER)
        found = self.end(2000, 2000, 2000, 1000, a=self.AFTER)
        expected = found.curves['a']
        self.assertEqual((10000, BEFORE.hits(2000)), (
            expected.references, expected.hits(2000)))
        self.assertIn('10000 references are expected instead of 9000, as 4'
                      ' minutes ago', found.explain[0])

    def test_one_that_never_had_this_size(self):
        found = self.end(2000, 2000, 500, a=BEFORE)
        self.assertEqual({}, found.curves)
        self.assertIn('of 3000 hits 1500 at least stay', found.explain[0])
        self.assertEqual(1, self.caches.status()['unknown'])

    def test_another_load_than_then(self):
        self.end(1000, 1000)
        found = self.end(2000, 2000, 2000, 1000, a=_native.HitCurve(
            1000, 600, [(2500, 100)]))
        self.assertEqual({}, found.curves)

    def test_it_was_too_long_ago(self):
        self.end(1000, 1000)
        self.now += 25 * 3600
        self.assertEqual({}, self.end(2000, 2000, 2000, 1000,
                                      a=self.AFTER).curves)


class TestSizes(base.TestCase):
    """What becomes of the sizes of partitions."""

    def setUp(self):
        super().setUp()
        self.engine = fakes.FakeEngine(6000)

    def new(self, **options):
        cached = volumes.CachedVolumes(
            self.engine, volumes.Options((str(self.directory), ), **options),
            self.directory / 'ssd_cache.json', sizes.Rules(epoch=120))
        for name in 'ab':
            origin = self.directory / name
            origin.write_bytes(bytes(4096))
            cached.attach(name, wanted.Wanted(str(origin), 'write-through'))
        return cached

    def end_epoch(self, cached, *blocks):
        other = _native.HitCurve(10000, 5500, [
            (size, size) for size in range(100, 5501, 100)])
        self.engine.epochs = epochs(a=_native.HitCurve(
            10000, 6000, [(2000, 9000)]), b=other)
        for each in blocks:
            cached.note_page_cache('server', each, ('a',))
        cached.end_epoch()
        return {name: state.limit
                for name, state in self.engine.volumes().items()}

    def test_they_follow_before_the_curve_does(self):
        cached = self.new()
        self.assertEqual({'a': 2000, 'b': 4000},
                         self.end_epoch(cached, 1000, 1000))
        # All that the volume hits will stay in the guest.
        found = self.end_epoch(cached, 1000, 1000, 1000, 9000)
        self.assertEqual({'a': 0, 'b': 6000}, found)
        [last, *_others] = cached.status()['decisions']
        self.assertIn('a: 0 of 1000 blocks, 0.0% hits', last['explain'])
        shown = cached.status()
        self.assertEqual((9000, None), tuple(
            shown['volumes'][name]['guest_page_cache'] for name in 'ab'))
        [volume, _other] = reports.collect(cached).volumes
        self.assertEqual(9000, volume.guest_page_cache)
        self.assertTrue(any('page cache grew from 12 to 35 MiB' in line
                            for line in volume.explain), volume.explain)

    def test_the_option_turns_it_off(self):
        cached = self.new(page_caches=False)
        self.end_epoch(cached, 1000, 1000, 1000, 9000)
        self.assertIsNone(
            cached.status()['volumes']['a']['guest_page_cache'])
        self.assertEqual(0, cached.status()['page_caches']['guests'])
