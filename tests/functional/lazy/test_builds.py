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
"""diffcached reads the next build of an image through a base and a patch."""

import os
import random
import signal

from diffcache_openstack import _native
from diffcache_openstack.agent.lazy import diffcached
from diffcache_openstack.common import exceptions
from diffcache_openstack.sites import views
from tests.functional.lazy import services

_MIB = services.MIB


class BuildsTest(services.LazyServicesTest):

    def setUp(self):
        super().setUp()
        self.base = self.make_image('base', 1)
        self.image = self.make_next_build()
        self.patch = self.make_patch(self.base, self.image)
        self.patch_size = os.path.getsize(self.folder / self.patch)
        # The base is all that this host has, and all but that is far away.
        self.host = self.plane('host', self.base, compressed=False)
        self.repository = self.plane('repository', self.image)
        os.link(self.folder / self.patch, self.patch_path())
        self.daemon = diffcached.Diffcached(f'{self.folder}/socket')
        self.start_service(self.folder)

    def make_next_build(self):
        """The base with new bytes in two places, and others moved."""
        numbers = random.Random(9)
        content = bytearray(self.content(self.base))
        for at in (_MIB + 5000, 7 * _MIB):
            content[at:at + 200_000] = numbers.randbytes(200_000)
        content[4 * _MIB:5 * _MIB] = content[10 * _MIB:11 * _MIB]
        return self.store_image('next', bytes(content))

    def make_patch(self, base, target):
        path = self.folder / 'patch'
        _native.patch_create(self.folder / base, self.folder / target, path)
        patch_id = _native.hash_file(path)
        path.rename(self.folder / patch_id)
        return patch_id

    def patch_path(self):
        return self.folder / 'repository' / 'patches' / self.patch

    def build(self, host=None):
        return {
            'base': {'peer': (host or self.host).url, 'id': self.base,
                     'wan': False},
            'patch': {'peer': self.repository.url, 'id': self.patch,
                      'wan': True}}

    def add(self, *builds, **more):
        return self.daemon.add(self.image, {
            'manifest': str(self.manifest(self.image)), 'wait': 30,
            'sources': [*(builds or [self.build()]),
                        {'peer': self.repository.url, 'wan': True}],
            **more})['path']

    def status(self):
        return self.answered(self.daemon)

    def read(self, path, first=0, last=None):
        """Read from one MiB to another past the page cache, and check it."""
        expected = self.content(self.image)
        end = len(expected) if last is None else last * _MIB
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
        try:
            for at in range(first * _MIB, end, 65536):
                self.assertEqual(expected[at:at + 65536],
                                 os.pread(descriptor, 65536, at))
        finally:
            os.close(descriptor)

    def sent(self):
        """Bytes of patches and of images that the repository has sent."""
        counts = self.repository.stats()['sent']
        return counts['patches'], counts['images'] + counts['compressed']

    def test_the_next_build_costs_the_wan_its_patch(self):
        self.assertLess(self.patch_size, _MIB)
        self.read(self.add())
        found = self.status()
        self.assertTrue(found['complete'])
        self.assertEqual((0, 0), (found['errors'], found['corrupt']))
        build, whole = found['sources']
        self.assertEqual(self.build(), {name: build[name]
                                        for name in ('base', 'patch')})
        self.assertEqual((self.patch_size, 0),
                         (build['patch_bytes'], build['failures']))
        self.assertLess(self.patch_size, build['bytes'])
        self.assertEqual((0, 0), (whole['requests'], whole['patch_bytes']))
        # Counted by the sender, after the reader has them.
        self.wait_until(lambda: self.sent()[0] >= self.patch_size)
        self.assertEqual((self.patch_size, 0), self.sent())

    def test_a_base_image_of_nova_is_read_through(self):
        borrower = self.plane('borrower')
        base = self.folder / '_base'
        base.write_bytes(self.content(self.base))
        key = views.Key(views.IMAGES, self.base)
        borrower.borrow(key, base, self.manifest(self.base))
        self.addCleanup(borrower.give_back, key)
        self.read(self.add(self.build(borrower)))
        self.assertEqual(0, self.sent()[1])
        self.assertLessEqual(self.sent()[0], self.patch_size)

    def test_it_is_hydrated_through_the_patch(self):
        self.add(hydrate='idle', prefetch=False)
        self.wait_until(lambda: self.status()['complete'])
        self.assertEqual(0, self.status()['sources'][1]['requests'])
        self.wait_until(lambda: self.sent()[0] >= self.patch_size)
        self.assertEqual((self.patch_size, 0), self.sent())

    def test_the_patch_is_opened_before_the_first_read(self):
        self.add(prefetch=False)
        self.wait_until(lambda: self.sent()[0] > 0)
        self.assertEqual(0, self.status()['sources'][0]['requests'])
        self.assertLess(self.sent()[0], self.patch_size // 2)
        self.assertEqual(0, self.sent()[1])

    def test_a_small_read_takes_a_part_of_the_patch(self):
        path = self.add(prefetch=False)
        self.read(path, 1, 2)
        self.assertLess(0, self.status()['sources'][0]['patch_bytes'])
        self.assertLess(self.status()['sources'][0]['patch_bytes'],
                        2 * self.patch_size // 3)

    def test_the_next_worker_fetches_no_part_again(self):
        path = self.add(prefetch=False)
        self.read(path, 0, 5)
        worker = self.status()['worker_pid']
        os.kill(worker, signal.SIGKILL)
        self.wait_until(
            lambda: self.status()['worker_pid'] not in (None, worker))
        self.read(path)
        self.wait_until(lambda: self.sent()[0] >= self.patch_size)
        self.assertEqual((self.patch_size, 0), self.sent())
        kept = [name for name in os.listdir(
            os.path.dirname(self.status()['data_path']))
                if name.endswith('.patch')]
        self.assertEqual([f'{self.patch}.patch'], kept)
        # Without the source the next worker removes what it left.
        self.daemon.change(self.image, {'sources': [
            {'peer': self.repository.url, 'wan': True}]})
        self.wait_until(lambda: not [
            name for name in os.listdir(
                os.path.dirname(self.status()['data_path']))
            if name.endswith('.patch')])

    def test_without_its_base_the_rest_comes_from_the_repository(self):
        path = self.add(prefetch=False)
        self.read(path, 1, 2)
        os.remove(self.folder / 'host' / 'images' / self.base)
        self.read(path)
        found = self.status()
        self.assertTrue(found['complete'])
        self.assertEqual((0, 0), (found['errors'], found['corrupt']))
        build, whole = found['sources']
        self.assertLess(0, build['failures'])
        self.assertLess(0, whole['requests'])

    def test_another_base_takes_its_place(self):
        gone = self.plane('gone')
        self.read(self.add(self.build(gone), self.build()))
        found = self.status()
        first, second, whole = found['sources']
        self.assertLess(0, first['failures'])
        self.assertLess(0, second['requests'])
        self.assertEqual((0, 0), (found['errors'], whole['requests']))

    def test_patches_one_after_another_are_read_through(self):
        content = bytearray(self.content(self.image))
        content[12 * _MIB:12 * _MIB + 90_000] = random.Random(5).randbytes(
            90_000)
        middle, base = self.image, self.base
        self.image = self.store_image('last', bytes(content))
        last = self.make_patch(middle, self.image)
        size = os.path.getsize(self.folder / last)
        patches = self.folder / 'repository' / 'patches'
        os.link(self.folder / last, patches / last)
        first = self.build()['patch']
        chain = {'base': {'peer': self.host.url, 'id': base, 'wan': False},
                 'through': [first], 'patch': {**first, 'id': last}}
        path = self.add(chain)
        self.read(path)
        found = self.status()
        self.assertTrue(found['complete'])
        self.assertEqual((0, 0), (found['errors'], found['corrupt']))
        build, whole = found['sources']
        self.assertEqual(chain, {name: build[name] for name in chain})
        self.assertEqual((0, 0), (build['failures'], whole['requests']))
        self.assertLessEqual(build['patch_bytes'], self.patch_size + size)
        self.assertLess(0, build['patch_bytes'])
        self.assertEqual(
            {f'{self.patch}.patch', f'{last}.patch'},
            {name for name in os.listdir(os.path.dirname(found['data_path']))
             if name.endswith('.patch')})

    def test_too_many_patches_are_refused(self):
        good = self.build()
        self.assertRaises(exceptions.DiffCacheError, self.add,
                          {**good, 'through': 4 * [good['patch']]})

    def test_a_damaged_patch_is_not_used(self):
        good = self.patch_path().read_bytes()
        for at in (100, len(good) // 2, len(good) - 9):
            damaged = bytearray(good)
            damaged[at] ^= 1
            self.patch_path().unlink()
            self.patch_path().write_bytes(damaged)
            self.read(self.add(prefetch=False))
            found = self.status()
            build, whole = found['sources']
            self.assertLess(0, build['failures'], at)
            self.assertLess(0, whole['requests'], at)
            self.assertLess(0, found['corrupt'], at)
            self.assertEqual(0, found['errors'], at)
            self.daemon.remove(self.image)

    def test_a_base_with_wrong_bytes_is_not_used(self):
        content = bytearray(self.content(self.base))
        content[2 * _MIB] ^= 1
        (self.folder / 'host' / 'images' / self.base).write_bytes(content)
        self.read(self.add(prefetch=False))
        found = self.status()
        self.assertLess(0, found['sources'][0]['failures'])
        self.assertLess(0, found['corrupt'])
        self.assertEqual(0, found['errors'])

    def test_ids_that_are_none_are_refused(self):
        good = self.build()
        for part in ('base', 'patch'):
            for change in ({'id': 'x'}, {'id': '../x'}, {'peer': 'x'},
                           {'unknown': 1}):
                bad = {**good, part: {**good[part], **change}}
                self.assertRaises(exceptions.DiffCacheError, self.add, bad)
                self.assertEqual([], self.daemon.images())
