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
"""What every implementation of a data plane does.

A test module gives each class below its way to open a data plane. The inner
rules of the native one have tests in Rust.
"""

import hashlib
import hmac
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import Callable
import urllib.parse

import hypothesis
from hypothesis import strategies as st

from diffcache_openstack import _native
from diffcache_openstack.agent.data_plane import interface
from diffcache_openstack.common import exceptions
from diffcache_openstack.sites import view
from tests import certificates

LEAF = 65536
KEY = b'0123456789abcdef0123456789abcdef'


def wait_until(probe: Callable[[], bool]) -> None:
    """Wait for what another thread brings about."""
    for _ in range(20000):
        if probe():
            return
        time.sleep(0.005)
    raise AssertionError('waited in vain')


def sent_templates(plane: interface.DataPlane, expected: int) -> int:
    """The bytes of templates that a plane counted as sent.

    It counts bytes after they were sent, so a reader may have all of them
    before: the expected ones are waited for.
    """
    wait_until(lambda: plane.stats()['sent']['templates'] >= expected)
    return plane.stats()['sent']['templates']


class Silent:
    """Progress that only counts."""

    def __init__(self):
        self.seen = []

    def __call__(self, done, total, over_wan):
        if total:
            self.seen.append((done, total))


class DataPlaneTests:
    """Hosts whose planes end with the test; mixed into a test case."""

    def open_plane(self, root: pathlib.Path, name: str, key: bytes | None,
                   **options) -> interface.DataPlane:
        """Open a data plane on a free port of the loopback."""
        raise NotImplementedError

    def plane(self, name: str, key=KEY, **options) -> interface.DataPlane:
        plane = self.open_plane(self.directory / name, name, key, **options)
        self.addCleanup(plane.close)
        return plane

    def source(self, plane, url=None, link=interface.Link.LAN):
        return interface.HostSource(
            interface.Host(plane and plane.name, url or plane.url), link)

    def remote(self, plane, kind, object_id):
        return interface.RemotePart(interface.Host(plane.name, plane.url),
                                    view.Key(kind, object_id))

    def order(self, kind, object_id, *sources, manifest=None, **options):
        options.setdefault('dest', self.directory / 'output')
        options.setdefault('durable', False)
        return interface.Order(view.Key(kind, object_id), sources=sources,
                               manifest=manifest, **options)

    def deliver(self, plane, order, progress=None, handle=None):
        """Carry an order out; the last failure is raised."""
        delivery = plane.deliver(order, handle or plane.new_handle(),
                                 progress or Silent())
        if delivery.source is None:
            raise delivery.failures[-1].error
        return delivery

    def fetch(self, plane, source, kind, object_id, progress=None,
              handle=None, **options):
        """Read an object from one host; returns the bytes that moved."""
        if not isinstance(source, interface.HostSource):
            source = self.source(source)
        delivery = self.deliver(plane, self.order(
            kind, object_id, source, **options), progress, handle)
        return delivery.lan_bytes + delivery.wan_bytes

    def hold(self, host: str, kind: str, content: bytes) -> str:
        path = self.write_file(f'{host}/staging/new', content)
        object_id = _native.hash_file(str(path))
        self.held(host, kind, object_id).parent.mkdir(
            parents=True, exist_ok=True)
        path.rename(self.held(host, kind, object_id))
        return object_id

    def held(self, host: str, kind: str, object_id: str) -> pathlib.Path:
        return self.directory / host / kind / object_id

    def hold_template(self, host: str, content: bytes) -> str:
        object_id = self.hold(host, 'templates', content)
        manifest = self.held(host, 'manifests', object_id)
        manifest.parent.mkdir(parents=True, exist_ok=True)
        _native.manifest_create(
            str(self.held(host, 'templates', object_id)), str(manifest))
        return object_id

    def manifest(self, host: str, object_id: str) -> pathlib.Path:
        return self.held(host, 'manifests', object_id)


class FetchTests(DataPlaneTests):

    def setUp(self):
        super().setUp()
        self.a = self.plane('a')
        self.b = self.plane('b')
        self.dest = self.directory / 'output'

    def test_template_with_its_manifest(self):
        content = (random.Random(1).randbytes(9 * LEAF) + bytes(20 * LEAF)
                   + random.Random(2).randbytes(777))
        image = self.hold_template('a', content)
        manifest = self.held('b', 'manifests', image)
        self.fetch(self.b, self.a, 'manifests', image, dest=manifest)
        progress = Silent()
        moved = self.fetch(self.b, self.a, 'templates', image, progress,
                           manifest=manifest)
        self.assertEqual(content, self.dest.read_bytes())
        self.assertEqual(9 * LEAF + 777, moved)
        self.assertEqual((9 * LEAF + 777,) * 2, progress.seen[-1])
        self.assertEqual(9 * LEAF + 777,
                         sent_templates(self.a, 9 * LEAF + 777))
        self.assertEqual(9 * LEAF + 777,
                         self.b.stats()['received']['templates'])

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
                self.b, self.a, 'templates', patch)),
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
        content = random.Random(1).randbytes(100 * LEAF)
        image = self.hold_template('a', content)
        handle = self.b.new_handle()

        def progress(done, total, over_wan):
            if done > total // 4:
                handle.cancel()

        options = {'manifest': self.manifest('a', image)}
        self.assertRaises(exceptions.Cancelled, self.fetch, self.b, self.a,
                          'templates', image, progress, handle, rate=8e6,
                          **options)
        part = self.dest.with_name(f'.{self.dest.name}.part')
        self.assertTrue(part.exists())
        moved = self.fetch(self.b, self.a, 'templates', image, **options)
        self.assertLess(moved, len(content) * 3 // 4)
        self.assertEqual(content, self.dest.read_bytes())
        self.assertFalse(part.exists())

    def test_a_second_fetch_of_the_same_object(self):
        patch = self.hold('a', 'patches', random.Random(1).randbytes(500000))
        self.a.set_rate(1e6)
        first = threading.Thread(target=self.fetch, args=(
            self.b, self.a, 'patches', patch))
        first.start()
        wait_until(lambda: self.b.stats()['in_flight'] == 1)
        error = self.assertRaises(
            exceptions.RetryableError, self.fetch, self.b, self.a, 'patches',
            patch, dest=self.directory / 'other')
        self.assertIn('already', str(error))
        first.join()
        self.assertTrue(self.dest.exists())

    def test_lent_files(self):
        image = self.hold_template('a', random.Random(1).randbytes(LEAF * 3))
        options = {'manifest': self.manifest('a', image)}
        self.fetch(self.b, self.a, 'templates', image, **options)
        self.b.lend(view.Key('templates', image), self.dest, 600.0)
        c = self.plane('c')
        arguments = (c, self.b, 'templates', image)
        options['dest'] = self.directory / 'x'
        self.fetch(*arguments, **options)
        with self.dest.open('r+b') as written:
            written.write(b'the guest has booted')
        os.utime(self.dest, (1, 1))
        self.assertRaises(exceptions.ObjectMissing, self.fetch, *arguments,
                          **options)
        self.b.lend(view.Key('templates', image), self.dest, 600.0)
        self.assertEqual(1, self.b.stats()['lent'])
        self.b.end_lending(view.Key('templates', image))
        self.assertEqual(0, self.b.stats()['lent'])

    def test_a_borrowed_file_is_served_until_its_content_changes(self):
        content = random.Random(1).randbytes(LEAF * 3)
        image = self.hold_template('a', content)
        key = view.Key('templates', image)
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


class SourceListTests(DataPlaneTests):
    """Several sources, claims, and what gives way to what."""

    def setUp(self):
        super().setUp()
        self.repository = self.plane('repo')
        self.hosts = [self.plane(name, lend_seconds=600.0)
                      for name in ('h1', 'h2', 'h3')]
        for host in self.hosts:
            host.set_site(interface.Host(other.name, other.url)
                          for other in self.hosts)
        self.content = random.Random(1).randbytes(20 * LEAF)
        self.image = self.hold_template('repo', self.content)
        self.key = view.Key('templates', self.image)
        self.wan = self.source(self.repository, link=interface.Link.WAN)

    def bring(self, plane, *sources, **options):
        """What bringing the image moves, over WAN and LAN."""
        options.setdefault('dest', self.directory / f'{plane.name}.out')
        delivery = self.deliver(plane, self.order(
            *self.key, *(sources or [self.wan]),
            manifest=self.manifest('repo', self.image), **options))
        self.assertEqual(self.content, options['dest'].read_bytes())
        return delivery.wan_bytes, delivery.lan_bytes

    def fill(self, plane, **options):
        return self.bring(plane, job_class=interface.JobClass.FILL, **options)

    def test_once_over_the_wan_then_from_the_holder(self):
        size = len(self.content)
        for host, moved in zip(self.hosts,
                               ((size, 0), (0, size), (0, size))):
            self.assertEqual(moved, self.bring(host))
        self.assertEqual(size, sent_templates(self.repository, size))

    def test_together_they_move_one_copy(self):
        self.repository.set_rate(4e6)
        threads = [threading.Thread(target=self.bring, args=(host,))
                   for host in self.hosts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        size = len(self.content)
        self.assertEqual(size, sent_templates(self.repository, size))

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
            first.new_handle(), Silent())
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
            first.new_handle(), Silent())
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
            self.held('h1', 'templates', self.image).write_bytes(self.content)
            first.offer(self.key)
        self.assertEqual((0, len(self.content)), self.fill(second))

    def test_a_watch_sees_the_wan_before_it_is_used(self):
        host = self.hosts[0]

        def refuse(done, total, over_wan):
            if over_wan:
                raise exceptions.Cancelled('not now')

        error = self.assertRaises(
            exceptions.Cancelled, self.deliver, host, self.order(
                *self.key, self.wan, job_class=interface.JobClass.FILL,
                manifest=self.manifest('repo', self.image)), refuse)
        self.assertEqual('not now', str(error))
        self.assertEqual(0, self.repository.stats()['requests'])

    def test_a_promoted_fill_has_no_limit(self):
        host, handle = self.hosts[0], self.hosts[0].new_handle()
        order = self.order(
            *self.key, self.wan, rate=1000.0,
            job_class=interface.JobClass.FILL,
            manifest=self.manifest('repo', self.image))
        thread = threading.Thread(target=self.deliver, args=(
            host, order, None, handle))
        thread.start()
        wait_until(lambda: self.repository.stats()['requests'])
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
        self.bring(host, dest=self.held('h1', 'templates', self.image),
                   in_place=True)
        self.assertEqual(0, host.stats()['lent'])


class BuildTests(DataPlaneTests):

    def setUp(self):
        super().setUp()
        self.a = self.plane('a')
        self.b = self.plane('b')
        self.dest = self.directory / 'output'
        generator = random.Random(3)
        old = generator.randbytes(40 * LEAF)
        self.content = (old[:10 * LEAF] + generator.randbytes(LEAF)
                        + old[10 * LEAF:])
        self.base = self.hold_template('a', old)
        self.target = self.hold_template('r', self.content)
        path = self.directory / 'patch'
        _native.patch_create(str(self.held('a', 'templates', self.base)),
                             str(self.held('r', 'templates', self.target)),
                             str(path), 3)
        self.patch = self.hold('a', 'patches', path.read_bytes())

    def build(self, base_, patch, handle=None):
        return self.deliver(self.b, self.order(
            'templates', self.target, interface.BuildSource(base_, patch),
            manifest=self.manifest('r', self.target)), handle=handle)

    def test_remote_and_local_places(self):
        remote_base = self.remote(self.a, 'templates', self.base)
        remote_patch = self.remote(self.a, 'patches', self.patch)
        local_base = self.held('a', 'templates', self.base)
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
        path = self.held('a', 'templates', self.base)
        with path.open('r+b') as changed:
            changed.seek(30 * LEAF)
            changed.write(b'changed')
        self.assertRaises(
            exceptions.IntegrityError, self.build,
            self.remote(self.a, 'templates', self.base),
            self.remote(self.a, 'patches', self.patch))
        self.assertEqual([], list(self.directory.glob('*output*')))

    def test_cancelled_before_it_began(self):
        handle = self.b.new_handle()
        handle.cancel()
        self.assertRaises(
            exceptions.Cancelled, self.build,
            self.remote(self.a, 'templates', self.base),
            self.remote(self.a, 'patches', self.patch), handle)


class SharedBlocksTests(DataPlaneTests):

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
        old = bytearray(generator.randbytes(300 * LEAF))
        new = bytearray(old)
        new[7 * LEAF:9 * LEAF] = bytes(2 * LEAF)
        old[50 * LEAF:60 * LEAF] = bytes(10 * LEAF)
        new[100 * LEAF + 5:100 * LEAF + 9] = b'here'
        for content in (new, new[:200 * LEAF + 77],
                        new + generator.randbytes(20 * LEAF)):
            with self.subTest(size=len(content)):
                written = self.written(bytes(old), bytes(content))
                self.assertLess(written, 40 * LEAF)

    def written(self, old: bytes, new: bytes) -> int:
        """Build content on a base that it shares extents with.

        :returns: the bytes that the filesystem needs for it
        """
        base_path, target = self.mounted / 'base', self.directory / 'target'
        base_path.write_bytes(old)
        target.write_bytes(new)
        patch, manifest = self.directory / 'patch', self.directory / 'm'
        _native.patch_create(str(base_path), str(target), str(patch), 3)
        _native.manifest_create(str(target), str(manifest))
        before = self.used()
        output = self.mounted / 'output'
        object_id = _native.hash_file(str(target))
        self.deliver(self.b, self.order(
            'templates', object_id,
            interface.BuildSource(base_path, patch), manifest=manifest,
            dest=output))
        self.assertEqual(new, output.read_bytes())
        self.assertEqual(old, base_path.read_bytes())
        written = self.used() - before
        output.unlink()
        return written


class ServerTests(DataPlaneTests):

    def request(self, plane, method: str, path: str,
                body: str | None = None) -> tuple[int, dict]:
        where = urllib.parse.urlsplit(plane.url)
        connection = http.client.HTTPConnection(where.hostname, where.port)
        self.addCleanup(connection.close)
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, json.loads(response.read() or b'{}')

    def test_health_and_errors_are_json(self):
        plane = self.plane('a', key=None)
        status, health = self.request(plane, 'GET', '/v1/health')
        self.assertEqual((200, 'ok', 'a'),
                         (status, health['status'], health['name']))
        status, error = self.request(plane, 'GET', '/v1/objects/x/y')
        self.assertEqual((404, 'route'), (status, error['reason']))

    def test_what_peers_read_for_a_trace_is_known(self):
        holder, reader = self.plane('a', traces=True), self.plane('b')
        patch = self.hold('a', 'patches', b'content' * 1000)
        for trace in ('Zm9v.0f', None):
            self.fetch(reader, holder, 'patches', patch, trace=trace)
        found = []
        # It is noted after the last byte was sent.
        wait_until(lambda: found.extend(holder.take_served(0.0)) or found)
        [served] = found
        self.assertEqual(
            ('Zm9v.0f', view.Key('patches', patch), 7000),
            (served.trace, served.key, served.size))
        self.assertLessEqual(served.began, served.ended)
        self.assertLess(abs(time.time() - served.ended), 3600)
        self.assertGreater(served.requests, 0)
        self.assertEqual([], reader.take_served(0.0))
        self.assertRaises(exceptions.InvalidInput, self.fetch, reader,
                          holder, 'patches', patch, trace='a\r\nb: c')

    def test_unsigned_requests_are_refused(self):
        status, error = self.request(self.plane('a'), 'GET', '/v1/health')
        self.assertEqual((401, 'no-credentials'), (status, error['reason']))

    def signed(self, plane, method: str, path: str, body: str = '',
               boot: str = '-') -> http.client.HTTPResponse:
        """Send a request that is signed as the reference describes it."""
        where = urllib.parse.urlsplit(plane.url)
        now, nonce = str(int(time.time())), os.urandom(16).hex()
        text = '\n'.join(['diffcache-2', method, path, '',
                          hashlib.sha256(body.encode()).hexdigest(),
                          now, nonce, where.netloc, boot])
        code = hmac.new(KEY, text.encode(), 'sha256').hexdigest()
        connection = http.client.HTTPConnection(where.hostname, where.port)
        self.addCleanup(connection.close)
        connection.request(method, path, body, {
            'Authorization': f'DiffCache site-1:{now}:{nonce}:{code}:{boot}'})
        return connection.getresponse()

    def claim(self, plane, object_id: str) -> dict:
        """Claim a template."""
        health = self.signed(plane, 'HEAD', '/v1/health')
        self.assertEqual(200, health.status)
        response = self.signed(
            plane, 'POST', f'/v1/claims/templates/{object_id}',
            json.dumps({'holder': 'x', 'url': 'http://x:1'}),
            health.headers['X-DiffCache-Boot'])
        self.assertEqual(200, response.status)
        return json.loads(response.read())

    def test_a_signature_as_the_reference_describes_it(self):
        plane = self.plane('a', key_name='site-1')
        self.assertEqual({'holder': 'x', 'url': 'http://x:1'},
                         self.claim(plane, '5' * 64))

    def test_a_claim_ends_with_its_time(self):
        plane = self.plane('a', key_name='site-1', claim_ttl=0.05)
        plane.offer(view.Key('templates', '5' * 64))
        wait_until(lambda: self.claim(plane, '5' * 64)['holder'] == 'x')
        self.assertEqual({'holder': 'x', 'url': 'http://x:1'},
                         self.claim(plane, '5' * 64))

    def test_a_claim_names_the_advertised_url(self):
        a = self.plane('a', key_name='site-1')
        b = self.plane('b', key_name='site-1',
                       advertise_url='http://host-b:9999')
        self.assertEqual('http://host-b:9999', b.url)
        b.set_site([interface.Host('a', a.url)])
        ids = (f'{number:064x}' for number in range(64))
        while not a.stats()['claims']:
            found = next(ids)
            b.offer(view.Key('templates', found))
        self.assertEqual({'holder': 'b', 'url': 'http://host-b:9999'},
                         self.claim(a, found))

    def test_closing_twice(self):
        plane = self.plane('a')
        plane.close()
        plane.close()
        self.assertEqual(0, plane.stats()['open_connections'])

    def test_readers(self):
        a, b = self.plane('a'), self.plane('b')
        patch = self.hold('a', 'patches', random.Random(1).randbytes(500000))
        a.set_rate(1e6)
        fetch = threading.Thread(target=self.fetch, args=(
            b, a, 'patches', patch))
        fetch.start()
        wait_until(lambda: a.readers('patches', patch) == 1)
        a.set_rate(None)
        fetch.join()
        wait_until(lambda: a.readers('patches', patch) == 0)
        self.assertFalse(fetch.is_alive())


class InterruptionTests(DataPlaneTests):

    #: A program with a data plane: its root and the site's key; then the
    #: URL, kind, id, file and manifest of what it fetches, if anything.
    SCRIPT: str

    def start(self, *arguments: object) -> subprocess.Popen:
        process = subprocess.Popen(
            [sys.executable, '-c', self.SCRIPT, *map(str, arguments)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def victim(self, process) -> interface.HostSource:
        url = process.stdout.readline().strip()
        return interface.HostSource(interface.Host('victim', url),
                                    interface.Link.LAN)

    def test_readers_that_go_away_do_not_end_the_process(self):
        b = self.plane('b')
        patch = self.hold('a', 'patches', random.Random(1).randbytes(4000000))
        victim = self.start(self.directory / 'a', KEY.decode())
        source = self.victim(victim)
        for _ in range(3):
            handle = b.new_handle()
            self.assertRaises(
                exceptions.Cancelled, self.fetch, b, source, 'patches', patch,
                lambda done, total, over_wan, end=handle: end.cancel(),
                handle)
        self.fetch(b, source, 'patches', patch)
        self.assertIsNone(victim.poll())

    def test_a_peer_that_is_killed_in_the_middle(self):
        b, c = self.plane('b'), self.plane('c')
        content = random.Random(1).randbytes(60 * LEAF)
        image = self.hold_template('a', content)
        options = {'manifest': self.manifest('a', image)}
        victim = self.start(self.directory / 'a', KEY.decode())
        source = self.victim(victim)
        dest = self.directory / 'output'

        def progress(done, total, over_wan):
            if done > total // 3:
                os.kill(victim.pid, signal.SIGKILL)

        self.assertRaises(exceptions.PeerUnavailable, self.fetch, b, source,
                          'templates', image, progress, **options)
        self.assertFalse(dest.exists())
        shutil.copytree(self.directory / 'a' / 'templates',
                        self.directory / 'c' / 'templates',
                        dirs_exist_ok=True)
        moved = self.fetch(b, c, 'templates', image, **options)
        self.assertLess(moved, len(content) * 2 // 3 + LEAF)
        self.assertEqual(content, dest.read_bytes())

    def test_a_fetch_that_is_killed_is_continued_by_the_next_process(self):
        a, b = self.plane('a'), self.plane('b')
        content = random.Random(1).randbytes(60 * LEAF)
        image = self.hold_template('a', content)
        manifest = self.manifest('a', image)
        dest = self.directory / 'output'
        victim = self.start(self.directory / 'v', KEY.decode(), a.url,
                            'templates', image, dest, manifest)
        victim.stdout.readline()
        while int(victim.stdout.readline()) < len(content) // 3:
            pass
        error = self.assertRaises(
            exceptions.RetryableError, self.fetch, b, a, 'templates', image,
            manifest=manifest)
        self.assertIn('already', str(error))
        victim.kill()
        victim.wait()
        self.assertFalse(dest.exists())
        moved = self.fetch(b, a, 'templates', image, manifest=manifest)
        self.assertLess(moved, len(content) * 2 // 3 + LEAF)
        self.assertEqual(content, dest.read_bytes())


class FullDiskTests(DataPlaneTests):

    def setUp(self):
        super().setUp()
        self.a = self.plane('a')
        self.b = self.plane('b')
        self.small = self.directory / 'small'
        self.small.mkdir()
        mount = ['mount', '-t', 'tmpfs', '-o', 'size=2m', 'tmpfs',
                 str(self.small)]
        if subprocess.run(mount, capture_output=True).returncode != 0:
            self.skipTest('a file system that can be filled needs mount(8)')
        self.addCleanup(subprocess.run, ['umount', str(self.small)],
                        check=True)

    def test_too_large_from_the_start(self):
        content = random.Random(1).randbytes(50 * LEAF)
        image = self.hold_template('a', content)
        self.assertRaises(
            exceptions.NoSpace, self.fetch, self.b, self.a, 'templates',
            image, dest=self.small / 'output',
            manifest=self.manifest('a', image))
        self.assertEqual([], list(self.small.iterdir()))
        self.assertEqual(0, self.a.stats()['sent']['templates'])

    def test_filled_up_by_somebody_else_meanwhile(self):
        content = random.Random(1).randbytes(30 * LEAF)
        image = self.hold_template('a', content)
        patch = self.hold('a', 'patches', content)

        def fill(done, total, over_wan):
            with (self.small / 'other').open('wb', buffering=0) as other:
                try:
                    while True:
                        other.write(bytes(4096))
                except OSError:
                    pass

        self.a.set_rate(10e6)
        for kind, object_id, manifest in [
                ('templates', image, self.manifest('a', image)),
                ('patches', patch, None)]:
            self.assertRaises(
                exceptions.NoSpace, self.fetch, self.b, self.a, kind,
                object_id, fill, dest=self.small / 'output',
                manifest=manifest)
            self.assertEqual([self.small / 'other'],
                             list(self.small.iterdir()))
            (self.small / 'other').unlink()


class AnyImageTests(DataPlaneTests):

    @hypothesis.given(st.lists(st.sampled_from([0, 1, 2]), max_size=12),
                      st.integers(0, LEAF - 1))
    @hypothesis.settings(max_examples=15)
    def test_arrives_as_it_is_and_costs_its_data(self, leaves, tail):
        generator = random.Random(1)
        blocks = [bytes(LEAF), generator.randbytes(LEAF),
                  bytes(LEAF - 1) + b'x']
        content = b''.join(blocks[leaf] for leaf in leaves)
        content += generator.randbytes(tail)
        a, b = self.plane('a'), self.plane('b')
        image = self.hold_template('a', content)
        manifest = self.manifest('a', image)
        dest = self.directory / 'output'
        moved = self.fetch(b, a, 'templates', image, manifest=manifest)
        self.assertEqual(content, dest.read_bytes())
        self.assertEqual(_native.manifest_info(str(manifest))['data_size'],
                         moved)


class TlsTests(DataPlaneTests):

    def setUp(self):
        super().setUp()
        self.authority = certificates.Authority(self.directory / 'tls')

    def secure(self, name: str, **options) -> interface.DataPlane:
        return self.plane(name, **self.authority.issue(name), **options)

    def fetch_refused(self, reader, server, patch) -> str:
        """The message of the error that an operator has to act on."""
        error = self.assertRaises(exceptions.PeerUntrusted, self.fetch,
                                  reader, server, 'patches', patch)
        self.assertIsInstance(error, exceptions.PermanentError)
        self.assertIn(server.url, str(error))
        return str(error)

    def test_objects_arrive(self):
        a, b = self.secure('a'), self.secure('b')
        patch = self.hold('a', 'patches', b'content' * 100000)
        self.assertTrue(a.url.startswith('https://'))
        self.assertEqual(700000, self.fetch(b, a, 'patches', patch))
        stats = a.stats()
        self.assertEqual((1, 0, 0), (
            stats['handshakes'], stats['handshakes_failed'],
            stats['plain_refused']))
        self.assertEqual([], a.take_complaints())

    def test_peers_of_another_authority_or_time_or_name(self):
        reader = self.secure('b')
        patch = self.hold('a', 'patches', b'content')
        stranger = certificates.Authority(self.directory / 'other')
        for files, told in (
                (stranger.issue('a'), 'tls_ca_file'),
                (self.authority.issue('old', days=-1), 'expired'),
                (self.authority.issue('far', '192.0.2.1'), 'not valid for')):
            server = self.plane('a', **files)
            self.assertIn(told, self.fetch_refused(reader, server, patch))
            wait_until(lambda: server.stats()['handshakes_failed'])
            ((address, reason, count),) = server.take_complaints()
            self.assertEqual(('127.0.0.1', 1), (address, count))
            self.assertIn('tls_cert_file', reason)
            server.close()

    def test_only_one_side_speaks_tls(self):
        secure, plain = self.secure('a'), self.plane('b')
        patch = self.hold('a', 'patches', b'content')
        told = self.fetch_refused(plain, secure, patch)
        self.assertIn('tls_cert_file', told)
        told = self.fetch_refused(secure, plain, patch)
        self.assertIn('no TLS', told)
        self.assertEqual(0, plain.stats()['requests'] -
                         plain.stats()['failed'])

    def test_certificates_are_replaced_while_it_serves(self):
        a, b = self.secure('a'), self.secure('b')
        patch = self.hold('a', 'patches', b'content')
        self.authority = certificates.Authority(self.directory / 'tls')
        self.authority.issue('a')
        a.reload_tls()
        self.assertIn(a.url, self.fetch_refused(b, a, patch))
        self.authority.issue('b')
        b.reload_tls()
        self.fetch(b, a, 'patches', patch)
