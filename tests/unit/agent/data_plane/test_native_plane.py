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
"""Fetching of objects. The inner rules of it have tests in Rust."""

import os
import random
import shutil
import subprocess
import threading

from diffcache_openstack import _native
from diffcache_openstack.agent.data_plane import orders
from diffcache_openstack.common import exceptions
from diffcache_openstack.sites import views
from tests.unit.agent.data_plane import planes


class TestFetch(planes.DataPlaneTestCase):

    def setUp(self):
        super().setUp()
        self.a = self.plane('a')
        self.b = self.plane('b')
        self.dest = self.directory / 'output'

    def test_image_with_its_manifest(self):
        content = (random.Random(1).randbytes(9 * planes.LEAF)
                   + bytes(20 * planes.LEAF)
                   + random.Random(2).randbytes(777))
        image = self.hold_image('a', content)
        manifest = self.held('b', 'manifests', image)
        self.fetch(self.b, self.a, 'manifests', image, dest=manifest)
        progress = planes.Silent()
        moved = self.fetch(self.b, self.a, 'images', image, progress,
                           manifest=manifest)
        self.assertEqual(content, self.dest.read_bytes())
        self.assertEqual(9 * planes.LEAF + 777, moved)
        self.assertEqual((9 * planes.LEAF + 777,) * 2, progress.seen[-1])
        self.assertEqual(9 * planes.LEAF + 777,
                         planes.sent_images(self.a, 9 * planes.LEAF + 777))
        self.assertEqual(9 * planes.LEAF + 777,
                         self.b.stats()['received']['images'])

    def test_errors_have_types_that_callers_know(self):
        patch = self.hold('a', 'patches', b'content')
        other = self.plane('c', b'another key, long enough', key_name='other')
        absent = '0' * 64
        for expected, call in [
            (exceptions.ObjectMissing, lambda: self.fetch(
                self.b, self.a, 'patches', absent)),
            (exceptions.PeerRefused, lambda: self.fetch(
                other, self.a, 'patches', patch)),
            (exceptions.PeerUnavailable, lambda: self.fetch(
                self.b, self.source(self.a, 'http://127.0.0.1:1'), 'patches',
                patch)),
            (exceptions.InvalidInput, lambda: self.fetch(
                self.b, self.source(self.a, 'somewhere'), 'patches', patch)),
            (exceptions.InvalidInput, lambda: self.fetch(
                self.b, self.a, 'staging', patch)),
            (exceptions.InvalidInput, lambda: self.fetch(
                self.b, self.a, 'patches', patch[1:])),
            (exceptions.InvalidInput, lambda: self.fetch(
                self.b, self.a, 'images', patch)),
            (exceptions.InvalidInput, lambda: self.b.set_rate(0.0)),
            (exceptions.InvalidInput, lambda: self.plane('d', b'short')),
        ]:
            with self.subTest(expected=expected):
                self.assertRaises(expected, call)
        self.assertFalse(self.dest.exists())

    def test_a_local_directory_that_is_missing(self):
        patch = self.hold('a', 'patches', b'content')
        error = self.assertRaises(
            exceptions.IntegrityError, self.fetch, self.b, self.a, 'patches',
            patch, dest=self.directory / 'missing' / 'output')
        self.assertIn('missing', str(error))

    def test_damage_is_an_integrity_error(self):
        patch = self.hold('a', 'patches', b'content')
        self.held('a', 'patches', patch).write_bytes(b'CONTENT')
        self.assertRaises(exceptions.IntegrityError, self.fetch, self.b,
                          self.a, 'patches', patch)
        self.assertEqual([], list(self.directory.glob('*output*')))

    def test_what_progress_raises_ends_the_call(self):
        patch = self.hold('a', 'patches', bytes(100000))

        def progress(done, total, over_wan):
            raise ZeroDivisionError(f'{done} of {total}')

        self.assertRaises(ZeroDivisionError, self.fetch, self.b, self.a,
                          'patches', patch, progress)
        self.assertFalse(self.dest.exists())

    def test_cancel_and_continue(self):
        content = random.Random(1).randbytes(100 * planes.LEAF)
        image = self.hold_image('a', content)
        handle = self.b.new_handle()

        def progress(done, total, over_wan):
            if done > total // 4:
                handle.cancel()

        options = {'manifest': self.manifest('a', image)}
        self.assertRaises(exceptions.Cancelled, self.fetch, self.b, self.a,
                          'images', image, progress, handle, rate=8e6,
                          **options)
        part = self.dest.with_name(f'.{self.dest.name}.part')
        self.assertTrue(part.exists())
        moved = self.fetch(self.b, self.a, 'images', image, **options)
        self.assertLess(moved, len(content) * 3 // 4)
        self.assertEqual(content, self.dest.read_bytes())
        self.assertFalse(part.exists())

    def test_a_second_fetch_of_the_same_object(self):
        patch = self.hold('a', 'patches', random.Random(1).randbytes(500000))
        self.a.set_rate(1e6)
        first = threading.Thread(target=self.fetch, args=(
            self.b, self.a, 'patches', patch))
        first.start()
        planes.wait_until(lambda: self.b.stats()['in_flight'] == 1)
        error = self.assertRaises(
            exceptions.RetryableError, self.fetch, self.b, self.a, 'patches',
            patch, dest=self.directory / 'other')
        self.assertIn('already', str(error))
        first.join()
        self.assertTrue(self.dest.exists())

    def test_lent_files(self):
        image = self.hold_image(
            'a', random.Random(1).randbytes(planes.LEAF * 3))
        options = {'manifest': self.manifest('a', image)}
        self.fetch(self.b, self.a, 'images', image, **options)
        self.b.lend(views.Key('images', image), self.dest, 600.0)
        c = self.plane('c')
        arguments = (c, self.b, 'images', image)
        options['dest'] = self.directory / 'x'
        self.fetch(*arguments, **options)
        with self.dest.open('r+b') as written:
            written.write(b'the guest has booted')
        os.utime(self.dest, (1, 1))
        self.assertRaises(exceptions.ObjectMissing, self.fetch, *arguments,
                          **options)
        self.b.lend(views.Key('images', image), self.dest, 600.0)
        self.assertEqual(1, self.b.stats()['lent'])
        self.b.end_lending(views.Key('images', image))
        self.assertEqual(0, self.b.stats()['lent'])

    def test_a_borrowed_file_is_served_until_its_content_changes(self):
        content = random.Random(1).randbytes(planes.LEAF * 3)
        image = self.hold_image('a', content)
        key = views.Key('images', image)
        manifest = self.manifest('a', image)
        base = self.directory / 'base'
        base.write_bytes(content)
        c = self.plane('c')
        c.borrow(key, base, manifest)
        os.utime(base, (1, 1))
        self.fetch(self.b, c, *key, manifest=manifest)
        self.assertEqual(content, self.dest.read_bytes())
        self.assertEqual([], c.take_changed())
        with base.open('r+b') as written:
            written.write(b'changed')
        self.assertRaises(exceptions.ObjectMissing, self.fetch, self.b, c,
                          *key, manifest=manifest, dest=self.directory / 'x')
        self.assertEqual([key], c.take_changed())
        self.assertEqual({}, self.b.left_alone())
        base.write_bytes(content[1:])
        self.assertRaises(OSError, c.borrow, key, base, manifest)
        base.write_bytes(content)
        c.borrow(key, base, manifest)
        c.give_back(key)
        self.assertRaises(exceptions.ObjectMissing, self.fetch, self.b, c,
                          *key, manifest=manifest, dest=self.directory / 'x')

    def test_an_option_that_does_not_exist(self):
        self.assertRaises(TypeError, _native.DataPlane,
                          str(self.directory), 'x', '127.0.0.1:0', rat=1.0)


class TestSourceList(planes.DataPlaneTestCase):
    """Several sources, claims, and what gives way to what."""

    def setUp(self):
        super().setUp()
        self.repository = self.plane('repo')
        self.hosts = [self.plane(name, lend_seconds=600.0)
                      for name in ('h1', 'h2', 'h3')]
        for host in self.hosts:
            host.set_site(orders.Host(other.name, other.url)
                          for other in self.hosts)
        self.content = random.Random(1).randbytes(20 * planes.LEAF)
        self.image = self.hold_image('repo', self.content)
        self.key = views.Key('images', self.image)
        self.wan = self.source(self.repository, link=orders.Link.WAN)

    def bring(self, plane, *sources, **options):
        """What bringing the image moves, over WAN and LAN."""
        options.setdefault('dest', self.directory / f'{plane.name}.out')
        delivery = self.deliver(plane, self.order(
            *self.key, *(sources or [self.wan]),
            manifest=self.manifest('repo', self.image), **options))
        self.assertEqual(self.content, options['dest'].read_bytes())
        return delivery.wan_bytes, delivery.lan_bytes

    def fill(self, plane, **options):
        return self.bring(plane, job_class=orders.JobClass.FILL, **options)

    def test_once_over_the_wan_then_from_the_holder(self):
        size = len(self.content)
        for host, moved in zip(self.hosts,
                               ((size, 0), (0, size), (0, size))):
            self.assertEqual(moved, self.bring(host))
        self.assertEqual(size, planes.sent_images(self.repository, size))

    def test_together_they_move_one_copy(self):
        self.repository.set_rate(4e6)
        threads = [threading.Thread(target=self.bring, args=(host,))
                   for host in self.hosts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        size = len(self.content)
        self.assertEqual(size, planes.sent_images(self.repository, size))

    def test_a_dead_holder_is_taken_over(self):
        first, second, third = self.hosts
        self.bring(first)
        first.close()
        self.assertEqual((len(self.content), 0), self.bring(second))
        self.assertEqual((0, len(self.content)), self.bring(third))

    def test_the_next_source_delivers_what_others_did_not(self):
        first, second, third = self.hosts
        second.close()
        delivery = first.deliver(self.order(
            *self.key, self.source(second), self.source(third), self.wan,
            manifest=self.manifest('repo', self.image)),
            first.new_handle(), planes.Silent())
        self.assertEqual(2, delivery.source)
        self.assertEqual(
            [(0, 'h2', exceptions.PeerUnavailable),
             (1, 'h3', exceptions.ObjectMissing)],
            [(failure.source, failure.host, type(failure.error))
             for failure in delivery.failures])
        self.assertEqual({'h2'}, first.unreachable())
        first.clear_unreachable()
        self.assertEqual(frozenset(), first.unreachable())

    def test_no_source_delivers(self):
        first, second, _ = self.hosts
        delivery = first.deliver(self.order(
            *self.key, self.source(second),
            manifest=self.manifest('repo', self.image)),
            first.new_handle(), planes.Silent())
        self.assertIsNone(delivery.source)
        self.assertEqual(1, len(delivery.failures))
        self.assertFalse((self.directory / 'output').exists())

    def test_fills_leave_alone_what_is_expected(self):
        first, second, third = self.hosts
        with first.expecting(self.key):
            for host in self.hosts:
                error = self.assertRaises(exceptions.Cancelled, self.fill,
                                          host)
                self.assertIn(self.image, str(error))
            self.assertEqual((len(self.content), 0), self.bring(second))
        self.assertEqual((0, len(self.content)), self.fill(third))

    def test_what_is_offered_is_read_there(self):
        first, second, _ = self.hosts
        with first.expecting(self.key):
            self.held('h1', 'images', self.image).write_bytes(self.content)
            first.offer(self.key)
        self.assertEqual((0, len(self.content)), self.fill(second))

    def test_a_watch_sees_the_wan_before_it_is_used(self):
        host = self.hosts[0]

        def refuse(done, total, over_wan):
            if over_wan:
                raise exceptions.Cancelled('not now')

        error = self.assertRaises(
            exceptions.Cancelled, self.deliver, host, self.order(
                *self.key, self.wan, job_class=orders.JobClass.FILL,
                manifest=self.manifest('repo', self.image)), refuse)
        self.assertEqual('not now', str(error))
        self.assertEqual(0, self.repository.stats()['requests'])

    def test_a_promoted_fill_has_no_limit(self):
        host, handle = self.hosts[0], self.hosts[0].new_handle()
        order = self.order(
            *self.key, self.wan, rate=1000.0,
            job_class=orders.JobClass.FILL,
            manifest=self.manifest('repo', self.image))
        thread = threading.Thread(target=self.deliver, args=(
            host, order, None, handle))
        thread.start()
        planes.wait_until(lambda: self.repository.stats()['requests'])
        handle.promote()
        # At its rate it would take 20 minutes.
        thread.join()
        self.assertEqual(self.content, order.dest.read_bytes())

    def test_lending_ends_when_the_space_is_needed(self):
        host = self.hosts[0]
        self.assertFalse(host.stop_lending())
        self.bring(host)
        self.assertEqual(1, host.stats()['lent'])
        self.assertTrue(host.stop_lending())
        self.assertEqual(0, host.stats()['lent'])

    def test_what_is_delivered_in_place_is_not_lent(self):
        host = self.hosts[0]
        self.bring(host, dest=self.held('h1', 'images', self.image),
                   in_place=True)
        self.assertEqual(0, host.stats()['lent'])


class TestBuild(planes.DataPlaneTestCase):

    def setUp(self):
        super().setUp()
        self.a = self.plane('a')
        self.b = self.plane('b')
        self.dest = self.directory / 'output'
        generator = random.Random(3)
        old = generator.randbytes(40 * planes.LEAF)
        self.content = (old[:10 * planes.LEAF]
                        + generator.randbytes(planes.LEAF)
                        + old[10 * planes.LEAF:])
        self.base = self.hold_image('a', old)
        self.target = self.hold_image('r', self.content)
        path = self.directory / 'patch'
        _native.patch_create(str(self.held('a', 'images', self.base)),
                             str(self.held('r', 'images', self.target)),
                             str(path), 3)
        self.patch = self.hold('a', 'patches', path.read_bytes())

    def build(self, base_, patch, handle=None):
        return self.deliver(self.b, self.order(
            'images', self.target, orders.BuildSource(base_, patch),
            manifest=self.manifest('r', self.target)), handle=handle)

    def test_remote_and_local_places(self):
        remote_base = self.remote(self.a, 'images', self.base)
        remote_patch = self.remote(self.a, 'patches', self.patch)
        local_base = self.held('a', 'images', self.base)
        local_patch = self.held('a', 'patches', self.patch)
        for base_, patch in [(remote_base, remote_patch),
                             (remote_base, local_patch),
                             (local_base, remote_patch),
                             (local_base, local_patch)]:
            delivery = self.build(base_, patch)
            self.assertEqual(self.content, self.dest.read_bytes())
            remote = base_ is remote_base or patch is remote_patch
            self.assertEqual(remote, delivery.lan_bytes > 0)
            self.assertEqual(0, delivery.wan_bytes)
            self.dest.unlink()

    def test_a_base_that_changed_since(self):
        path = self.held('a', 'images', self.base)
        with path.open('r+b') as changed:
            changed.seek(30 * planes.LEAF)
            changed.write(b'changed')
        self.assertRaises(
            exceptions.IntegrityError, self.build,
            self.remote(self.a, 'images', self.base),
            self.remote(self.a, 'patches', self.patch))
        self.assertEqual([], list(self.directory.glob('*output*')))

    def test_cancelled_before_it_began(self):
        handle = self.b.new_handle()
        handle.cancel()
        self.assertRaises(
            exceptions.Cancelled, self.build,
            self.remote(self.a, 'images', self.base),
            self.remote(self.a, 'patches', self.patch), handle)


class TestSharedBlocks(planes.DataPlaneTestCase):

    def setUp(self):
        super().setUp()
        self.b = self.plane('b')
        image = self.directory / 'filesystem'
        with image.open('wb') as file:
            file.truncate(320 << 20)
        self.mounted = self.directory / 'mounted'
        self.mounted.mkdir()
        make = ['mkfs.xfs', '-q', '-m', 'reflink=1', str(image)]
        mount = ['mount', '-o', 'loop', str(image), str(self.mounted)]
        for command in (make, mount):
            if (shutil.which(command[0]) is None or subprocess.run(
                    command, capture_output=True).returncode != 0):
                self.skipTest('a file system that shares blocks needs '
                              'mkfs.xfs(8) and loop mounts')
        self.addCleanup(subprocess.run, ['umount', str(self.mounted)],
                        check=True)

    def used(self) -> int:
        os.sync()
        status = os.statvfs(self.mounted)
        return (status.f_blocks - status.f_bfree) * status.f_frsize

    def test_only_differences_are_written(self):
        generator = random.Random(5)
        old = bytearray(generator.randbytes(300 * planes.LEAF))
        new = bytearray(old)
        new[7 * planes.LEAF:9 * planes.LEAF] = bytes(2 * planes.LEAF)
        old[50 * planes.LEAF:60 * planes.LEAF] = bytes(10 * planes.LEAF)
        new[100 * planes.LEAF + 5:100 * planes.LEAF + 9] = b'here'
        for content in (new, new[:200 * planes.LEAF + 77],
                        new + generator.randbytes(20 * planes.LEAF)):
            for is_known in (False, True):
                with self.subTest(size=len(content), is_known=is_known):
                    written = self.written(bytes(old), bytes(content),
                                           is_known)
                    self.assertLess(written, 40 * planes.LEAF)

    def written(self, old: bytes, new: bytes, is_known: bool) -> int:
        """Build content on a base that it shares extents with.

        :param is_known: whether the base is known to be right
        :returns: the bytes that the filesystem needs for it
        """
        base_path, target = self.mounted / 'base', self.directory / 'target'
        base_path.write_bytes(old)
        target.write_bytes(new)
        patch, manifest = self.directory / 'patch', self.directory / 'm'
        _native.patch_create(str(base_path), str(target), str(patch), 3)
        _native.manifest_create(str(target), str(manifest))
        base: orders.Place = base_path
        if is_known:
            base = orders.KnownFile(base_path, self.directory / 'of_base')
            _native.manifest_create(str(base_path), str(base.manifest))
        before = self.used()
        output = self.mounted / 'output'
        object_id = _native.hash_file(str(target))
        self.deliver(self.b, self.order(
            'images', object_id,
            orders.BuildSource(base, patch), manifest=manifest,
            dest=output))
        self.assertEqual(new, output.read_bytes())
        self.assertEqual(old, base_path.read_bytes())
        written = self.used() - before
        output.unlink()
        return written
