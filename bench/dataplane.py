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
"""How fast the data plane is, beside what the machine can do at all.

Speed: one transfer over loopback between two processes, with the file in the
page cache, against a bare sendfile(2) server, the bare loopback and a local
copy. Each line gives MB/s, the ratio to bare sendfile and the CPU seconds per
GB of both sides. TLS: the same transfer encrypted, and how fast one core of
this machine encrypts at all (openssl speed, AES-256-GCM in records of 16 KiB).
Certificates are made with openssl. Shaping: how far the average of one or
several connections is from the rate that was set. Frames: bytes, seconds and
CPU of a raw image that crosses a network of 100 Mbit/s, and one without a
limit, as it is and in frames. WAN: how soon the first bytes of an image that a
repository has compressed arrive, what part of the link is used, and the
sender's CPU.

usage: bench/dataplane.py [--size MB] [--directory DIR] [--json FILE]
                          [--frames IMAGE | --wan IMAGE]
"""

import argparse
import contextlib
import http.client
import json
import multiprocessing
import os
import pathlib
import random
import resource
import shutil
import socket
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.parse

import machine

from diffcache_openstack import _native
from diffcache_openstack.agent.data_plane import native_plane
from diffcache_openstack.agent.data_plane import orders
from diffcache_openstack.sites import view

KEY = bytes(range(32))
BUFFER = 1 << 20


def cpu_seconds() -> float:
    """Return the CPU time of this process so far, in seconds."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Peer:
    """A server in a process of its own, and its CPU time."""

    def __init__(self, serve, *arguments) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.Process(
            target=serve, args=(theirs, *arguments), daemon=True)
        self._process.start()
        self.address = self._pipe.recv()

    def cpu_seconds(self) -> float:
        """Return the CPU time of the server so far, in seconds."""
        self._pipe.send('cpu')
        return self._pipe.recv()

    def stop(self) -> None:
        """End the process."""
        self._pipe.send('stop')
        self._process.join()


def answer(pipe) -> None:
    """Report the CPU time on each request, until stopped."""
    while pipe.recv() == 'cpu':
        pipe.send(cpu_seconds())


def serve_socket(pipe, path: str, mode: str) -> None:
    """Send a file, or as many bytes from memory, to each client."""
    listener = socket.create_server(('127.0.0.1', 0))
    pipe.send(listener.getsockname())
    size = os.path.getsize(path)

    def accept() -> None:
        while True:
            peer, _ = listener.accept()
            with peer, open(path, 'rb') as file:
                if mode == 'sendfile':
                    sent = 0
                    while sent < size:
                        sent += os.sendfile(peer.fileno(), file.fileno(),
                                            sent, BUFFER)
                else:
                    block = bytes(BUFFER)
                    for _ in range(size // BUFFER):
                        peer.sendall(block)

    threading.Thread(target=accept, daemon=True).start()
    answer(pipe)


def serve_plane(pipe, root: str, options: dict[str, str]) -> None:
    """Serve a root directory by a data plane."""
    with _native.DataPlane(root, 'server', '127.0.0.1:0', key=KEY,
                           **options) as plane:
        pipe.send(plane.url)
        answer(pipe)


def drain(peer: socket.socket) -> int:
    """Read to the end of the stream."""
    buffer, total = bytearray(BUFFER), 0
    while count := peer.recv_into(buffer):
        total += count
    return total


class Speed:
    """Runs transfers of one file and keeps what they took."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.rows: list[dict] = []

    def run(self, name: str, peer: Peer | None, transfer, rounds: int = 3):
        """Measure a transfer several times; the median counts."""
        samples = []
        for _ in range(rounds):
            far = peer.cpu_seconds() if peer else 0.0
            near, begun = cpu_seconds(), time.monotonic()
            transfer()
            seconds = time.monotonic() - begun
            cpu = cpu_seconds() - near
            cpu += peer.cpu_seconds() - far if peer else 0.0
            samples.append((seconds, cpu))
        seconds = statistics.median(sample[0] for sample in samples)
        cpu = statistics.median(sample[1] for sample in samples)
        self.rows.append({
            'what': name, 'mb_per_s': self.size / 1e6 / seconds,
            'cpu_s_per_gb': cpu / (self.size / 1e9)})

    def table(self) -> None:
        """Print the rows with their ratio to bare sendfile."""
        bare = next(row['mb_per_s'] for row in self.rows
                    if row['what'].startswith('bare sendfile'))
        print(f'{"":44}{"MB/s":>8}{"ratio":>8}{"CPU s/GB":>10}')
        for row in self.rows:
            row['ratio'] = row['mb_per_s'] / bare
            print(f'{row["what"]:44}{row["mb_per_s"]:8.0f}'
                  f'{row["ratio"]:8.2f}{row["cpu_s_per_gb"]:10.2f}')


def fetch(client: native_plane.DataPlane, url: str, kind: str, image: str,
          dest: pathlib.Path, manifest: pathlib.Path | None = None,
          link: orders.Link = orders.Link.LAN) -> None:
    """Bring an object from a server."""
    source = orders.HostSource(orders.Host('server', url), link)
    delivery = client.deliver(orders.Order(
        view.Key(kind, image), dest, (source,), manifest, durable=False),
        client.new_handle())
    if delivery.source is None:
        raise delivery.failures[-1].error


def measure_speed(directory: pathlib.Path, size: int) -> list[dict]:
    """Compare a transfer by the data plane with what it is made of."""
    root = directory / 'server'
    image = make_image(root, size)
    path = str(root / 'templates' / image)
    patch = root / 'patches' / image
    os.link(path, patch)
    manifest = root / 'manifests' / image
    speed = Speed(size)

    def connect(peer: Peer) -> None:
        with socket.create_connection(peer.address) as stream:
            drain(stream)

    for mode, name in [('memory', 'bare loopback, from memory, discarded'),
                       ('sendfile', 'bare sendfile, discarded')]:
        bare = Peer(serve_socket, path, mode)
        speed.run(name, bare, lambda peer=bare: connect(peer))
        bare.stop()
    dest = directory / 'output'
    speed.run('local copy (cp), in page cache', None,
              lambda: copy(path, dest))
    for name, options in [('data plane', {}),
                          ('TLS', make_certificate(directory))]:
        server = Peer(serve_plane, str(root), options)
        client = native_plane.DataPlane(
            directory / 'client', 'client', '127.0.0.1:0', KEY, **options)
        with contextlib.closing(client):
            speed.run(f'{name}, template, verified and written', server,
                      lambda: fetch(client, server.address, 'templates',
                                    image, dest, manifest))
            speed.run(f'{name}, patch, verified and written', server,
                      lambda: fetch(client, server.address, 'patches', image,
                                    dest))
        server.stop()
    speed.run('data plane, served from one process, discarded', None,
              lambda: discard(root, image))
    speed.table()
    compare_encryption(speed.rows)
    return speed.rows


def compare_encryption(rows: list[dict]) -> None:
    """Print what TLS adds, beside the cost of encrypting and decrypting."""
    cipher = cipher_speed()
    cpu = {row['what'].split(',')[0]: row['cpu_s_per_gb'] for row in rows
           if ', template,' in row['what']}
    added, least = cpu['TLS'] - cpu['data plane'], 2e3 / cipher
    rows.append({'what': 'cipher, one core', 'mb_per_s': cipher,
                 'cpu_s_per_gb': 1e3 / cipher})
    print(f'one core encrypts {cipher:.0f} MB/s; both sides together take at '
          f'least {least:.2f} CPU s/GB; TLS adds {added:.2f}, '
          f'{added / least:.1f} times that')


def cipher_speed() -> float:
    """Return MB/s that one core encrypts, by openssl."""
    report = subprocess.run(
        ['openssl', 'speed', '-mr', '-aead', '-evp', 'aes-256-gcm', '-bytes',
         '16384', '-seconds', '2'], capture_output=True, check=True,
        text=True).stdout
    last = next(line for line in report.splitlines() if line.startswith('+F'))
    return float(last.rsplit(':', 1)[1]) / 1e6


def make_certificate(directory: pathlib.Path) -> dict[str, str]:
    """Return a self-signed certificate, as options of a plane."""
    files = {name: str(directory / name) for name in ('cert', 'key')}
    subprocess.run(
        ['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt',
         'ec_paramgen_curve:P-256', '-nodes', '-days', '2', '-subj',
         '/CN=bench', '-addext', 'subjectAltName=IP:127.0.0.1', '-addext',
         'basicConstraints=critical,CA:FALSE', '-keyout', files['key'],
         '-out', files['cert']], check=True, capture_output=True)
    return {'tls_ca_file': files['cert'], 'tls_cert_file': files['cert'],
            'tls_key_file': files['key']}


def make_image(root: pathlib.Path, size: int) -> str:
    """Write an image of random bytes below a root; returns its id."""
    for kind in ('templates', 'patches', 'manifests'):
        (root / kind).mkdir(parents=True)
    path = root / 'image'
    generator = random.Random(1)
    with path.open('wb') as file:
        for _ in range(size // BUFFER):
            file.write(generator.randbytes(BUFFER))
    return hold(root, path)


def take_image(root: pathlib.Path, source: pathlib.Path) -> str:
    """Copy an image to a root; returns its id."""
    for kind in ('templates', 'manifests'):
        (root / kind).mkdir(parents=True)
    path = root / 'image'
    subprocess.run(['cp', '--sparse=always', source, path], check=True)
    return hold(root, path)


def hold(root: pathlib.Path, path: pathlib.Path) -> str:
    """Move an image below a root to where it is served; returns its id."""
    manifest = root / 'manifest'
    image = _native.manifest_create(str(path), str(manifest))['content_id']
    path.rename(root / 'templates' / image)
    manifest.rename(root / 'manifests' / image)
    return image


def copy(source: str, dest: pathlib.Path) -> None:
    """Copy by reading and writing, as a transfer has to."""
    with open(source, 'rb') as read, open(dest, 'wb') as write:
        shutil.copyfileobj(read, write, BUFFER)


def discard(root: pathlib.Path, image: str) -> None:
    """Read an object from a plane of this process, and forget it."""
    with _native.DataPlane(str(root), 'server', '127.0.0.1:0') as plane:
        read_object(plane.url, image)


def read_object(url: str, image: str) -> tuple[int, float]:
    """Read an object without a key; returns bytes and seconds."""
    where = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname, where.port)
    begun = time.monotonic()
    connection.request('GET', f'/v1/objects/templates/{image}')
    response = connection.getresponse()
    buffer, total = bytearray(BUFFER), 0
    while count := response.readinto(buffer):
        total += count
    connection.close()
    return total, time.monotonic() - begun


def measure_frames(directory: pathlib.Path, source: pathlib.Path
                   ) -> list[dict]:
    """Compare an image that crosses in frames with its own bytes."""
    root = directory / 'frames'
    image = take_image(root, source)
    dest, manifest = directory / 'output', root / 'manifests' / image
    rows = []
    for network, rate in [('100 Mbit/s', 12.5e6), ('no limit', None)]:
        for form, below in [('as it is', 0.0), ('in frames', 1e12)]:
            server = Peer(serve_plane, str(root), {'rate': rate})
            client = native_plane.DataPlane(
                directory / 'client', 'client', '127.0.0.1:0', KEY,
                compress_below=below)
            with contextlib.closing(client):
                # The first transfer measures the network.
                fetch(client, server.address, 'templates', image, dest,
                      manifest)
                before = client.stats()['received']['templates']
                near, far = cpu_seconds(), server.cpu_seconds()
                begun = time.monotonic()
                fetch(client, server.address, 'templates', image, dest,
                      manifest)
                rows.append({
                    'network': network, 'form': form,
                    'seconds': time.monotonic() - begun,
                    'bytes': client.stats()['received']['templates'] - before,
                    'cpu_s_sender': server.cpu_seconds() - far,
                    'cpu_s_reader': cpu_seconds() - near})
            server.stop()
    print(f'{"network":12}{"form":12}{"MB":>8}{"s":>8}{"CPU s, sender":>15}'
          f'{"CPU s, reader":>15}')
    for row in rows:
        print(f'{row["network"]:12}{row["form"]:12}{row["bytes"] / 1e6:8.1f}'
              f'{row["seconds"]:8.2f}{row["cpu_s_sender"]:15.2f}'
              f'{row["cpu_s_reader"]:15.2f}')
    return rows


def received(client: native_plane.DataPlane) -> int:
    """Return the bytes of compressed images that a data plane has received."""
    return client.stats()['received']['compressed']


class FirstByte:
    """Notes when the first bytes of a compressed image arrive."""

    def __init__(self, client: native_plane.DataPlane) -> None:
        self._client = client
        self._before = received(client)
        self._begun = time.monotonic()
        self.seconds: float | None = None
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while received(self._client) == self._before:
            time.sleep(0.001)
        self.seconds = time.monotonic() - self._begun

    def wait(self) -> float:
        """Return the seconds from the start until they arrived."""
        self._thread.join()
        assert self.seconds is not None
        return self.seconds


def measure_wan(directory: pathlib.Path, source: pathlib.Path) -> list[dict]:
    """Bring a compressed image over links of a WAN."""
    root = directory / 'wan'
    image = take_image(root, source)
    (root / 'compressed').mkdir()
    dest, manifest = directory / 'output', root / 'manifests' / image
    _native.compressed_create(
        str(root / 'templates' / image), str(manifest),
        str(root / 'compressed' / image), 6, None)
    rows = []
    print(f'{"link":12}{"MB":>8}{"s":>8}{"first byte, s":>15}'
          f'{"share of link":>15}{"sender, cores":>15}')
    for mbits in (20, 20, 20, 100, 100, 100):
        server = Peer(serve_plane, str(root), {'rate': mbits * 125000.0})
        client = native_plane.DataPlane(
            directory / 'client', 'client', '127.0.0.1:0', KEY)
        with contextlib.closing(client):
            before = received(client)
            far, begun = server.cpu_seconds(), time.monotonic()
            first = FirstByte(client)
            fetch(client, server.address, 'templates', image, dest, manifest,
                  orders.Link.WAN)
            seconds = time.monotonic() - begun
            sent = received(client) - before
            row = {'mbits': mbits, 'bytes': sent, 'seconds': seconds,
                   'first_byte_seconds': first.wait(),
                   'share': sent * 8 / seconds / 1e6 / mbits,
                   'sender_cores': (server.cpu_seconds() - far) / seconds}
        server.stop()
        dest.unlink()
        rows.append(row)
        print(f'{mbits:5} Mbit/s{sent / 1e6:8.1f}{seconds:8.2f}'
              f'{row["first_byte_seconds"]:15.3f}{row["share"]:15.3f}'
              f'{row["sender_cores"]:15.3f}')
    return rows


def measure_shaping(directory: pathlib.Path) -> list[dict]:
    """Compare the average of a shaped link with its rate."""
    rows = []
    print(f'\n{"rate":>10}{"connections":>13}{"measured":>12}{"off by":>9}')
    for rate, size, readers in [(2.5e6, 5e6, 1), (2.5e6, 5e6, 4),
                                (20e6, 40e6, 1), (20e6, 40e6, 4),
                                (125e6, 250e6, 1), (125e6, 250e6, 4)]:
        root = directory / f'shaped-{rate}-{readers}'
        image = make_image(root, int(size / readers))
        with _native.DataPlane(str(root), 'shaped', '127.0.0.1:0',
                               rate=rate) as plane:
            begun = time.monotonic()
            threads = [threading.Thread(target=read_object,
                                        args=(plane.url, image))
                       for _ in range(readers)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            seconds = time.monotonic() - begun
            measured = plane.stats()['sent']['templates'] / seconds
        off = measured / rate - 1
        rows.append({'rate': rate, 'connections': readers,
                     'measured': measured, 'off': off})
        print(f'{rate / 1e6:7.1f} MB{readers:13}{measured / 1e6:9.2f} MB'
              f'{off * 100:+8.2f}%')
        shutil.rmtree(root)
    return rows


def main() -> None:
    """Run both and print tables."""
    parser = argparse.ArgumentParser(
        description='Measures the speed and the shaping of the data plane.')
    parser.add_argument('--size', type=int, default=1024,
                        help='size of the image in MB (default: 1024)')
    parser.add_argument('--directory', help='where to work (default: /tmp)')
    only = parser.add_mutually_exclusive_group()
    only.add_argument('--frames', type=pathlib.Path, metavar='IMAGE',
                      help='measure only a raw image in frames')
    only.add_argument('--wan', type=pathlib.Path, metavar='IMAGE',
                      help='measure only a raw image over a WAN')
    parser.add_argument('--json', help='file for the figures')
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        directory = pathlib.Path(name)
        if options.frames:
            results = {'frames': measure_frames(directory, options.frames)}
        elif options.wan:
            results = {'wan': measure_wan(directory, options.wan)}
        else:
            results = {
                'speed': measure_speed(directory, options.size * 1000000
                                       // BUFFER * BUFFER),
                'shaping': measure_shaping(directory)}
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=2))
    machine.report()


if __name__ == '__main__':
    main()
