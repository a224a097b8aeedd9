#!/usr/bin/env python3
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
"""What strangers and hostile peers cost the data plane.

Slow connections: 16 hosts get an image each from one, while 1000 connections
to that send a byte a second, from another address and from the hosts' own.

Hostile peers: one host gets 100 images from three peers in turn and a
repository behind a WAN, while one of the three drips, breaks off wrong
manifests, announces 10^15 bytes, or sends wrong bytes. The ratio is to the
time of the other two peers alone.

usage: bench/hostile_peers.py [--only slow|WAY...] [--images N] [--size MB]
                              [--rate MB/s] [--deadline SECONDS] [-f json]
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import http.server
import itertools
import json
import multiprocessing
import os
import pathlib
import random
import resource
import socket
import socketserver
import sys
import tempfile
import threading
import time

import machine

from diffcache_openstack import _native
from diffcache_openstack.agent.data_plane import native_plane
from diffcache_openstack.agent.data_plane import orders
from diffcache_openstack.common import exceptions
from diffcache_openstack.sites import view

KEY = bytes(range(32))
HOSTS = 16
CONNECTIONS = 1000
# Seconds after which slow connections have taken what they can.
SETTLING = 6
WORKERS = 6
WAYS = ('drip', 'cut', 'length', 'wrong')
HUGE = 10 ** 15


@dataclasses.dataclass(frozen=True)
class Image:
    """An image that hosts hold: its id, and its manifest's file."""

    id: str
    size: int
    manifest: pathlib.Path


def make_images(root: pathlib.Path, count: int, size: int) -> list[Image]:
    """Write images as a data plane holds them."""
    for kind in view.KINDS:
        (root / kind).mkdir(parents=True)
    random.seed(1)
    images = []
    for number in range(count):
        raw, manifest = root / 'raw', root / f'manifest{number}'
        raw.write_bytes(random.randbytes(size))
        image = _native.manifest_create(str(raw), str(manifest))['content_id']
        raw.rename(root / view.TEMPLATES / image)
        manifest = manifest.rename(root / view.MANIFESTS / image)
        images.append(Image(image, size, manifest))
    return images


def serve(pipe, root: str, options: dict) -> None:
    """Serve a root directory by a data plane, until the pipe is closed."""
    with _native.DataPlane(root, 'server', '127.0.0.1:0', KEY,
                           **options) as plane:
        pipe.send(plane.url)
        with contextlib.suppress(EOFError):
            pipe.recv()


@contextlib.contextmanager
def in_process_of_its_own(target, *arguments):
    """Run a function with a pipe; yield what it sends first."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=target, args=(theirs, *arguments),
                                      daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours.recv()
    finally:
        ours.close()
        process.join(5)
        process.kill()


def send_slowly(pipe, address: tuple[str, int], source: str) -> None:
    """Hold connections that send a byte a second, until the pipe is closed."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE,
                       (min(hard, 4 * CONNECTIONS), hard))
    held: list[socket.socket] = []
    rounds = 0
    while not pipe.poll():
        began = time.monotonic()
        held = [one for one in held if sends(one)]
        while len(held) < CONNECTIONS and time.monotonic() < began + 1:
            one = socket.socket()
            one.bind((source, 0))
            one.setblocking(False)
            one.connect_ex(address)
            held.append(one)
        rounds += 1
        if rounds == SETTLING:
            pipe.send(len(held))
        time.sleep(max(0.0, began + 1 - time.monotonic()))


def sends(connection: socket.socket) -> bool:
    """Send a byte; return whether the connection is still open."""
    try:
        connection.send(b'G')
    except BlockingIOError:
        return True
    except OSError:
        connection.close()
        return False
    return True


def order(image: Image, kind: str, dest: pathlib.Path,
          sources: list[orders.HostSource]) -> orders.Order:
    """Return the order of a template or its manifest."""
    limits = {}
    if 'max_size' in {field.name for field
                      in dataclasses.fields(orders.Order)}:
        limits['max_size'] = image.size
    return orders.Order(
        view.Key(kind, image.id), dest, tuple(sources),
        image.manifest if kind == view.TEMPLATES else None, durable=False,
        **limits)


def source(name: str, url: str) -> orders.HostSource:
    """Return a host as a source; the repository is behind the WAN."""
    link = orders.Link.WAN if name == 'repository' else orders.Link.LAN
    return orders.HostSource(orders.Host(name, url), link)


def open_plane(root: pathlib.Path, name: str
               ) -> native_plane.DataPlane:
    """Open a host's data plane."""
    return native_plane.DataPlane(root, name, '127.0.0.1:0', KEY)


# -- slow connections


def deliver_to_hosts(directory: pathlib.Path, images: list[Image],
                     url: str) -> dict:
    """Have each host get an image; return how many did, and the time."""
    def get(number: int) -> bool:
        host = f'h{number}'
        plane = open_plane(directory / host, host)
        try:
            dest = directory / host / 'image'
            delivery = plane.deliver(
                order(images[number], view.TEMPLATES, dest,
                      [source('peer', url)]), plane.new_handle())
            return delivery.source is not None
        finally:
            plane.close()

    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(HOSTS) as pool:
        delivered = sum(pool.map(get, range(HOSTS)))
    return {'delivered': delivered, 'of': HOSTS,
            'seconds': round(time.monotonic() - began, 2)}


def measure_slow(size: int) -> list[dict]:
    """Deliver without and with slow connections."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        images = make_images(directory / 'server', HOSTS, size)
        with in_process_of_its_own(serve, str(directory / 'server'),
                                   {}) as url:
            address, port = url.removeprefix('http://').split(':')
            rows.append({'what': 'no slow connections', 'ratio': 1.0,
                         **deliver_to_hosts(directory, images, url)})
            for what, origin in (('another address', '127.0.0.2'),
                                 ('the same address', '127.0.0.1')):
                with in_process_of_its_own(send_slowly, (address, int(port)),
                                           origin) as count:
                    found = deliver_to_hosts(directory, images, url)
                rows.append({
                    'what': f'{count} slow connections from {what}', **found,
                    'ratio': round(found['seconds'] / rows[0]['seconds'],
                                   2)})
    return rows


# -- hostile peers


class Hostile(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """A peer that means harm in one way."""

    daemon_threads = True

    def __init__(self, way: str, images: list[Image]) -> None:
        super().__init__(('127.0.0.1', 0), _Answers)
        self.way = way
        self.sizes = {(view.TEMPLATES, image.id): image.size
                      for image in images}
        self.sizes |= {(view.MANIFESTS, image.id):
                       image.manifest.stat().st_size for image in images}
        self.requests = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Base URL of the peer."""
        return f'http://127.0.0.1:{self.server_port}'

    def handle_error(self, request, client_address) -> None:
        """Ignore clients that go away."""


class _Answers(http.server.BaseHTTPRequestHandler):

    protocol_version = 'HTTP/1.1'

    def log_message(self, *_arguments) -> None:
        """Log nothing."""

    def do_HEAD(self) -> None:
        """Answer as an earlier release does, which knows no boots."""
        self.send_response(401)
        self.send_header('Content-Length', '0')
        self.end_headers()

    def do_GET(self) -> None:
        """Do harm."""
        server = self.server
        server.requests += 1
        _, _, _, kind, object_id = self.path.split('/')
        size = server.sizes[kind, object_id]
        if kind == view.TEMPLATES and server.way in ('cut', 'length'):
            self.send_response(404)
            self.send_header('Content-Length', '0')
            self.end_headers()
            return
        start, end = 0, size
        if 'Range' in self.headers:
            first, last = self.headers['Range'][len('bytes='):].split('-')
            start, end = int(first), int(last) + 1
        self.send_response(206 if 'Range' in self.headers else 200)
        self.send_header('Content-Range', f'bytes {start}-{end - 1}/{size}')
        length = HUGE if server.way == 'length' else end - start
        self.send_header('Content-Length', str(length))
        self.end_headers()
        self._send_body(end - start)

    def _send_body(self, length: int) -> None:
        if self.server.way == 'drip':
            while True:
                self.wfile.write(b'x')
                time.sleep(3)
        if self.server.way == 'cut':
            length //= 2
        self.wfile.write(b'x' * length)
        self.close_connection = self.server.way != 'wrong'


class Deliveries:
    """One host that gets images from peers.

    :param peers: names and URLs, asked in turn
    :param repository: URL, asked last
    """

    def __init__(self, directory: pathlib.Path, peers: dict[str, str],
                 repository: str) -> None:
        self._directory = directory
        self._plane = open_plane(directory / 'victim', 'victim')
        # In every order, so that what one leaves is shared by the others.
        self._ranks = list(itertools.permutations(
            source(*peer) for peer in peers.items()))
        self._repository = source('repository', repository)
        self._handle = self._plane.new_handle()
        self.blamed = {'hostile': 0, 'honest': 0}
        self._lock = threading.Lock()

    def run(self, images: list[Image], deadline: float) -> dict:
        """Deliver all images, some at a time."""
        timer = threading.Timer(deadline, self._handle.cancel)
        timer.start()
        began = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            delivered = sum(pool.map(self._get, range(len(images)), images))
        timer.cancel()
        seconds = time.monotonic() - began
        self._plane.close()
        return {'delivered': delivered, 'of': len(images),
                'seconds': round(seconds, 1),
                'lies_of_the_hostile': self.blamed['hostile'],
                'lies_of_the_honest': self.blamed['honest']}

    def _get(self, number: int, image: Image) -> bool:
        ranked = [*self._ranks[number % len(self._ranks)], self._repository]
        return all(self._deliver(image, kind, ranked)
                   for kind in (view.MANIFESTS, view.TEMPLATES))

    def _deliver(self, image, kind, ranked) -> bool:
        dest = self._directory / 'victim' / kind / image.id
        try:
            delivery = self._plane.deliver(order(image, kind, dest, ranked),
                                           self._handle)
        except exceptions.Cancelled:
            return False
        with self._lock:
            for failure in delivery.failures:
                if isinstance(failure.error, exceptions.IntegrityError):
                    self.blamed['hostile' if failure.host == 'hostile'
                                else 'honest'] += 1
        return delivery.source is not None


def measure_hostile(ways: list[str], options: argparse.Namespace
                    ) -> list[dict]:
    """Deliver images with two honest peers, and with a hostile one besides."""
    rows = []
    with tempfile.TemporaryDirectory() as name, \
            contextlib.ExitStack() as stack:
        directory = pathlib.Path(name)
        images = make_images(directory / 'held', options.images,
                             round(options.size * 1e6))
        held = str(directory / 'held')
        rate = options.rate * 1e6
        honest = {f'honest-{number}': stack.enter_context(
            in_process_of_its_own(serve, held, {'rate': rate}))
            for number in range(2)}
        repository = stack.enter_context(
            in_process_of_its_own(serve, held, {'rate': rate / 2}))
        for way in ('without', *ways):
            hostile = Hostile(way, images)
            peers = honest if way == 'without' else {
                'hostile': hostile.url, **honest}
            with tempfile.TemporaryDirectory() as place:
                found = Deliveries(pathlib.Path(place), peers, repository
                                   ).run(images, options.deadline)
            hostile.shutdown()
            rows.append({
                'what': way, **found,
                'requests_to_the_hostile': hostile.requests,
                'ratio': round(found['seconds'] / (
                    rows[0]['seconds'] if rows else found['seconds']), 2)})
    return rows


def main() -> None:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--only', nargs='*', default=['slow', *WAYS],
                        choices=['slow', *WAYS])
    parser.add_argument('--images', type=int, default=100)
    parser.add_argument('--size', type=float, default=2.0, help='MB')
    parser.add_argument('--rate', type=float, default=2.0,
                        help='MB/s of each peer')
    parser.add_argument('--deadline', type=float, default=300.0,
                        help='seconds for the images of one way')
    parser.add_argument('-f', dest='format', default='table',
                        choices=['table', 'json'])
    options = parser.parse_args()
    rows = []
    if 'slow' in options.only:
        rows += measure_slow(round(options.size * 1e6))
    ways = [way for way in WAYS if way in options.only]
    if ways:
        rows += measure_hostile(ways, options)
    machine.report()
    if options.format == 'json':
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        print(', '.join(f'{name} {value}' for name, value in row.items()))


if __name__ == '__main__':
    main()
    # Threads of hostile servers may still wait.
    sys.stdout.flush()
    os._exit(0)
