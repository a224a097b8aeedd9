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
"""Serving of objects to peers, and what is left after an interruption."""

import hashlib
import hmac
import http.client
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.parse

import hypothesis
from hypothesis import strategies as st

from diffcache_openstack import _native
from diffcache_openstack.agent.data_plane import native_plane
from diffcache_openstack.agent.data_plane import orders
from diffcache_openstack.common import exceptions
from diffcache_openstack.sites import views
from tests import certificates
from tests.unit.agent.data_plane import planes


class TestServer(planes.DataPlaneTestCase):

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
        planes.wait_until(
            lambda: found.extend(holder.take_served(0.0)) or found)
        [served] = found
        self.assertEqual(
            ('Zm9v.0f', views.Key('patches', patch), 7000),
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
        text = '\n'.join(['diffcache-1', method, path, '',
                          hashlib.sha256(body.encode()).hexdigest(),
                          now, nonce, where.netloc, boot])
        code = hmac.new(planes.KEY, text.encode(), 'sha256').hexdigest()
        connection = http.client.HTTPConnection(where.hostname, where.port)
        self.addCleanup(connection.close)
        connection.request(method, path, body, {
            'Authorization': f'DiffCache site-1:{now}:{nonce}:{code}:{boot}'})
        return connection.getresponse()

    def claim(self, plane, object_id: str) -> dict:
        """Claim an image."""
        health = self.signed(plane, 'HEAD', '/v1/health')
        self.assertEqual(200, health.status)
        response = self.signed(
            plane, 'POST', f'/v1/claims/images/{object_id}',
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
        plane.offer(views.Key('images', '5' * 64))
        planes.wait_until(lambda: self.claim(plane, '5' * 64)['holder'] == 'x')
        self.assertEqual({'holder': 'x', 'url': 'http://x:1'},
                         self.claim(plane, '5' * 64))

    def test_a_claim_names_the_advertised_url(self):
        a = self.plane('a', key_name='site-1')
        b = self.plane('b', key_name='site-1',
                       advertise_url='http://host-b:9999')
        self.assertEqual('http://host-b:9999', b.url)
        b.set_site([orders.Host('a', a.url)])
        ids = (f'{number:064x}' for number in range(64))
        while not a.stats()['claims']:
            found = next(ids)
            b.offer(views.Key('images', found))
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
        planes.wait_until(lambda: a.readers('patches', patch) == 1)
        a.set_rate(None)
        fetch.join()
        planes.wait_until(lambda: a.readers('patches', patch) == 0)
        self.assertFalse(fetch.is_alive())


class TestInterruption(planes.DataPlaneTestCase):

    #: A program with a data plane: its root and the site's key; then the
    #: URL, kind, id, file and manifest of what it fetches, if anything.
    SCRIPT = """
from diffcache_openstack.agent.data_plane import native_plane
from diffcache_openstack.agent.data_plane import orders
from diffcache_openstack.sites import views
import pathlib
import signal
import sys
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
def progress(done, total, over_wan):
    print(done, flush=True)
root, key, *fetch = sys.argv[1:]
plane = native_plane.DataPlane(
    pathlib.Path(root), 'victim', '127.0.0.1:0', key.encode(), rate=1e6)
print(plane.url, flush=True)
if fetch:
    url, kind, object_id, dest, manifest = fetch
    plane.deliver(orders.Order(
        views.Key(kind, object_id), pathlib.Path(dest),
        (orders.HostSource(orders.Host('a', url), orders.Link.LAN),),
        pathlib.Path(manifest), rate=1e6), plane.new_handle(), progress)
sys.stdin.read()
"""

    def start(self, *arguments: object) -> subprocess.Popen:
        process = subprocess.Popen(
            [sys.executable, '-c', self.SCRIPT, *map(str, arguments)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def victim(self, process) -> orders.HostSource:
        url = process.stdout.readline().strip()
        return orders.HostSource(orders.Host('victim', url),
                                 orders.Link.LAN)

    def test_readers_that_go_away_do_not_end_the_process(self):
        b = self.plane('b')
        patch = self.hold('a', 'patches', random.Random(1).randbytes(4000000))
        victim = self.start(self.directory / 'a', planes.KEY.decode())
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
        content = random.Random(1).randbytes(60 * planes.LEAF)
        image = self.hold_image('a', content)
        options = {'manifest': self.manifest('a', image)}
        victim = self.start(self.directory / 'a', planes.KEY.decode())
        source = self.victim(victim)
        dest = self.directory / 'output'

        def progress(done, total, over_wan):
            if done > total // 3:
                os.kill(victim.pid, signal.SIGKILL)

        self.assertRaises(exceptions.PeerUnavailable, self.fetch, b, source,
                          'images', image, progress, **options)
        self.assertFalse(dest.exists())
        shutil.copytree(self.directory / 'a' / 'images',
                        self.directory / 'c' / 'images',
                        dirs_exist_ok=True)
        moved = self.fetch(b, c, 'images', image, **options)
        self.assertLess(moved, len(content) * 2 // 3 + planes.LEAF)
        self.assertEqual(content, dest.read_bytes())

    def test_a_fetch_that_is_killed_is_continued_by_the_next_process(self):
        a, b = self.plane('a'), self.plane('b')
        content = random.Random(1).randbytes(60 * planes.LEAF)
        image = self.hold_image('a', content)
        manifest = self.manifest('a', image)
        dest = self.directory / 'output'
        victim = self.start(self.directory / 'v', planes.KEY.decode(), a.url,
                            'images', image, dest, manifest)
        victim.stdout.readline()
        while int(victim.stdout.readline()) < len(content) // 3:
            pass
        error = self.assertRaises(
            exceptions.RetryableError, self.fetch, b, a, 'images', image,
            manifest=manifest)
        self.assertIn('already', str(error))
        victim.kill()
        victim.wait()
        self.assertFalse(dest.exists())
        moved = self.fetch(b, a, 'images', image, manifest=manifest)
        self.assertLess(moved, len(content) * 2 // 3 + planes.LEAF)
        self.assertEqual(content, dest.read_bytes())


class TestFullDisk(planes.DataPlaneTestCase):

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
        content = random.Random(1).randbytes(50 * planes.LEAF)
        image = self.hold_image('a', content)
        self.assertRaises(
            exceptions.NoSpace, self.fetch, self.b, self.a, 'images',
            image, dest=self.small / 'output',
            manifest=self.manifest('a', image))
        self.assertEqual([], list(self.small.iterdir()))
        self.assertEqual(0, self.a.stats()['sent']['images'])

    def test_filled_up_by_somebody_else_meanwhile(self):
        content = random.Random(1).randbytes(30 * planes.LEAF)
        image = self.hold_image('a', content)
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
                ('images', image, self.manifest('a', image)),
                ('patches', patch, None)]:
            self.assertRaises(
                exceptions.NoSpace, self.fetch, self.b, self.a, kind,
                object_id, fill, dest=self.small / 'output',
                manifest=manifest)
            self.assertEqual([self.small / 'other'],
                             list(self.small.iterdir()))
            (self.small / 'other').unlink()


class TestAnyImage(planes.DataPlaneTestCase):

    @hypothesis.given(st.lists(st.sampled_from([0, 1, 2]), max_size=12),
                      st.integers(0, planes.LEAF - 1))
    @hypothesis.settings(max_examples=15)
    def test_arrives_as_it_is_and_costs_its_data(self, leaves, tail):
        generator = random.Random(1)
        blocks = [bytes(planes.LEAF), generator.randbytes(planes.LEAF),
                  bytes(planes.LEAF - 1) + b'x']
        content = b''.join(blocks[leaf] for leaf in leaves)
        content += generator.randbytes(tail)
        a, b = self.plane('a'), self.plane('b')
        image = self.hold_image('a', content)
        manifest = self.manifest('a', image)
        dest = self.directory / 'output'
        moved = self.fetch(b, a, 'images', image, manifest=manifest)
        self.assertEqual(content, dest.read_bytes())
        self.assertEqual(_native.manifest_info(str(manifest))['data_size'],
                         moved)


class TestTls(planes.DataPlaneTestCase):

    def setUp(self):
        super().setUp()
        self.authority = certificates.Authority(self.directory / 'tls')

    def secure(self, name: str, **options) -> native_plane.DataPlane:
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
            planes.wait_until(lambda: server.stats()['handshakes_failed'])
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
