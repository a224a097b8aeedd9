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
import contextlib
import dataclasses
import hashlib
import io
import os
import pathlib
import threading
from unittest import mock

import fixtures

from diffcache_openstack.agent.images.delivery import file_cache
from diffcache_openstack.agent.images.delivery import recipes
from diffcache_openstack.agent.images import image_costs
from diffcache_openstack.agent.state import holdings
from diffcache_openstack.common import exceptions
from diffcache_openstack.sites import views
from tests import base
from tests.unit.agent import fakes
from tests import waiting

BASE, TARGET = b'base' * 1000, b'target' * 1000
PATCH = fakes.make_patch(BASE, TARGET)
PACKED = b'QFI' + TARGET
RECIPE = b'how to pack it'
SECONDS = 60


class Packed:
    """The file, made while it is read."""

    size = len(PACKED)

    def __init__(self, content):
        self._content = content

    def read(self, offset, length):
        made = b'QFI' + self._content
        if made != PACKED:
            raise exceptions.IntegrityError('not the file')
        return made[offset:offset + length]


class Tools:

    def __init__(self):
        self.applied = 0
        self.opened = []
        self.in_order = False
        self.full = 0

    def open_recipe(self, recipe, content, patch=None):
        assert recipe.read_bytes() == RECIPE
        if not self.in_order:
            return None
        self.opened.append((content, patch))
        if patch is None:
            return Packed(content.read_bytes())
        return Packed(TARGET)

    def apply_recipe(self, content, recipe, output):
        self.applied += 1
        if self.full:
            self.full -= 1
            raise exceptions.NoSpace('no space left')
        assert recipe.read_bytes() == RECIPE
        output.write_bytes(b'QFI' + content.read_bytes())

    def to_raw(self, image, output):
        output.write_bytes(image.read_bytes()[3:])
        return fakes.content_id(output.read_bytes())

    def hash_file(self, image):
        return fakes.content_id(image.read_bytes())


class RecipesTestCase(base.TestCase):
    """A host, a peer and the repository, and an image in two formats."""

    keep_requested = False

    def setUp(self):
        super().setUp()
        self.network = fakes.Network()
        self.hosts = {name: fakes.Host(
            self.directory, self.network, name,
            None if name == 'repo' else 10 ** 10, self.keep_requested)
            for name in ('repo', 'h1', 'h2')}
        repo = self.hosts['repo']
        repo.put(BASE)
        repo.put(TARGET)
        repo.put(PATCH, views.PATCHES)
        self.recipe = repo.put(RECIPE, views.RECIPES)
        self.refresh()
        host = self.hosts['h1']
        self.tools = Tools()
        self.costs = image_costs.ImageCosts(host.sources, host.state,
                                            host.flights)
        self.store = file_cache.FileCache(self.directory / 'files', 10 ** 9)
        self.files = recipes.ImageFiles(
            host.builder, host.held, host.contents, self.costs,
            host.new_throttle,
            self.store, self.tools)

    def refresh(self):
        """Everybody learns what everybody holds."""
        site = fakes.site_view(list(self.hosts.values()),
                               {'base': BASE, 'raw': TARGET},
                               [(BASE, TARGET)])
        raw = site.image('raw')
        packed = dataclasses.replace(
            raw, id='packed', disk_format='qcow2', file_size=len(PACKED),
            os_hash_algo='sha512', form_size=len(RECIPE),
            os_hash_value=hashlib.sha512(PACKED).hexdigest(),
            form_id=fakes.content_id(RECIPE))
        site = dataclasses.replace(site,
                                   images=(*site.images, packed))
        for host in self.hosts.values():
            host.view = site

    def image(self, name):
        return self.hosts['h1'].view.image(name)

    def cost(self, name):
        image = self.image(name)
        return self.files.cost(image, self.costs.content(image))

    def read(self, name, site_only=False):
        with self.files.open(self.image(name), site_only) as reader:
            return reader.read(0, reader.size)

    def fetched(self):
        return [key for name, url, key in self.network.fetches
                if url == 'http://repo' and key.kind != views.MANIFESTS]


class TestOpen(RecipesTestCase):

    def test_held_raw_is_read_where_it_lies(self):
        self.hosts['h1'].put(TARGET)
        self.refresh()
        self.assertEqual(TARGET, self.read('raw', site_only=True))
        self.assertEqual([], self.store.oldest_first())

    def test_damaged_here_is_had_from_elsewhere(self):
        host = self.hosts['h1']
        key = host.put(TARGET)
        self.refresh()
        host.held.path(key).write_bytes(b'x' * len(TARGET))
        self.assertEqual(TARGET, self.read('raw'))
        self.assertNotIn(key, host.held)

    def test_a_borrowed_file_that_changes_after_its_check_is_not_cached(self):
        host = self.hosts['h1']
        base = self.write_file('_base', TARGET)
        key = host.borrow(base)
        self.refresh()
        verify = host.held.verify

        def verify_and_change(checked):
            sound = verify(checked)
            base.write_bytes(b'x' * len(TARGET))
            return sound

        self.patch(host.held, 'verify', verify_and_change)
        self.assertEqual(TARGET, self.read('raw'))
        self.assertEqual(TARGET, self.read('raw'))
        self.assertFalse(host.held.is_borrowed(key))
        self.assertEqual(b'x' * len(TARGET), base.read_bytes())

    def test_raw_that_has_to_come(self):
        self.assertEqual(TARGET, self.read('raw'))
        self.assertEqual(TARGET, self.read('raw', site_only=True))
        self.assertEqual(1, len(self.fetched()))

    def test_packed_is_made_once_and_kept(self):
        self.hosts['h1'].put(TARGET)
        self.hosts['h1'].put(RECIPE, views.RECIPES)
        self.refresh()
        for _ in range(3):
            self.assertEqual(PACKED, self.read('packed', site_only=True))
        self.assertEqual(1, self.tools.applied)
        self.assertEqual([], self.fetched())

    def test_recipe_from_the_repository(self):
        self.hosts['h2'].put(TARGET)
        self.refresh()
        self.assertEqual(PACKED, self.read('packed'))
        self.assertEqual([self.recipe], self.fetched())
        self.assertIn(self.recipe, self.hosts['h1'].held)

    def read_at_once(self, name):
        """Read a file in eight threads, which all come before it is made."""
        made, found = self.files._with_space, []
        members = self.files._single_flight

        def make_late(image, throttle):
            waiting.until(lambda: [flight.members for flight
                                   in members._flights.values()] == [8],
                          'all threads')
            return made(image, throttle)

        self.patch(self.files, '_with_space', make_late)
        threads = [threading.Thread(
            target=lambda: found.append(self.read(name))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    def test_many_at_once_make_it_once(self):
        self.assertEqual([PACKED] * 8, self.read_at_once('packed'))
        self.assertEqual(1, self.tools.applied)

    def test_many_at_once_fetch_once_what_fits_in_no_cache(self):
        """It crossed the WAN for each of them."""
        self.store._capacity = 0
        self.assertEqual([TARGET] * 8, self.read_at_once('raw'))
        self.assertEqual(1, len(self.fetched()))
        self.assertEqual({}, self.files._single_flight._flights)

    def test_held_content_that_is_evicted_after_its_check(self):
        """A borrowed file was served in its place, unverified."""
        host = self.hosts['h1']
        key = host.put(TARGET)
        base = self.write_file('_base', TARGET)
        host.borrow(base)
        self.refresh()
        verify = host.held.verify

        def verify_and_evict(checked):
            sound = verify(checked)
            base.write_bytes(b'x' * len(TARGET))
            host.held._drop(checked, 'room is needed')
            return sound

        with mock.patch.object(host.held, 'verify', verify_and_evict), \
                contextlib.ExitStack() as stack:
            self.assertIsNone(self.files._held_raw(self.image('raw'), stack))
        self.assertNotIn(key, host.held)

    def test_a_flight_that_ended_since_the_look_is_not_repeated(self):
        self.read('packed')
        find, looks = self.store.find, []

        def find_late(name):
            looks.append(name)
            return find(name) if len(looks) > 1 else None

        self.store.find = find_late
        self.assertEqual(PACKED, self.read('packed'))
        self.assertEqual(1, self.tools.applied)

    def test_not_of_the_site(self):
        for name in ('raw', 'packed'):
            error = self.assertRaises(exceptions.Conflict, self.read, name,
                                      site_only=True)
            self.assertIn(name, str(error))
        self.assertEqual([], self.fetched())

    def test_a_full_disk_costs_other_files_first(self):
        self.read('raw')
        self.tools.full = 1
        self.assertEqual(PACKED, self.read('packed'))
        self.assertEqual([self.recipe.id],
                         [name for name, _ in self.store.oldest_first()])

    def test_a_disk_that_stays_full(self):
        self.tools.full = 99
        self.assertRaises(exceptions.NoSpace, self.read, 'packed')
        self.assertEqual([], list((self.directory / 'files').iterdir()))
        staging = self.hosts['h1'].held.root / 'staging'
        self.assertEqual([], list(staging.iterdir()))

    def test_nobody_has_it(self):
        self.network.down.add('http://repo')
        self.assertRaises(exceptions.RetryableError, self.read, 'packed')
        self.network.down.clear()
        self.assertEqual(PACKED, self.read('packed'))

    def test_dropped_while_it_is_read(self):
        with self.files.open(self.image('packed'), False) as reader:
            self.files.drop(self.image('packed'))
            self.assertEqual(PACKED, reader.read(0, reader.size))
        self.assertEqual([], self.store.oldest_first())


class TestOpenInOrder(RecipesTestCase):
    """With recipes that say where each part of the file is."""

    def setUp(self):
        super().setUp()
        self.tools.in_order = True
        self.hosts['h1'].put(RECIPE, views.RECIPES)

    def staged(self):
        return list((self.hosts['h1'].held.root / 'staging').iterdir())

    def test_from_content_that_is_held(self):
        key = self.hosts['h1'].put(TARGET)
        self.refresh()
        for _ in range(3):
            self.assertEqual(PACKED, self.read('packed', site_only=True))
        self.assertEqual([(self.hosts['h1'].held.path(key), None)],
                         self.tools.opened)
        self.assertEqual(0, self.tools.applied)
        self.assertIn(self.recipe.id, self.store)

    def test_from_base_and_patch_without_the_content(self):
        host = self.hosts['h1']
        base_key, patch_key = host.put(BASE), host.put(PATCH, views.PATCHES)
        self.refresh()
        self.assertEqual(PACKED, self.read('packed'))
        self.assertEqual([(host.held.path(base_key),
                           host.held.path(patch_key))], self.tools.opened)
        self.assertEqual([], self.fetched())
        self.assertEqual([], self.staged())

    def test_damaged_content_is_had_from_elsewhere(self):
        host = self.hosts['h1']
        key = host.put(TARGET)
        self.refresh()
        host.held.path(key).write_bytes(b'x' * len(TARGET))
        self.assertEqual(PACKED, self.read('packed'))
        self.assertNotIn(key, host.held)
        self.assertEqual(2, len(self.tools.opened))

    def test_from_content_that_has_to_come(self):
        self.assertEqual(PACKED, self.read('packed'))
        self.assertEqual(1, len(self.fetched()))
        self.assertEqual([], self.staged())


class TestTake(RecipesTestCase):

    def take(self, name, data, length=None):
        return self.files.take(self.image(name), io.BytesIO(data),
                               len(data) if length is None else length)

    def test_taken(self):
        raw = self.take('packed', PACKED)
        self.assertEqual(TARGET, raw.read_bytes())
        self.assertEqual(PACKED, self.read('packed', site_only=True))
        self.assertEqual([], self.fetched())

    def test_content_that_is_held_already(self):
        self.hosts['h1'].put(TARGET)
        self.assertIsNone(self.take('packed', PACKED))

    def test_another_file(self):
        error = self.assertRaises(exceptions.IntegrityError, self.take,
                                  'packed', PACKED[:-1] + b'x')
        self.assertIn('packed', str(error))
        self.assertNothing()

    def test_another_content(self):
        self.assertRaises(exceptions.IntegrityError, self.take, 'raw', BASE)
        self.assertNothing()

    def test_ends_early(self):
        self.assertRaises(exceptions.InvalidInput, self.take, 'packed',
                          PACKED, len(PACKED) + 1)
        self.assertNothing()

    def assertNothing(self):
        self.assertEqual([], list((self.directory / 'files').iterdir()))
        staging = self.hosts['h1'].held.root / 'staging'
        self.assertEqual([], list(staging.iterdir()))


class TestCosts(RecipesTestCase):

    def test_nothing_here(self):
        content = self.costs.content(self.image('raw'))
        self.assertEqual(('repository', False), (content.way,
                                                 content.at_site))
        self.assertGreaterEqual(content.wan_bytes, fakes.SIZE)

    def test_base_at_a_peer(self):
        self.hosts['h2'].put(BASE)
        self.refresh()
        content = self.costs.content(self.image('raw'))
        self.assertEqual(('build', False), (content.way, content.at_site))
        self.assertLess(content.wan_bytes, fakes.SIZE // 10)

    def test_all_at_a_peer(self):
        self.hosts['h2'].put(TARGET)
        self.refresh()
        content = self.costs.content(self.image('raw'))
        self.assertEqual(('peer', 0, True), (
            content.way, content.wan_bytes, content.at_site))

    def test_planned(self):
        image = self.image('packed')
        self.assertFalse(self.costs.planned(image))
        self.hosts['h1'].held.want([holdings.PlacedObject(
            views.Key(views.IMAGES, image.content_id), 0)])
        self.assertTrue(self.costs.planned(image))

    def test_a_file_takes_its_recipe_too(self):
        self.hosts['h1'].put(TARGET)
        self.refresh()
        self.assertTrue(self.cost('raw').at_site)
        packed = self.cost('packed')
        self.assertEqual((len(RECIPE), False), (packed.wan_bytes,
                                                packed.at_site))
        self.read('packed')
        self.assertTrue(self.cost('packed').at_site)


class TestStore(base.TestCase):

    def setUp(self):
        super().setUp()
        self.store = file_cache.FileCache(self.directory / 'files', 100_000)

    def test_files_that_others_drop_meanwhile_do_not_count(self):
        self.write_file('files/kept', b'x' * 5000)
        dropped = self.directory / 'files' / 'dropped'
        listed = [*self.store.directory.iterdir(), dropped]
        self.useFixture(fixtures.MockPatchObject(
            pathlib.Path, 'iterdir', lambda _path: iter(listed)))
        self.assertEqual(['kept'], [name for name, _size
                                    in self.store.oldest_first()])
        self.assertEqual(self.store.used(), self.store.oldest_first()[0][1])

    def test_one_that_cannot_be_kept_is_not_left_open(self):
        path = self.store.new()
        path.write_bytes(b'x')
        (self.directory / 'files' / 'name').mkdir()
        self.assertRaises(OSError, self.store.keep, path, 'name')
        self.assertNotIn(str(path), opened_files())

    def keep(self, name, size):
        path = self.store.new()
        path.write_bytes(b'x' * size)
        return self.store.keep(path, name)

    def test_the_least_recently_used_goes(self):
        for name in ('a', 'b', 'c'):
            self.keep(name, 30_000).close()
        self.store.find('a').close()
        self.keep('d', 30_000).close()
        self.assertIn('a', self.store)
        self.assertIn('d', self.store)
        self.assertNotIn('b', self.store)

    def test_a_file_larger_than_all_is_read_once(self):
        reader = self.keep('huge', 200_000)
        self.assertEqual(200_000, len(reader.read(0, 300_000)))
        reader.close()
        self.assertEqual([], self.store.oldest_first())

    def test_nothing_outlives_a_restart(self):
        self.keep('a', 10).close()
        again = file_cache.FileCache(self.directory / 'files', 100)
        self.assertIsNone(again.find('a'))


def opened_files():
    """The files that this process has open."""
    found = set()
    for number in os.listdir('/proc/self/fd'):
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(f'/proc/self/fd/{number}'))
    return found
