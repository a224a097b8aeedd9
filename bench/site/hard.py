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
"""The cases on an embedded site."""

import collections.abc
import concurrent.futures
import contextlib
import dataclasses
import hashlib
import os
import pathlib
import shutil
import threading
import typing
import uuid

from bench.harness import errors
from bench.harness import processes
from bench.harness import runs
from bench.harness import tables
from bench.patch import images
from bench.site import scenarios
from diffcache_openstack.agent.images.delivery import outputs
from diffcache_openstack.agent_client import local_client
from diffcache_openstack.blocks import qemu_img
from diffcache_openstack.embedded import published
from diffcache_openstack.embedded import sites
from diffcache_openstack.sites import views
from testing import closed_windows

LAN = 10000.0
HOSTS = ('host-1', 'host-2')
NAMES = ('base', 'next', 'other')
_NAMESPACE = uuid.UUID('0a6f7f5e-7d0f-4f0e-8f5b-54f3d3a1c001')
_KEPT = ('images', 'objects/images', 'objects/manifests',
         'objects/compressed')


@dataclasses.dataclass(frozen=True)
class Image:
    """An image to serve; sizes in bytes."""

    name: str
    sha256: str
    data_size: int = 0
    content_id: str = ''

    @property
    def id(self) -> str:
        """ID in Glance."""
        return str(uuid.uuid5(_NAMESPACE, f'{self.name}\n{self.sha256}'))


def digest(path: pathlib.Path) -> str:
    """Compute the SHA-256 of a file, in hexadecimal."""
    with open(path, 'rb', buffering=0) as stream:
        return hashlib.file_digest(stream, 'sha256').hexdigest()


class Rig:
    """A fresh site on which a case runs.

    :cvar kept: what the repository has from the preparation
    :cvar options: configuration that differs, by group and name
    """

    kept: tuple[str, ...] = (*_KEPT, 'patches', 'objects/patches')
    options: dict[tuple[str, str], typing.Any] = {}
    first, second = HOSTS

    def __init__(self, prepared: 'Prepared', directory: pathlib.Path,
                 capacity: int) -> None:
        self.images = prepared.images
        self.figures: dict[str, float] = {}
        self._prepared = prepared
        self._directory = directory
        self._capacity = capacity
        self._served: dict[tuple[str, str], pathlib.Path] = {}
        self._locks = {(host, name): threading.Lock()
                       for host in HOSTS for name in NAMES}
        self._open()

    def _open(self) -> None:
        self._site = sites.Site(
            self._directory,
            [sites.HostSpec(name, self._capacity) for name in HOSTS],
            sites.LinkSpec(self._prepared.wan, LAN, LAN),
            self._directory / 'repository',
            {('agent', 'heartbeat_interval'): 5, **self.options})
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
        """Stop the site."""
        self._site.stop()

    def restart(self, _host: str) -> None:
        """Stop all services of the site, and start them again."""
        self._site.stop()
        self._open()

    @contextlib.contextmanager
    def without_conductor(self) -> collections.abc.Iterator[None]:
        """Leave the agents to themselves."""
        self._site.stop_conductor()
        yield

    def plan(self, name: str) -> None:
        """Plan for requests of an image, and wait for the caches."""
        self._site.report_history([
            (host, self.images[name].id) for host in HOSTS])
        self._site.plan()
        self._site.wait(self._site.filled, 600, 'the caches to fill')

    def start(self, name: str, host: str) -> None:
        """Have an image served to a host, before anything counts."""
        self.request((name, host))

    def request(self, *wanted: tuple[str, str]) -> None:
        """Have images served to hosts, as Nova's image cache has them."""
        with concurrent.futures.ThreadPoolExecutor(len(wanted)) as pool:
            list(pool.map(self._request, *zip(*wanted)))

    def _request(self, name: str, host: str) -> None:
        # Nova has the servers of a host wait for one download of an image.
        with self._locks[host, name]:
            if (host, name) not in self._served:
                output = self._instances(host) / '_base' / name
                self._serve(host, self.images[name], output)
                self._served[host, name] = output

    def _serve(self, host: str, image: Image, output: pathlib.Path) -> None:
        """Have the agent write a base file, as Nova's driver does."""
        client = local_client.LocalClient(self._socket(host), 600)
        partial = output.with_name(f'{output.name}.diffcache')
        client.content(image.id, str(partial))
        partial.rename(output)
        client.lend(image.id, str(output))

    def verify(self) -> None:
        """Compare what was served with the images.

        :raises BenchError: one differs
        """
        for (_, name), output in self._served.items():
            if digest(output) != self.images[name].sha256:
                raise errors.BenchError(f'{output} is not the image {name}')

    def _settle(self) -> None:
        """Wait until all hosts know what each has been served."""
        views_of = [agent.site_map for agent in self._site.hosts.values()]
        self._site.wait(lambda: all(
            views.Key(views.IMAGES, self.images[name].content_id)
            in view.current().holdings(host)
            for host, name in self._served for view in views_of),
            60, 'the site map')

    @contextlib.contextmanager
    def counting(self) -> collections.abc.Iterator[None]:
        """Count what crosses the WAN, and the time."""
        self._settle()
        before = self._site.wan_bytes()
        with processes.spending() as spent:
            yield
        self.figures = {'wan_bytes': self._site.wan_bytes() - before,
                        'seconds': spent.wall_s}


class PlainRig(Rig):
    """Hosts that do as plain Nova does."""

    options = {('agent', 'keep_requested'): False,
               ('agent', 'lend_seconds'): 0,
               ('repository', 'compression_level'): 0,
               ('repository', 'max_patch_ratio'): 0.0}
    _link = threading.Lock()

    def _prepare(self) -> None:
        for image in self.images.values():
            self._site.register(self._prepared.published.file(image.sha256),
                                image.id, image.name)
        self._site.wait_catalogue(0)

    def plan(self, _name: str) -> None:
        """Plain Nova has no plan."""

    def without_conductor(self) -> contextlib.AbstractContextManager:
        """Plain Nova has no conductor."""
        return contextlib.nullcontext()

    def _settle(self) -> None:
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
    # The thread that creates them waits for another day.
    options = {('repository', 'windows'): [closed_windows.window()]}

    def _prepare(self) -> None:
        self._site.make_patches()
        self._site.wait_catalogue(0)


class NoRequestsRig(NoPatchesRig):
    """Likewise, and none is created on request."""

    options = {**NoPatchesRig.options, ('repository', 'patches_on_demand'): 0}


class WithoutPatchesRig(NoRequestsRig):
    """A site that creates no patches at all."""

    options = {**NoRequestsRig.options, ('repository', 'max_patch_ratio'): 0.0}


class UncompressedRig(Rig):
    """A site without compression of what crosses the WAN."""

    kept = tuple(name for name in Rig.kept if name != 'objects/compressed')
    options = {('repository', 'compression_level'): 0,
               ('data_plane', 'compress_below'): 0}


class NotBorrowingRig(Rig):
    """A site whose agents do not use files of Nova."""

    options = {('agent', 'borrow'): False, ('agent', 'lend_seconds'): 0}

    def _settle(self) -> None:
        """Small caches hold nothing that others could know of."""


class UncoordinatedRig(Rig):
    """A rig, as no option does it: hosts do not see the claims of others."""

    def _open(self) -> None:
        super()._open()
        for agent in self._site.hosts.values():
            agent.plane.set_site(())
            agent.plane.set_site = lambda _hosts: None


def full_cache(rig: Rig) -> None:
    """The next build, when the caches are full of another image."""
    rig.plan('other')
    rig.start('base', rig.first)
    with rig.counting():
        rig.request(('next', rig.second))


@dataclasses.dataclass(frozen=True)
class Case:
    """A case, the room in each cache, and DiffCache's site."""

    run: collections.abc.Callable[[Rig], None]
    room: float = scenarios.ROOMY
    rig: type[Rig] = Rig


_SMALL = scenarios.SMALL
CASES = {
    'cold image': Case(scenarios.cold_image),
    'second host': Case(scenarios.second_host),
    'next build, planned': Case(scenarios.next_planned),
    'next build, unplanned': Case(scenarios.next_build),
    'next build, another host': Case(scenarios.next_elsewhere),
    'same distribution': Case(scenarios.same_distribution),
    'cold image, small cache': Case(scenarios.cold_image, _SMALL),
    'second host, small cache': Case(scenarios.second_host, _SMALL),
    'next build, small cache': Case(scenarios.next_build, _SMALL),
    'next build elsewhere, small cache': Case(scenarios.next_elsewhere,
                                              _SMALL),
    'next build, full cache': Case(full_cache, scenarios.FULL),
    'next build, after a restart': Case(scenarios.after_restart, _SMALL),
    'conductor outage': Case(scenarios.conductor_outage, _SMALL),
    '4 servers at once': Case(scenarios.four_at_once, _SMALL),
    '16 servers at once': Case(scenarios.sixteen_at_once, _SMALL),
    'next build, no patch yet': Case(scenarios.next_build, rig=NoPatchesRig),
    'next build, none on request': Case(scenarios.next_build,
                                        rig=NoRequestsRig),
    'same distribution, no patch yet': Case(scenarios.same_distribution,
                                            rig=NoPatchesRig),
    'same distribution, none on request': Case(scenarios.same_distribution,
                                               rig=NoRequestsRig),
}
# What is switched off: a case that needs it, and the site without.
PARTS = {
    'compression': ('cold image', UncompressedRig),
    'borrowed files': ('second host, small cache', NotBorrowingRig),
    'patches': ('next build, unplanned', WithoutPatchesRig),
    'patches on request': ('next build, no patch yet', NoRequestsRig),
    'claims': ('4 servers at once', UncoordinatedRig),
}


class Prepared:
    """Images of a repository, prepared once for fresh sites."""

    def __init__(self, run: runs.Run) -> None:
        paths = run.options.images or (
            images.make(run.work, dict(zip(NAMES, (0, 16, 100))))
            if run.quick else None)
        if not paths or len(paths) != len(NAMES):
            raise errors.BenchError('give --images BASE NEXT OTHER')
        self.wan = run.options.wan
        self.images: dict[str, Image] = {}
        self.published = published.PublishedImages(run.work / 'published')
        self._work = run.work
        self._registered = run.work / 'registered'
        with sites.Site(run.work / 'preparation', (),
                        sites.LinkSpec(1e5, 1e5, 1e5),
                        self._registered) as site:
            for name, path in zip(NAMES, paths):
                run.say(f'preparing {name}')
                image = Image(name, digest(path))
                self.published.publish(path, image.sha256)
                record = site.register(path, image.id, name)
                self.images[name] = dataclasses.replace(
                    image, data_size=record.data_size,
                    content_id=record.content_id)
            run.say('preparing patches and compressed forms')
            site.make_patches()
            site.wait(site.compressed, 3600, 'images to be compressed')

    def measure(self, name: str, kind: type[Rig]) -> dict[str, float]:
        """Run a case on a fresh site."""
        case, directory = CASES[name], self._work / 'case'
        shutil.rmtree(directory, ignore_errors=True)
        if kind is not PlainRig:
            self._link_repository(directory / 'repository', kind)
        rig = kind(self, directory, round(
            self.images['base'].data_size * case.room))
        try:
            case.run(rig)
            rig.verify()
        finally:
            rig.close()
        return rig.figures

    def _link_repository(self, state: pathlib.Path, kind: type[Rig]) -> None:
        """Give a case the prepared objects, which never change."""
        for name in kind.kept:
            (state / name).mkdir(parents=True)
            for path in (self._registered / name).iterdir():
                if not path.name.startswith('.'):
                    os.link(path, state / name / path.name)


def hard(run: runs.Run) -> None:
    """Run cases both ways."""
    prepared, rows = Prepared(run), []
    for name in run.options.only:
        rows.append(scenarios.row(name, {
            way: run.keep(f'{name}: {way}', lambda name=name, kind=kind:
                          prepared.measure(name, kind))
            for way, kind in (('plain Nova', PlainRig),
                              ('DiffCache', CASES[name].rig))},
            'plain Nova', 'DiffCache'))
    run.table(f'A link of {run.options.wan:g} Mbit/s', scenarios.head(
        ('Plain Nova', 'DiffCache')), rows)


def parts(run: runs.Run) -> None:
    """Run a case with a part of the services, and without it."""
    prepared, rows = Prepared(run), []
    for part in run.options.only:
        name, without = PARTS[part]
        cells: list[str] = []
        for label, kind in (('with it', CASES[name].rig),
                            ('without', without)):
            found = run.keep(f'{part}: {label}', lambda name=name, kind=kind:
                             prepared.measure(name, kind))
            cells += [tables.megabytes(found['wan_bytes']),
                      f'{found["seconds"]:.1f}']
        rows.append((part, name, *cells))
    run.table(f'A link of {run.options.wan:g} Mbit/s', (
        'Part', 'Case', 'With it, MB', 's', 'Without, MB', 's'), rows)
