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
"""The kernel module of Open CAS, by its program ``casadm``.

One cache has all volumes as its cores. The partition of a volume is a class
of requests, those to its core, with a bound on what it occupies.
"""

import collections.abc
import dataclasses
import logging
import os
import pathlib
import threading
import typing
import uuid

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.ssdcache.engines import base
from diffcache_openstack.ssdcache.engines import block_devices
from diffcache_openstack.ssdcache.engines import casadm
from diffcache_openstack.ssdcache.engines import commands

LOG = logging.getLogger(__name__)

# Open CAS bounds classes in hundredths of the cache.
_PARTS = 100
_POLICY = 'wt'
_BY_ID = '/dev/disk/by-id'
_FILE = 'opencas.json'


@dataclasses.dataclass(frozen=True)
class _Volume:
    """What Open CAS does not know of a volume.

    :ivar core: number of its core, and of its class
    :ivar percent: of the cache, also in pass-through
    """

    export: str
    core: int
    origin: str
    mode: str
    percent: int


class _Store:
    """Keeps what Open CAS does not know, over restarts of the agent."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path

    def device(self) -> str | None:
        """Return the device that this engine made a cache of, if it did."""
        found = self._read().get('device')
        return found if isinstance(found, str) else None

    def volumes(self) -> dict[str, _Volume]:
        """Return volumes by name."""
        try:
            return {name: _Volume(**fields) for name, fields
                    in self._read().get('volumes', {}).items()}
        except (TypeError, AttributeError) as error:
            raise exceptions.FormatError(
                f'{self._path} cannot be read: {error}. Stop the cache'
                ' (casadm --stop-cache) and remove the file.') from error

    def keep_device(self, device: str) -> None:
        """Keep the device that becomes an empty cache."""
        self._write({'device': device, 'volumes': {}})

    def keep(self, volumes: collections.abc.Mapping[str, _Volume]) -> None:
        """Keep volumes."""
        self._write({'device': self.device(), 'volumes': {
            name: dataclasses.asdict(each)
            for name, each in volumes.items()}})

    def _read(self) -> dict[str, typing.Any]:
        found = files.read_json(self._path) or {}
        return found if isinstance(found, dict) else {}

    def _write(self, document: dict[str, typing.Any]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        files.write_json(self._path, document)


class OpenCasEngine(base.Engine):
    """See :class:`.base.Engine`.

    :param cache_id: number of the cache of Open CAS
    :param device: SSD; ``casadm`` requires its path in /dev/disk/by-id
    :param state_dir: directory for what Open CAS does not know
    :param run: runs commands as root
    :param by_id: directory with links to the devices that can be cached
    """

    name = 'opencas'
    # A cache of Open CAS has one mode for all volumes.
    abilities = base.Abilities(
        modes=('write-through', 'pass-through'), follows=False, extends=False,
        invalidates=False, admits=False, restarts_warm=False)

    def __init__(self, cache_id: int, device: str, state_dir: str,
                 run: commands.Runner = commands.run, by_id: str = _BY_ID
                 ) -> None:
        self._id = cache_id
        self._device = device
        self._store = _Store(pathlib.Path(state_dir) / _FILE)
        self._run = run
        self._by_id = by_id
        self._lock = threading.RLock()

    def grain(self) -> int:
        """See :meth:`.base.Engine.grain`."""
        return self.capacity() // _PARTS

    def capacity(self) -> int:
        """See :meth:`.base.Engine.capacity`.

        The cache is started if it does not run.
        """
        with self._lock:
            self._cache()
            blocks = casadm.parse_size(self._id, self._run(
                casadm.show_cache(self._id)))
        return blocks // _PARTS * _PARTS

    def volumes(self) -> collections.abc.Mapping[str, base.State]:
        """See :meth:`.base.Engine.volumes`."""
        with self._lock:
            grain, cores = self.grain(), self._cache().cores
            return {name: self._state(volume, cores[volume.core], grain)
                    for name, volume in self._attached().items()}

    def attach(self, attachment: base.Attachment) -> base.State:
        """See :meth:`.base.Engine.attach`."""
        name, mode = attachment.name, attachment.mode
        if not name:
            raise base.VolumeRefused('a volume has a name')
        base.check_mode(self, mode)
        with self._lock:
            known = self._attached()
            percent = self._percent(name, attachment.limit, known)
            if name not in known:
                block_devices.find(self._run, attachment.origin)
                self._add(name, _Volume(
                    uuid.uuid4().hex, self._free_core(known),
                    attachment.origin, mode, percent), known)
            elif os.path.realpath(known[name].origin) != os.path.realpath(
                    attachment.origin):
                raise base.VolumeRefused(
                    f'volume {name} is attached with another origin')
            else:
                self._change(name, mode=mode, percent=percent)
            try:
                self.set_filters(name, attachment.sequential, None)
            except exceptions.DiffCacheError:
                if name not in known:
                    self.detach(name)
                raise
            return self.volumes()[name]

    def detach(self, name: str) -> None:
        """See :meth:`.base.Engine.detach`."""
        with self._lock:
            known = self._attached()
            if name not in known:
                return
            self.flush(name)
            self._run(casadm.remove_core(self._id, known.pop(name).core))
            self._keep(known)

    def set_limit(self, name: str, limit: int) -> None:
        """See :meth:`.base.Engine.set_limit`."""
        with self._lock:
            known = self._attached()
            _check(name, known)
            self._change(name, percent=self._percent(name, limit, known))

    def set_mode(self, name: str, mode: str) -> None:
        """See :meth:`.base.Engine.set_mode`."""
        base.check_mode(self, mode)
        with self._lock:
            self._change(name, mode=mode)

    def set_filters(self, name: str, sequential: int, admission: int | None
                    ) -> None:
        """See :meth:`.base.Engine.set_filters`."""
        with self._lock:
            core = _check(name, self._attached()).core
            self._run(casadm.set_cutoff(self._id, core, sequential))

    def resize(self, name: str) -> None:
        """See :meth:`.base.Engine.resize`."""
        with self._lock:
            _check(name, self._attached())
        raise base.VolumeRefused(
            f'volume {name}: Open CAS does not see that it grew before it is'
            ' detached and attached again')

    def flush(self, name: str) -> None:
        """See :meth:`.base.Engine.flush`."""
        with self._lock:
            volume = _check(name, self._attached())
            path = self._cache().cores[volume.core].path
        self._run(['sync', path])

    # -- changes

    def _add(self, name: str, volume: _Volume,
             known: dict[str, _Volume]) -> None:
        link = self._link(volume.origin)
        # Before a request: one that is in no class passes by.
        self._keep({**known, name: volume})
        try:
            self._run(casadm.add_core(self._id, volume.core, link))
        except exceptions.DiffCacheError:
            self._keep(known)
            raise

    def _change(self, name: str, **fields: typing.Any) -> None:
        known = self._attached()
        known[name] = dataclasses.replace(_check(name, known), **fields)
        self._keep(known)

    def _keep(self, volumes: dict[str, _Volume]) -> None:
        """Give volumes their partitions, and remember them."""
        before = self._store.volumes()
        self._store.keep(volumes)
        try:
            self._run(casadm.load_classes(self._id), casadm.classes({
                volume.core: 0 if volume.mode == 'pass-through'
                else volume.percent for volume in volumes.values()}))
        except exceptions.DiffCacheError:
            self._store.keep(before)
            raise

    # -- state

    def _cache(self) -> casadm.Cache:
        """Return the cache, which is started if it does not run.

        :raises CommandFailed: the device has other content
        :raises VolumeRefused: a cache of another kind has its number
        """
        found = self._listed()
        if found is None:
            self._start()
            found = self._listed()
        if found is None or not found.is_running or found.policy != _POLICY \
                or os.path.realpath(found.disk) != os.path.realpath(
                    self._device):
            raise base.VolumeRefused(
                f'Cache {self._id} of Open CAS is not one in write-through on'
                f' {self._device}: see casadm --list-caches, and choose'
                ' another [ssd_cache] cache_id or stop it.')
        return found

    def _listed(self) -> casadm.Cache | None:
        return casadm.parse_list(self._id, self._run(casadm.LIST))

    def _start(self) -> None:
        # What this engine put there before may be overwritten: after a
        # restart of the host it may be older than what volumes have.
        is_ours = self._store.device() == self._device
        self._run(casadm.start(self._id, self._device, is_ours))
        self._store.keep_device(self._device)
        LOG.info('Started cache %d of Open CAS on %s', self._id,
                 self._device)

    def _attached(self) -> dict[str, _Volume]:
        cores = self._cache().cores
        return {name: volume for name, volume in self._store.volumes().items()
                if volume.core in cores
                and os.path.realpath(cores[volume.core].disk)
                == os.path.realpath(volume.origin)}

    def _state(self, volume: _Volume, core: casadm.Core, grain: int
               ) -> base.State:
        counts = casadm.parse_counts(self._id, volume.core, self._run(
            casadm.show_core(self._id, volume.core)))
        return base.State(
            volume.export, volume.mode, volume.percent * grain,
            counts.blocks, counts.dirty, 'ok' if core.is_active else 'failed',
            base.Traffic(counts.reads, counts.writes, counts.hits,
                         counts.misses, bypassed=counts.bypassed), core.path)

    def _percent(self, name: str, limit: int,
                 known: collections.abc.Mapping[str, _Volume]) -> int:
        grain = self.grain()
        base.check_limit(name, limit, self.capacity(), {
            other: volume.percent * grain for other, volume in known.items()})
        return base.rounded(name, limit, grain) // grain

    def _free_core(self, known: collections.abc.Mapping[str, _Volume]) -> int:
        used = {*self._cache().cores, *(volume.core
                                        for volume in known.values())}
        for core in range(1, casadm.CLASSES + 1):
            if core not in used:
                return core
        raise base.VolumeRefused(
            f'Open CAS has partitions for {casadm.CLASSES} volumes')

    def _link(self, origin: str) -> str:
        """Return the path of a device that Open CAS takes.

        :raises VolumeRefused: it has none
        """
        device = os.path.realpath(origin)
        try:
            links = sorted(os.listdir(self._by_id))
        except FileNotFoundError:
            links = []
        for link in links:
            path = os.path.join(self._by_id, link)
            if os.path.realpath(path) == device:
                return path
        raise base.VolumeRefused(
            f'{origin} has no link in {self._by_id}, which Open CAS needs')


def _check(name: str, known: collections.abc.Mapping[str, _Volume]
           ) -> _Volume:
    """Return a volume that is attached.

    :raises VolumeRefused: it is not
    """
    if name not in known:
        raise base.VolumeRefused(f'volume {name} is not attached')
    return known[name]


def open_engine(settings: base.Settings) -> OpenCasEngine:
    """Return the engine.

    :raises NotConfigured: ``device`` is not set, or this is not root
    """
    if not settings.device:
        raise exceptions.NotConfigured('[ssd_cache] device is not set.')
    commands.check_root(OpenCasEngine.name)
    return OpenCasEngine(settings.cache_id, settings.device,
                         settings.state_dir)
