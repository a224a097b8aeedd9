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
"""How fast the data plane is, beside what the machine can do at all.

A transfer is one over loopback between two processes, with the file in the
page cache; CPU seconds are those of both sides.
"""

import collections.abc
import contextlib
import http.client
import multiprocessing
import os
import pathlib
import shutil
import socket
import threading
import time
import urllib.parse

from bench.harness import errors
from bench.harness import processes
from bench.harness import runs
from bench.harness import tables
from diffcache_openstack import _native
from diffcache_openstack.agent.data_plane import native_plane
from diffcache_openstack.agent.data_plane import orders
from diffcache_openstack.sites import views

KEY = bytes(range(32))
BUFFER = 1 << 20


@contextlib.contextmanager
def serving(serve: collections.abc.Callable, *arguments: object,
            ) -> collections.abc.Iterator[tuple[object, int]]:
    """Serve in a process of its own; yield its address and id."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(
        target=serve, args=(theirs, *arguments), daemon=True)
    process.start()
    try:
        yield ours.recv(), process.pid
    finally:
        ours.send('stop')
        process.join()


def serve_socket(pipe, path: pathlib.Path, mode: str) -> None:
    """Send a file, or as many bytes from memory, to each client."""
    listener = socket.create_server(('127.0.0.1', 0))
    pipe.send(listener.getsockname())
    size = path.stat().st_size

    def accept() -> None:
        while True:
            peer, _ = listener.accept()
            with peer, open(path, 'rb') as file:
                sent, block = 0, bytes(BUFFER)
                while sent < size:
                    sent += (os.sendfile(peer.fileno(), file.fileno(), sent,
                                         BUFFER) if mode == 'sendfile'
                             else peer.send(block[:size - sent]))

    threading.Thread(target=accept, daemon=True).start()
    pipe.recv()


def serve_plane(pipe, root: pathlib.Path, options: dict) -> None:
    """Serve a root directory by a data plane."""
    with _native.DataPlane(str(root), 'server', '127.0.0.1:0', key=KEY,
                           **options) as plane:
        pipe.send(plane.url)
        pipe.recv()


@contextlib.contextmanager
def client(directory: pathlib.Path, **options: object,
           ) -> collections.abc.Iterator[native_plane.DataPlane]:
    """Open the data plane that receives."""
    plane = native_plane.DataPlane(directory / 'client', 'client',
                                   '127.0.0.1:0', KEY, **options)
    with contextlib.closing(plane):
        yield plane


def fetch(plane: native_plane.DataPlane, url: str, kind: str, image: str,
          dest: pathlib.Path, manifest: pathlib.Path | None = None,
          link: orders.Link = orders.Link.LAN) -> None:
    """Bring an object from a server."""
    source = orders.HostSource(orders.Host('server', url), link)
    delivery = plane.deliver(orders.Order(
        views.Key(kind, image), dest, (source,), manifest, durable=False),
        plane.new_handle())
    if delivery.source is None:
        raise delivery.failures[-1].error


class Held:
    """An image below a root directory, as a data plane holds it.

    :ivar id: of its content
    """

    def __init__(self, root: pathlib.Path, source: pathlib.Path | None,
                 size: int = 0) -> None:
        """Copy an image, or write one of random bytes."""
        for kind in views.KINDS:
            (root / kind).mkdir(parents=True)
        path, manifest = root / 'image', root / 'manifest'
        if source is None:
            processes.write_random(path, size)
        else:
            processes.copy(source, path)
        self.id = _native.manifest_create(str(path),
                                          str(manifest))['content_id']
        self.path = path.rename(root / views.IMAGES / self.id)
        self.manifest = manifest.rename(root / views.MANIFESTS / self.id)
        self.size = self.path.stat().st_size


def costs(run: collections.abc.Callable, *pids: int) -> dict[str, float]:
    """Return the seconds of a transfer, by the clock and of CPU."""
    before = processes.cpu_seconds(*pids)
    with processes.spending() as spent:
        run()
    return {'seconds': spent.wall_s, 'cpu_reader': spent.cpu_s,
            'cpu_sender': processes.cpu_seconds(*pids) - before}


def given(run: runs.Run, root: pathlib.Path) -> Held:
    """Return the image that is named; a tiny one with --quick.

    :raises BenchError: none is named
    """
    if run.options.image is None and not run.quick:
        raise errors.BenchError('give --image, a raw image')
    return Held(root, run.options.image, BUFFER)


# -- speed


def read_object(url: str, image: str) -> None:
    """Read an object without a key, and forget it."""
    where = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname, where.port)
    connection.request('GET', f'/v1/objects/images/{image}')
    response, buffer = connection.getresponse(), bytearray(BUFFER)
    while response.readinto(buffer):
        pass
    connection.close()


def drain(address: tuple[str, int]) -> None:
    """Connect, and read to the end of the stream."""
    with socket.create_connection(address) as peer:
        buffer = bytearray(BUFFER)
        while peer.recv_into(buffer):
            pass


def discard(root: pathlib.Path, image: str) -> None:
    """Read an object from a plane of this process."""
    with _native.DataPlane(str(root), 'server', '127.0.0.1:0') as plane:
        read_object(plane.url, image)


def copy(source: pathlib.Path, dest: pathlib.Path) -> None:
    """Copy by reading and writing, as a transfer has to."""
    with open(source, 'rb') as read, open(dest, 'wb') as write:
        shutil.copyfileobj(read, write, BUFFER)


def make_certificate(directory: pathlib.Path) -> dict[str, str]:
    """Return a self-signed certificate, as options of a plane."""
    cert, key = (str(directory / name) for name in ('cert', 'key'))
    processes.run(
        'openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt',
        'ec_paramgen_curve:P-256', '-nodes', '-days', '2', '-subj',
        '/CN=bench', '-addext', 'subjectAltName=IP:127.0.0.1', '-addext',
        'basicConstraints=critical,CA:FALSE', '-keyout', key, '-out', cert)
    return {'tls_ca_file': cert, 'tls_cert_file': cert, 'tls_key_file': key}


def cipher_speed() -> float:
    """Return MB/s that one core encrypts, by openssl."""
    report = processes.run(
        'openssl', 'speed', '-mr', '-aead', '-evp', 'aes-256-gcm', '-bytes',
        '16384', '-seconds', '2')
    last = next(line for line in report.splitlines() if line.startswith('+F'))
    return float(last.rsplit(':', 1)[1]) / 1e6


def speed(run: runs.Run) -> None:
    """Compare a transfer by the data plane with what it is made of."""
    root, dest = run.work / 'server', run.work / 'output'
    held = Held(root, None, run.options.size * 10**6)
    os.link(held.path, root / views.PATCHES / held.id)
    with contextlib.ExitStack() as stack:
        ways = {}
        for mode, name in (
                ('sendfile', 'bare sendfile, discarded'),
                ('memory', 'bare loopback, from memory, discarded')):
            address, pid = stack.enter_context(serving(
                serve_socket, held.path, mode))
            ways[name] = lambda address=address, pid=pid: costs(
                lambda: drain(address), pid)
        ways['local copy (cp), in page cache'] = lambda: costs(
            lambda: copy(held.path, dest))
        for name, options in (('data plane', {}),
                              ('TLS', make_certificate(run.work))):
            url, pid = stack.enter_context(serving(serve_plane, root, options))
            plane = stack.enter_context(client(run.work / name, **options))
            for kind, manifest in ((views.IMAGES, held.manifest),
                                   (views.PATCHES, None)):
                ways[f'{name}, {kind}, verified and written'] = (
                    lambda url=url, pid=pid, plane=plane, kind=kind,
                    manifest=manifest: costs(lambda: fetch(
                        plane, url, kind, held.id, dest, manifest), pid))
        ways['data plane, served from one process, discarded'] = (
            lambda: costs(lambda: discard(root, held.id)))
        found = run.rounds(ways, run.options.rounds)
    rows, bare = [], next(iter(found.values()))['seconds']
    cpu = {name: (row['cpu_reader'] + row['cpu_sender']) / held.size * 1e9
           for name, row in found.items()}
    for name, row in found.items():
        rows.append((name, f'{held.size / 1e6 / row["seconds"]:.0f}',
                     f'{bare / row["seconds"]:.2f}', f'{cpu[name]:.2f}'))
    cipher = run.keep('cipher', cipher_speed)
    rows.append(('AES-256-GCM, one core', f'{cipher:.0f}', '-',
                 f'{1e3 / cipher:.2f}'))
    run.table('One transfer', ('What', 'MB/s', 'Of bare sendfile',
                               'CPU s/GB'), rows)
    added = (cpu['TLS, images, verified and written']
             - cpu['data plane, images, verified and written'])
    run.table('TLS', ('Added, CPU s/GB', 'Encrypting and decrypting at least',
                      'Ratio'), [(f'{added:.2f}', f'{2e3 / cipher:.2f}',
                                  f'{added * cipher / 2e3:.1f}')])


# -- links


def wan(run: runs.Run) -> None:
    """Bring a compressed image over links of a WAN."""
    root, dest = run.work / 'server', run.work / 'output'
    held = given(run, root)
    _native.compressed_create(
        str(held.path), str(held.manifest),
        str(root / 'compressed' / held.id), 6, None)

    def measure(mbits: int) -> dict[str, float]:
        with serving(serve_plane, root, {'rate': mbits * 125000.0}) as (
                url, pid), client(run.work) as plane:
            began, arrived = time.monotonic(), []

            def received() -> int:
                return plane.stats()['received']['compressed']

            def watch() -> None:
                while not received():
                    time.sleep(0.001)
                arrived.append(time.monotonic() - began)
            watcher = threading.Thread(target=watch, daemon=True)
            watcher.start()
            found = costs(lambda: fetch(
                plane, url, views.IMAGES, held.id, dest, held.manifest,
                orders.Link.WAN), pid)
            watcher.join()
            sent = received()
        dest.unlink()
        return {'seconds': found['seconds'], 'first': arrived[0],
                'bytes': sent, 'cores': found['cpu_sender'] / found['seconds'],
                'share': sent * 8 / found['seconds'] / 1e6 / mbits}

    found = run.rounds({f'{mbits} Mbit/s': lambda mbits=mbits: measure(mbits)
                        for mbits in run.options.rates}, run.options.rounds)
    run.table('A compressed image over a WAN', (
        'Link', 'MB', 's', 'First byte after, s', 'Share of the link',
        'Sender, cores'), [
            (link, tables.megabytes(row['bytes']), f'{row["seconds"]:.2f}',
             *(f'{row[field]:.3f}' for field in ('first', 'share', 'cores')))
            for link, row in found.items()])
