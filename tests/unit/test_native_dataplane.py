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
"""The data plane as Python sees it; its inner rules have tests in Rust."""

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
from diffcache_openstack.blocks import native
from diffcache_openstack.common import exceptions
from tests import base
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


class DataPlaneTestCase(base.TestCase):
    """Hosts whose planes end with the test."""

    def plane(self, name: str, **options) -> _native.DataPlane:
        options.setdefault('key', KEY)
        plane = _native.DataPlane(str(self.directory / name), name,
                                  '127.0.0.1:0', **options)
        self.addCleanup(plane.close)
        return plane

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

    def manifest(self, host: str, object_id: str) -> str:
        return str(self.held(host, 'manifests', object_id))


class TestFetch(DataPlaneTestCase):

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
        self.b.fetch(self.a.url, 'manifests', image, str(manifest))
        seen = []
        result = self.b.fetch(
            self.a.url, 'templates', image, str(self.dest), str(manifest),
            progress=lambda done, total: seen.append((done, total)))
        self.assertEqual(content, self.dest.read_bytes())
        self.assertEqual(9 * LEAF + 777, result['bytes'])
        self.assertGreater(result['seconds'], 0)
        self.assertEqual((9 * LEAF + 777,) * 2, seen[-1])
        self.assertEqual(9 * LEAF + 777, self.a.stats()['sent']['templates'])
        self.assertEqual(9 * LEAF + 777,
                         self.b.stats()['received']['templates'])

    def test_errors_have_types_that_callers_know(self):
        patch = self.hold('a', 'patches', b'content')
        other = self.plane('c', key=b'another key, long enough',
                           key_name='other')
        absent = '0' * 64
        for expected, call in [
            (exceptions.ObjectMissing, lambda: self.b.fetch(
                self.a.url, 'patches', absent, str(self.dest))),
            (exceptions.PeerRefused, lambda: other.fetch(
                self.a.url, 'patches', patch, str(self.dest))),
            (exceptions.PeerUnavailable, lambda: self.b.fetch(
                'http://127.0.0.1:1', 'patches', patch, str(self.dest))),
            (exceptions.InvalidInput, lambda: self.b.fetch(
                'somewhere', 'patches', patch, str(self.dest))),
            (exceptions.InvalidInput, lambda: self.b.fetch(
                self.a.url, 'staging', patch, str(self.dest))),
            (exceptions.InvalidInput, lambda: self.b.fetch(
                self.a.url, 'patches', patch[1:], str(self.dest))),
            (exceptions.InvalidInput, lambda: self.b.fetch(
                self.a.url, 'templates', patch, str(self.dest))),
            (exceptions.InvalidInput, lambda: self.b.set_rate(0.0)),
            (exceptions.InvalidInput, lambda: self.plane('d', key=b'short')),
        ]:
            with self.subTest(expected=expected):
                def translated():
                    with native.translated():
                        call()
                self.assertRaises(expected, translated)
        self.assertFalse(self.dest.exists())

    def test_a_local_directory_that_is_missing(self):
        patch = self.hold('a', 'patches', b'content')
        self.assertRaises(
            FileNotFoundError, self.b.fetch, self.a.url, 'patches', patch,
            str(self.directory / 'missing' / 'output'))

    def test_damage_is_an_integrity_error(self):
        patch = self.hold('a', 'patches', b'content')
        self.held('a', 'patches', patch).write_bytes(b'CONTENT')
        self.assertRaises(_native.IntegrityError, self.b.fetch, self.a.url,
                          'patches', patch, str(self.dest))
        self.assertEqual([], list(self.directory.glob('*output*')))

    def test_what_progress_raises_ends_the_call(self):
        patch = self.hold('a', 'patches', bytes(100000))

        def progress(done, total):
            raise ZeroDivisionError(f'{done} of {total}')

        self.assertRaises(ZeroDivisionError, self.b.fetch, self.a.url,
                          'patches', patch, str(self.dest),
                          progress=progress)
        self.assertFalse(self.dest.exists())

    def test_cancel_and_continue(self):
        content = random.Random(1).randbytes(100 * LEAF)
        image = self.hold_template('a', content)
        cancel = _native.Cancel()

        def progress(done, total):
            if done > total // 4:
                cancel.cancel()

        arguments = (self.a.url, 'templates', image, str(self.dest),
                     self.manifest('a', image))
        self.assertRaises(_native.Cancelled, self.b.fetch, *arguments,
                          rate=8e6, progress=progress, cancel=cancel)
        self.assertTrue(cancel.cancelled)
        part = pathlib.Path(_native.DataPlane.part_path(str(self.dest)))
        self.assertTrue(part.exists())
        result = self.b.fetch(*arguments)
        self.assertLess(result['bytes'], len(content) * 3 // 4)
        self.assertEqual(content, self.dest.read_bytes())
        self.assertFalse(part.exists())

    def test_a_second_fetch_of_the_same_object(self):
        patch = self.hold('a', 'patches', random.Random(1).randbytes(500000))
        self.a.set_rate(1e6)
        first = threading.Thread(target=self.b.fetch, args=(
            self.a.url, 'patches', patch, str(self.dest)))
        first.start()
        wait_until(lambda: self.b.stats()['in_flight'] == 1)
        self.assertRaises(_native.AlreadyInFlight, self.b.fetch, self.a.url,
                          'patches', patch, str(self.directory / 'other'))
        first.join()
        self.assertTrue(self.dest.exists())

    def test_lent_outputs(self):
        image = self.hold_template('a', random.Random(1).randbytes(LEAF * 3))
        manifest = self.manifest('a', image)
        self.b.fetch(self.a.url, 'templates', image, str(self.dest), manifest,
                     lend=600.0, durable=False)
        c = self.plane('c')
        arguments = (self.b.url, 'templates', image, str(self.directory / 'x'),
                     manifest)
        c.fetch(*arguments)
        with self.dest.open('r+b') as written:
            written.write(b'the guest has booted')
        os.utime(self.dest, (1, 1))
        self.assertRaises(_native.ObjectMissing, c.fetch, *arguments)


class TestBuild(DataPlaneTestCase):

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

    def test_remote_and_local_places(self):
        remote_base = (self.a.url, 'templates', self.base)
        remote_patch = (self.a.url, 'patches', self.patch)
        local_base = str(self.held('a', 'templates', self.base))
        local_patch = self.held('a', 'patches', self.patch)
        manifest = self.manifest('r', self.target)
        for base_, patch in [(remote_base, remote_patch),
                             (remote_base, local_patch),
                             (local_base, remote_patch),
                             (local_base, local_patch)]:
            result = self.b.build(base_, patch, manifest, str(self.dest),
                                  durable=False)
            self.assertEqual(self.content, self.dest.read_bytes())
            self.assertEqual(base_ == remote_base, result['base_bytes'] > 0)
            self.assertEqual(patch == remote_patch, result['patch_bytes'] > 0)
            self.assertEqual(result['base_bytes'] + result['patch_bytes'],
                             result['bytes'])
            self.dest.unlink()

    def test_a_base_that_changed_since(self):
        path = self.held('a', 'templates', self.base)
        with path.open('r+b') as changed:
            changed.seek(30 * LEAF)
            changed.write(b'changed')
        self.assertRaises(
            _native.IntegrityError, self.b.build,
            (self.a.url, 'templates', self.base),
            (self.a.url, 'patches', self.patch),
            self.manifest('r', self.target), str(self.dest))
        self.assertEqual([], list(self.directory.glob('*output*')))

    def test_cancelled_before_it_began(self):
        cancel = _native.Cancel()
        cancel.cancel()
        self.assertRaises(
            _native.Cancelled, self.b.build,
            (self.a.url, 'templates', self.base),
            (self.a.url, 'patches', self.patch),
            self.manifest('r', self.target), str(self.dest), cancel=cancel)


class TestBuildWithSharedBlocks(DataPlaneTestCase):

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
                self.check(bytes(old), bytes(content))

    def check(self, old: bytes, new: bytes) -> None:
        base_path, target = self.mounted / 'base', self.directory / 'target'
        base_path.write_bytes(old)
        target.write_bytes(new)
        patch, manifest = self.directory / 'patch', self.directory / 'm'
        _native.patch_create(str(base_path), str(target), str(patch), 3)
        _native.manifest_create(str(target), str(manifest))
        before = self.used()
        output = self.mounted / 'output'
        self.b.build(base_path, patch, str(manifest), str(output))
        self.assertEqual(new, output.read_bytes())
        self.assertEqual(old, base_path.read_bytes())
        self.assertLess(self.used() - before, 40 * LEAF)
        output.unlink()


class TestServer(DataPlaneTestCase):

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

    def test_unsigned_requests_are_refused(self):
        status, error = self.request(self.plane('a'), 'GET', '/v1/health')
        self.assertEqual((401, 'no-credentials'), (status, error['reason']))

    def test_a_signature_as_the_reference_describes_it(self):
        plane = self.plane('a', key_name='site-1')
        path = '/v1/claims/templates/' + '5' * 64
        body = json.dumps({'holder': 'x', 'url': 'http://x:1'})
        now, nonce = str(int(time.time())), os.urandom(16).hex()
        text = '\n'.join(['diffcache-1', 'POST', path, '',
                          hashlib.sha256(body.encode()).hexdigest(),
                          now, nonce])
        code = hmac.new(KEY, text.encode(), 'sha256').hexdigest()
        where = urllib.parse.urlsplit(plane.url)
        connection = http.client.HTTPConnection(where.hostname, where.port)
        self.addCleanup(connection.close)
        connection.request('POST', path, body, {
            'Authorization': f'DiffCache site-1:{now}:{nonce}:{code}'})
        response = connection.getresponse()
        self.assertEqual(200, response.status)
        self.assertEqual({'holder': 'x', 'url': 'http://x:1'},
                         json.loads(response.read()))

    def test_claims(self):
        a, b = self.plane('a', claim_ttl=5.0), self.plane('b')
        key = ('templates', '5' * 64)
        self.assertEqual(5.0, a.claim_ttl)
        self.assertEqual(('b', b.url), b.claim(a.url, *key))
        self.assertEqual(('b', b.url), a.claim(a.url, *key))
        self.assertEqual(('a', a.url), a.claim(a.url, *key, suspect='b'))
        self.assertEqual(('a', a.url), b.claim(a.url, *key))
        b.release(a.url, *key)
        a.release(a.url, *key)
        self.assertEqual(('b', b.url), b.claim(a.url, *key))

    def test_a_claim_ends_with_its_time(self):
        a, b = self.plane('a', claim_ttl=0.05), self.plane('b')
        key = ('templates', '5' * 64)
        b.claim(a.url, *key)
        wait_until(lambda: a.claim(a.url, *key) == ('a', a.url))

    def test_a_claim_tells_the_advertised_url(self):
        a = self.plane('a')
        b = self.plane('b', advertise_url='http://host-b:9999')
        self.assertEqual('http://host-b:9999', b.url)
        self.assertEqual(('b', 'http://host-b:9999'),
                         b.claim(a.url, 'patches', '5' * 64))

    def test_closing_twice_and_from_within(self):
        with self.plane('a') as plane:
            pass
        plane.close()
        self.assertEqual(0, plane.stats()['open_connections'])

    def test_readers(self):
        a, b = self.plane('a'), self.plane('b')
        patch = self.hold('a', 'patches', random.Random(1).randbytes(500000))
        a.set_rate(1e6)
        fetch = threading.Thread(target=b.fetch, args=(
            a.url, 'patches', patch, str(self.directory / 'output')))
        fetch.start()
        wait_until(lambda: a.readers('patches', patch) == 1)
        a.set_rate(None)
        fetch.join()
        wait_until(lambda: a.readers('patches', patch) == 0)


class TestInterruptions(DataPlaneTestCase):

    SCRIPT = """
import sys
import signal
from diffcache_openstack import _native
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
def progress(done, total):
    print(done, flush=True)
plane = _native.DataPlane(sys.argv[1], 'victim', '127.0.0.1:0',
                          key=sys.argv[2].encode(), rate=1e6)
print(plane.url, flush=True)
if len(sys.argv) > 3:
    plane.fetch(*sys.argv[3:], rate=1e6, progress=progress)
sys.stdin.read()
"""

    def start(self, *arguments: str) -> subprocess.Popen:
        process = subprocess.Popen(
            [sys.executable, '-c', self.SCRIPT, *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_readers_that_go_away_do_not_end_the_process(self):
        b = self.plane('b')
        patch = self.hold('a', 'patches', random.Random(1).randbytes(4000000))
        victim = self.start(str(self.directory / 'a'), KEY.decode())
        url = victim.stdout.readline().strip()
        arguments = (url, 'patches', patch, str(self.directory / 'output'))
        for _ in range(3):
            cancel = _native.Cancel()
            self.assertRaises(
                _native.Cancelled, b.fetch, *arguments, cancel=cancel,
                progress=lambda done, total, end=cancel: end.cancel())
        b.fetch(*arguments)
        self.assertIsNone(victim.poll())

    def test_a_peer_that_is_killed_in_the_middle(self):
        b, c = self.plane('b'), self.plane('c')
        content = random.Random(1).randbytes(60 * LEAF)
        image = self.hold_template('a', content)
        manifest = self.manifest('a', image)
        victim = self.start(str(self.directory / 'a'), KEY.decode())
        url = victim.stdout.readline().strip()
        dest = self.directory / 'output'

        def progress(done, total):
            if done > total // 3:
                os.kill(victim.pid, signal.SIGKILL)

        self.assertRaises(_native.PeerUnavailable, b.fetch, url, 'templates',
                          image, str(dest), manifest, progress=progress)
        self.assertFalse(dest.exists())
        shutil.copytree(self.directory / 'a' / 'templates',
                        self.directory / 'c' / 'templates',
                        dirs_exist_ok=True)
        result = b.fetch(c.url, 'templates', image, str(dest), manifest)
        self.assertLess(result['bytes'], len(content) * 2 // 3 + LEAF)
        self.assertEqual(content, dest.read_bytes())

    def test_a_fetch_that_is_killed_is_continued_by_the_next_process(self):
        a, b = self.plane('a'), self.plane('b')
        content = random.Random(1).randbytes(60 * LEAF)
        image = self.hold_template('a', content)
        manifest = self.manifest('a', image)
        dest = self.directory / 'output'
        victim = self.start(str(self.directory / 'v'), KEY.decode(), a.url,
                            'templates', image, str(dest), manifest)
        victim.stdout.readline()
        while int(victim.stdout.readline()) < len(content) // 3:
            pass
        self.assertRaises(_native.AlreadyInFlight, b.fetch, a.url,
                          'templates', image, str(dest), manifest)
        victim.kill()
        victim.wait()
        self.assertFalse(dest.exists())
        result = b.fetch(a.url, 'templates', image, str(dest), manifest)
        self.assertLess(result['bytes'], len(content) * 2 // 3 + LEAF)
        self.assertEqual(content, dest.read_bytes())


class TestFullDisk(DataPlaneTestCase):

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
            _native.NoSpace, self.b.fetch, self.a.url, 'templates', image,
            str(self.small / 'output'), self.manifest('a', image))
        self.assertEqual([], list(self.small.iterdir()))
        self.assertEqual(0, self.a.stats()['sent']['templates'])

    def test_filled_up_by_somebody_else_meanwhile(self):
        content = random.Random(1).randbytes(30 * LEAF)
        image = self.hold_template('a', content)
        patch = self.hold('a', 'patches', content)

        def fill(done, total):
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
                _native.NoSpace, self.b.fetch, self.a.url, kind, object_id,
                str(self.small / 'output'), manifest, progress=fill)
            self.assertEqual([self.small / 'other'],
                             list(self.small.iterdir()))
            (self.small / 'other').unlink()


class TestAnyImage(DataPlaneTestCase):

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
        result = b.fetch(a.url, 'templates', image, str(dest), manifest,
                         durable=False)
        self.assertEqual(content, dest.read_bytes())
        self.assertEqual(_native.manifest_info(manifest)['data_size'],
                         result['bytes'])


class TestTls(DataPlaneTestCase):

    def setUp(self):
        super().setUp()
        self.authority = certificates.Authority(self.directory / 'tls')
        self.dest = str(self.directory / 'output')

    def secure(self, name: str, **options) -> _native.DataPlane:
        return self.plane(name, **self.authority.issue(name), **options)

    def fetch_refused(self, reader, url, patch) -> str:
        """The message of the error that somebody has to act on."""
        def fetch():
            with native.translated():
                reader.fetch(url, 'patches', patch, self.dest)
        error = self.assertRaises(exceptions.PeerUntrusted, fetch)
        self.assertIsInstance(error, exceptions.PermanentError)
        self.assertIn(url, str(error))
        return str(error)

    def test_objects_arrive(self):
        a, b = self.secure('a'), self.secure('b')
        patch = self.hold('a', 'patches', b'content' * 100000)
        self.assertTrue(a.url.startswith('https://'))
        result = b.fetch(a.url, 'patches', patch, self.dest)
        self.assertEqual(700000, result['bytes'])
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
            with self.plane('a', **files) as server:
                self.assertIn(told, self.fetch_refused(
                    reader, server.url, patch))
                wait_until(lambda: server.stats()['handshakes_failed'])
                ((address, reason, count),) = server.take_complaints()
                self.assertEqual(('127.0.0.1', 1), (address, count))
                self.assertIn('tls_cert_file', reason)

    def test_only_one_side_speaks_tls(self):
        secure, plain = self.secure('a'), self.plane('b')
        patch = self.hold('a', 'patches', b'content')
        told = self.fetch_refused(plain, secure.url, patch)
        self.assertIn('tls_cert_file', told)
        told = self.fetch_refused(secure, plain.url, patch)
        self.assertIn('no TLS', told)
        self.assertEqual(0, plain.stats()['requests'] -
                         plain.stats()['failed'])

    def test_certificates_are_replaced_while_it_serves(self):
        a, b = self.secure('a'), self.secure('b')
        patch = self.hold('a', 'patches', b'content')
        self.authority = certificates.Authority(self.directory / 'tls')
        self.authority.issue('a')
        a.reload_tls()
        self.fetch_refused(b, a.url, patch)
        self.authority.issue('b')
        b.reload_tls()
        b.fetch(a.url, 'patches', patch, self.dest)
