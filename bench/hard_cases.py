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
"""Cases in which a cache helps least, beside what plain Nova does.

An embedded site of two hosts behind a shaped link serves images without a
history. Each case runs twice: as plain Nova does, where each host downloads
the compressed qcow2 file of each image once and converts it, and with the
services' own code. What crossed the link is counted where it is sent.

With --parts, each part of the services that saves bytes is switched off in a
case that needs it instead.

usage: bench/hard_cases.py --state DIR [--wan MBITS]
                           [--only CASE... | --parts] [-f json]
                           BASE NEXT OTHER

BASE, NEXT and OTHER are raw images: NEXT a later build of BASE, OTHER one of
the same distribution with other packages.
"""

import argparse
import collections.abc
import concurrent.futures
import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
import sys
import threading
import time
import uuid

import machine

from diffcache_openstack.agent.images.delivery import outputs
from diffcache_openstack.agent_client import local_client
from diffcache_openstack.blocks import qemu_img
from diffcache_openstack.embedded import published
from diffcache_openstack.embedded import site as sites
from diffcache_openstack.sites import view as views

LAN = 10000.0
HOSTS = ('host-1', 'host-2')
NAMES = ('base', 'next', 'other')
_NAMESPACE = uuid.UUID('0a6f7f5e-7d0f-4f0e-8f5b-54f3d3a1c001')
_KEPT = ('images', 'objects/templates', 'objects/manifests',
         'objects/compressed')


@dataclasses.dataclass(frozen=True)
class Image:
    """An image to serve; sizes in bytes."""

    name: str
    path: pathlib.Path
    sha256: str
    data_size: int
    content_id: str
    file_size: int

    @property
    def id(self) -> str:
        return str(uuid.uuid5(_NAMESPACE, f'{self.name}\n{self.sha256}'))


@dataclasses.dataclass(frozen=True)
class Measured:
    """What a case cost: bytes over the WAN, seconds of wall time."""

    wan_bytes: int
    seconds: float


class Rig:
    """A fresh site on which a case runs.

    :cvar kept: what the repository has from the preparation
    """

    kept: tuple[str, ...] = (*_KEPT, 'patches', 'objects/patches')

    def __init__(self, bench: 'Bench', directory: pathlib.Path,
                 capacity: int) -> None:
        self.images = bench.images
        self._bench = bench
        self._directory = directory
        self._capacity = capacity
        self._served: set[tuple[str, str]] = set()
        self._locks = {(host, name): threading.Lock()
                       for host in HOSTS for name in NAMES}
        self.measured: Measured | None = None
        self._delivered: list[tuple[str, pathlib.Path]] = []
        self._open()

    def _options(self) -> dict:
        return {('agent', 'heartbeat_interval'): 5}

    def _open(self) -> None:
        self._site = sites.Site(
            self._directory,
            [sites.HostSpec(name, self._capacity) for name in HOSTS],
            sites.LinkSpec(self._bench.wan, LAN, LAN),
            self._directory / 'repository', self._options())
        for name, agent in self._site.hosts.items():
            agent.conf.set_override('socket', self._socket(name), 'agent')
            agent.conf.set_override('output_directories', [
                str(self._instances(name))], 'agent')
            (self._instances(name) / '_base').mkdir(
                parents=True, exist_ok=True)
        self._site.start()
        self._prepare()

    def _socket(self, host: str) -> str:
        return str(self._directory / f'{host}.sock')

    def _instances(self, host: str) -> pathlib.Path:
        return self._directory / 'nova' / host / 'instances'

    def _prepare(self) -> None:
        patches = self._site.make_patches()
        self._site.wait_catalogue(len(patches))

    def close(self) -> None:
        self._site.stop()

    def restart(self) -> None:
        """Stop all services of the site, and start them again."""
        self._site.stop()
        self._open()

    def stop_conductor(self) -> None:
        """Leave the agents to themselves."""
        self._site.stop_conductor()

    def plan(self, history: collections.abc.Iterable[str]) -> None:
        """Plan for requests of these images, and wait for the caches."""
        self._site.report_history([
            (host, self.images[name].id)
            for name in history for host in HOSTS])
        self._site.plan()
        self._site.wait(self._site.filled, 600, 'the caches to fill')

    def request(self, host: str, name: str) -> None:
        """Have an image served to a host, once, as Nova's image cache has it.

        :raises SystemExit: what was served is not the image
        """
        # Nova has the servers of a host wait for one download of an image.
        with self._locks[host, name]:
            if (host, name) in self._served:
                return
            output = self._instances(host) / '_base' / name
            self._serve(host, self.images[name], output)
            self._served.add((host, name))
            self._delivered.append((name, output))

    def _serve(self, host: str, image: Image, output: pathlib.Path) -> None:
        """Have the agent write a base file, as Nova's driver does."""
        client = local_client.LocalClient(self._socket(host), 600)
        partial = output.with_name(f'{output.name}.diffcache')
        client.content(image.id, str(partial))
        partial.rename(output)
        client.lend(image.id, str(output))

    def verify(self) -> None:
        """Compare what was served with the images.

        :raises SystemExit: one differs
        """
        for name, output in self._delivered:
            if digest(output) != self.images[name].sha256:
                raise SystemExit(f'{output} is not the image {name}')

    def settle(self) -> None:
        """Wait until all hosts know what each has been served."""
        views_of = [agent.site_map for agent in self._site.hosts.values()]
        self._site.wait(lambda: all(
            views.Key(views.TEMPLATES, self.images[name].content_id)
            in view.current().holdings(host)
            for host, name in self._served for view in views_of),
            60, 'the site map')

    def simultaneous(self, count: int, name: str) -> None:
        """Have so many servers request an image at once, on hosts in turn."""
        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            hosts = [HOSTS[n % len(HOSTS)] for n in range(count)]
            list(pool.map(lambda host: self.request(host, name), hosts))

    @contextlib.contextmanager
    def measuring(self) -> collections.abc.Iterator[None]:
        """Count what crosses the WAN, and the time."""
        before = self._site.wan_bytes()
        started = time.monotonic()
        yield
        seconds = time.monotonic() - started
        self.measured = Measured(self._site.wan_bytes() - before, seconds)


class PlainRig(Rig):
    """Likewise, of hosts that do as plain Nova does."""

    _link = threading.Lock()

    def _options(self) -> dict:
        return {**super()._options(), ('agent', 'keep_requested'): False,
                ('agent', 'lend_seconds'): 0,
                ('repository', 'compression_level'): 0,
                ('repository', 'max_patch_ratio'): 0.0}

    def _prepare(self) -> None:
        for image in self.images.values():
            self._site.register(self._bench.published.file(image.sha256),
                                image.id, image.name)
        self._site.wait_catalogue(0)

    def plan(self, history: collections.abc.Iterable[str]) -> None:
        """Plain Nova has no plan."""

    def stop_conductor(self) -> None:
        """Plain Nova has no conductor."""

    def settle(self) -> None:
        """Plain Nova's hosts do not know of each other."""

    def _serve(self, host: str, image: Image, output: pathlib.Path) -> None:
        agent = self._site.hosts[host]
        packed = output.with_name(f'{output.name}.part')
        # Two hosts of a site would share what arrives at the same time.
        with self._link:
            agent.server.deliver(agent.site_map.find(image.id),
                                 outputs.LocalOutput(packed))
        qemu_img.expand(str(packed), str(output))
        packed.unlink()


class NoPatchesRig(Rig):
    """A site whose repository has created no patches yet."""

    kept = _KEPT

    # The thread that creates them waits for an idle machine.
    def _options(self) -> dict:
        return {**super()._options(), ('repository', 'max_load'): 1e-9}

    def _prepare(self) -> None:
        self._site.make_patches()
        self._site.wait_catalogue(0)


class NoRequestsRig(NoPatchesRig):
    """Likewise, and none is created on request."""

    def _options(self) -> dict:
        return {**super()._options(), ('repository', 'patches_on_demand'): 0}


class UncompressedRig(Rig):
    """A site without compression of what crosses the WAN."""

    kept = tuple(name for name in Rig.kept if name != 'objects/compressed')

    def _options(self) -> dict:
        return {**super()._options(), ('repository', 'compression_level'): 0,
                ('data_plane', 'compress_below'): 0}


class NotBorrowingRig(Rig):
    """A site whose agents do not use files of Nova."""

    def _options(self) -> dict:
        return {**super()._options(), ('agent', 'borrow'): False,
                ('agent', 'lend_seconds'): 0}

    def settle(self) -> None:
        """Small caches hold nothing that others could know of."""


class WithoutPatchesRig(NoRequestsRig):
    """A site that creates no patches at all."""

    def _options(self) -> dict:
        return {**super()._options(), ('repository', 'max_patch_ratio'): 0.0}


class UncoordinatedRig(Rig):
    """A rig, as no option does it: hosts do not see the claims of others."""

    def _open(self) -> None:
        super()._open()
        for agent in self._site.hosts.values():
            agent.plane.set_site(())
            agent.plane.set_site = lambda _hosts: None


# -- the cases

def cold_image(rig: Rig) -> None:
    """First server of a site."""
    with rig.measuring():
        rig.request('host-1', 'base')


def second_host(rig: Rig) -> None:
    """First server of a host, of an image that another host runs."""
    rig.request('host-1', 'base')
    rig.settle()
    with rig.measuring():
        rig.request('host-2', 'base')


def next_build_planned(rig: Rig) -> None:
    """The next build, after a plan; what filled the caches counts."""
    rig.request('host-1', 'base')
    rig.settle()
    with rig.measuring():
        rig.plan(['next'])
        rig.request('host-1', 'next')


def next_build_unplanned(rig: Rig) -> None:
    """The next build, on a host that runs the one before."""
    rig.request('host-1', 'base')
    rig.settle()
    with rig.measuring():
        rig.request('host-1', 'next')


def next_build_elsewhere(rig: Rig) -> None:
    """The next build, on a host beside the one that runs the one before."""
    rig.request('host-1', 'base')
    rig.settle()
    with rig.measuring():
        rig.request('host-2', 'next')


def same_distribution(rig: Rig) -> None:
    """An image with other packages of the same distribution."""
    rig.request('host-1', 'base')
    rig.settle()
    with rig.measuring():
        rig.request('host-1', 'other')


def full_cache(rig: Rig) -> None:
    """The next build, when the caches are full of another image."""
    rig.plan(['other'])
    rig.request('host-1', 'base')
    rig.settle()
    with rig.measuring():
        rig.request('host-2', 'next')


def after_restart(rig: Rig) -> None:
    """The next build, after all services of the site were restarted."""
    rig.request('host-1', 'base')
    rig.settle()
    rig.restart()
    with rig.measuring():
        rig.request('host-1', 'next')


def conductor_outage(rig: Rig) -> None:
    """A second host, and the next build, without the conductor."""
    rig.request('host-1', 'base')
    rig.settle()
    rig.stop_conductor()
    with rig.measuring():
        rig.request('host-2', 'base')
        rig.request('host-2', 'next')


def four_at_once(rig: Rig) -> None:
    """Four servers at once, on two hosts."""
    with rig.measuring():
        rig.simultaneous(4, 'base')


def sixteen_at_once(rig: Rig) -> None:
    """Sixteen servers at once, on two hosts."""
    with rig.measuring():
        rig.simultaneous(16, 'base')


ROOMY, SMALL = 2.5, 0.8
# Capacity of each host's cache, as a share of the base image's data.
CASES = {
    'cold image': (cold_image, ROOMY),
    'second host': (second_host, ROOMY),
    'next build, planned': (next_build_planned, ROOMY),
    'next build, unplanned': (next_build_unplanned, ROOMY),
    'next build, another host': (next_build_elsewhere, ROOMY),
    'same distribution': (same_distribution, ROOMY),
    'cold image, small cache': (cold_image, SMALL),
    'second host, small cache': (second_host, SMALL),
    'next build, small cache': (next_build_unplanned, SMALL),
    'next build elsewhere, small cache': (next_build_elsewhere, SMALL),
    'next build, full cache': (full_cache, 1.2),
    'next build, after a restart': (after_restart, SMALL),
    'conductor outage': (conductor_outage, SMALL),
    '4 servers at once': (four_at_once, SMALL),
    '16 servers at once': (sixteen_at_once, SMALL),
    'next build, no patch yet': (next_build_unplanned, ROOMY),
    'next build, none on request': (next_build_unplanned, ROOMY),
    'same distribution, no patch yet': (same_distribution, ROOMY),
    'same distribution, none on request': (same_distribution, ROOMY),
}
# Sites of DiffCache that differ from the others.
RIGS = {
    'next build, no patch yet': NoPatchesRig,
    'next build, none on request': NoRequestsRig,
    'same distribution, no patch yet': NoPatchesRig,
    'same distribution, none on request': NoRequestsRig,
}


# What is switched off: a case that needs it, and the sites with and without.
PARTS = {
    'compression': ('cold image', Rig, UncompressedRig),
    'borrowed files': ('second host, small cache', Rig, NotBorrowingRig),
    'patches': ('next build, unplanned', Rig, WithoutPatchesRig),
    'patches on request': ('next build, no patch yet', NoPatchesRig,
                           NoRequestsRig),
    'claims (by a rig)': ('4 servers at once', Rig, UncoordinatedRig),
}


class Bench:
    """Prepares images once, and runs cases on fresh sites.

    :param state: directory of everything; later runs use its files again
    :param wan: Mbit/s
    """

    def __init__(self, paths: dict[str, pathlib.Path], state: pathlib.Path,
                 wan: float) -> None:
        self.wan = wan
        self.published = published.PublishedImages(state / 'published')
        self.images: dict[str, Image] = {}
        self._state = state
        self._prepared = state / 'registered'
        shutil.rmtree(self._prepared / 'images', ignore_errors=True)
        shutil.rmtree(state / 'preparation', ignore_errors=True)
        with sites.Site(state / 'preparation', (),
                        sites.LinkSpec(1e5, 1e5, 1e5), self._prepared) as site:
            for name, path in paths.items():
                self._add(site, name, path)
            progress('patches, compressed forms')
            site.make_patches()
            site.wait(site.compressed, 3600, 'images to be compressed')

    def _add(self, site: sites.Site, name: str, path: pathlib.Path) -> None:
        progress(f'{name}: {path}')
        sha256 = digest(path)
        size = self.published.publish(path, sha256)
        image = Image(name, path, sha256, 0, '', size)
        record = site.register(path, image.id, name)
        self.images[name] = dataclasses.replace(
            image, data_size=record.data_size,
            content_id=record.content_id)

    def run(self, name: str) -> dict:
        """Run a case both ways."""
        case, share = CASES[name]
        capacity = round(self.images['base'].data_size * share)
        found = {}
        for label, kind in (('plain', PlainRig),
                            ('ours', RIGS.get(name, Rig))):
            progress(f'{name}: {label}')
            found[label] = self._run(case, kind, capacity)
        plain, ours = found['plain'], found['ours']
        return {'case': name, 'capacity': capacity,
                'plain': dataclasses.asdict(plain),
                'ours': dataclasses.asdict(ours),
                'wan_ratio': ours.wan_bytes / plain.wan_bytes,
                'time_ratio': ours.seconds / plain.seconds}

    def run_part(self, part: str) -> dict:
        """Run a case with a part of the services, and without it."""
        name, *kinds = PARTS[part]
        case, share = CASES[name]
        capacity = round(self.images['base'].data_size * share)
        found = {}
        for label, kind in zip(('with', 'without'), kinds):
            progress(f'{part}: {label}')
            found[label] = dataclasses.asdict(
                self._run(case, kind, capacity))
        return {'part': part, 'case': name, **found}

    def _run(self, case: collections.abc.Callable[[Rig], None],
             kind: type[Rig], capacity: int) -> Measured:
        directory = self._state / 'case'
        shutil.rmtree(directory, ignore_errors=True)
        if kind is not PlainRig:
            self._link_repository(directory / 'repository', kind)
        rig = kind(self, directory, capacity)
        try:
            case(rig)
            rig.verify()
        finally:
            rig.close()
        assert rig.measured is not None
        return rig.measured

    def _link_repository(self, state: pathlib.Path, kind: type[Rig]) -> None:
        """Give a case the prepared objects, which never change."""
        for name in kind.kept:
            (state / name).mkdir(parents=True)
            for path in (self._prepared / name).iterdir():
                if not path.name.startswith('.'):
                    os.link(path, state / name / path.name)


def digest(path: pathlib.Path) -> str:
    """Compute the SHA-256 of a file, in hexadecimal."""
    with open(path, 'rb', buffering=0) as stream:
        return hashlib.file_digest(stream, 'sha256').hexdigest()


def progress(text: str) -> None:
    """Print a line of progress."""
    print(f'hard_cases: {text}', file=sys.stderr, flush=True)


def table(rows: list[dict]) -> str:
    """Format the results for a terminal."""
    lines = [f'{"":<34}{"plain Nova":>20}{"DiffCache":>20}{"ratio":>16}',
             f'{"case":<34}{"MB":>10}{"s":>10}{"MB":>10}{"s":>10}'
             f'{"MB":>8}{"s":>8}']
    for row in rows:
        cells = ''.join(
            f'{row[way]["wan_bytes"] / 1e6:10.1f}{row[way]["seconds"]:10.2f}'
            for way in ('plain', 'ours'))
        lines.append(f'{row["case"]:<34}{cells}{row["wan_ratio"]:8.2f}'
                     f'{row["time_ratio"]:8.2f}')
    return '\n'.join(lines)


def table_of_parts(rows: list[dict]) -> str:
    """Format what each part saves for a terminal."""
    lines = [f'{"":<46}{"with it":>18}{"without":>18}',
             f'{"part":<20}{"case":<26}' + f'{"MB":>9}{"s":>9}' * 2]
    for row in rows:
        cells = ''.join(
            f'{row[way]["wan_bytes"] / 1e6:9.1f}{row[way]["seconds"]:9.2f}'
            for way in ('with', 'without'))
        lines.append(f'{row["part"]:<20}{row["case"]:<26}{cells}')
    return '\n'.join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description='Serve images in cases in which a cache helps least, and '
                    'compare with plain Nova.')
    for name in NAMES:
        parser.add_argument(name, type=pathlib.Path, metavar=name.upper())
    parser.add_argument('--state', type=pathlib.Path, required=True,
                        metavar='DIR', help='Directory for all files; on a '
                        'file system that shares extents, if possible.')
    parser.add_argument('--wan', type=float, default=100.0, metavar='MBITS',
                        help='Speed of the link (default: 100).')
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument('--only', nargs='+', choices=CASES, metavar='CASE',
                        default=list(CASES), help='Run these cases: '
                        + ', '.join(CASES) + '.')
    chosen.add_argument('--parts', action='store_true',
                        help='Show what each part of the services saves.')
    parser.add_argument('-f', dest='format', choices=('table', 'json'),
                        default='table', help='Output format.')
    options = parser.parse_args()
    options.state.mkdir(parents=True, exist_ok=True)
    bench = Bench({name: getattr(options, name) for name in NAMES},
                  options.state.resolve(), options.wan)
    if options.parts:
        rows = [bench.run_part(part) for part in PARTS]
        formatted = table_of_parts(rows)
    else:
        rows = [bench.run(name) for name in options.only]
        formatted = table(rows)
    print(json.dumps(rows, indent=2) if options.format == 'json'
          else formatted)
    machine.report()


if __name__ == '__main__':
    main()
