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
"""The cache of Linux's device mapper, dm-cache, on space of LVM.

LVM's own caches are of logical volumes, which a volume of Cinder is not: it
has no label of LVM, and must not get one. So LVM manages the SSD alone, with
two logical volumes for each partition, and dm-cache combines them with the
volume's device as it is.
"""

import collections.abc
import dataclasses
import logging
import re
import secrets
import threading

from diffcache_openstack.common import exceptions
from diffcache_openstack.ssdcache.engines import base
from diffcache_openstack.ssdcache.engines import block_devices
from diffcache_openstack.ssdcache.engines import commands
from diffcache_openstack.ssdcache.engines import device_mapper as dm
from diffcache_openstack.ssdcache.engines import lvm

LOG = logging.getLogger(__name__)

_BLOCK = 4096
# Of a cache's metadata: so much, and more for each chunk.
_METADATA = 4 << 20
_METADATA_OF_CHUNK = 24
# The part of the volume group that is left for metadata: one of so many.
_RESERVE = 64
_NAME = re.compile(r'[A-Za-z0-9][A-Za-z0-9.-]{0,63}')
_DEVICE = re.compile(re.escape(dm.PREFIX) + r'(.+)-[0-9a-f]{8}')


@dataclasses.dataclass(frozen=True)
class _Cached:
    """A volume that is attached.

    :ivar name: of its device
    """

    name: str
    table: dm.Table
    status: dm.Status
    limit: int

    def state(self) -> base.State:
        status, blocks = self.status, self.status.chunk // _BLOCK
        state = 'failed' if status.is_failed else 'ok'
        if self.table.mode is None:
            state = 'pass-through'
        return base.State(
            self.name, self.table.mode or 'pass-through', self.limit,
            status.used * blocks, status.dirty * blocks, state, base.Traffic(
                status.read_hits + status.read_misses,
                status.write_hits + status.write_misses,
                status.read_hits + status.write_hits,
                status.read_misses + status.write_misses,
                status.demotions * blocks),
            dm.path(self.name))


class LvmCacheEngine(base.Engine):
    """See :class:`.base.Engine`.

    :param group: volume group on the SSD
    :param run: runs commands as root
    """

    name = 'lvmcache'
    # dm-cache knows no write-around. Its write-back is left out: after a
    # crash it takes all blocks for dirty, and would write old ones over what
    # another host wrote since.
    abilities = base.Abilities(
        modes=('write-through', 'pass-through'), follows=False,
        keeps_blocks=False, skips_sequences=False, admits=False,
        restarts_warm=False, survives_device=False)

    def __init__(self, group: str, run: commands.Runner = commands.run
                 ) -> None:
        lvm.check_group(group)
        self._group = group
        self._run = run
        self._lock = threading.RLock()

    def grain(self) -> int:
        """See :meth:`.base.Engine.grain`."""
        return self._find_group().extent // _BLOCK

    def capacity(self) -> int:
        """See :meth:`.base.Engine.capacity`.

        Logical volumes that are not of this engine are no part of it.
        """
        with self._lock:
            return self._capacity()

    def _capacity(self) -> int:
        group = self._find_group()
        ours = sum(volume.size for volume in self._logical().values()
                   if volume.is_ours)
        extents = (group.free + ours) // group.extent
        return extents * (_RESERVE - 1) // _RESERVE * group.extent // _BLOCK

    def volumes(self) -> collections.abc.Mapping[str, base.State]:
        """See :meth:`.base.Engine.volumes`."""
        return {name: cached.state()
                for name, cached in self._attached().items()}

    def attach(self, attachment: base.Attachment) -> base.State:
        """See :meth:`.base.Engine.attach`."""
        name, mode = attachment.name, attachment.mode
        if not _NAME.fullmatch(name):
            raise base.VolumeRefused(
                f'{name!r} is no name of a volume: 1 to 64 letters, digits,'
                ' dots and hyphens')
        base.check_mode(self, mode)
        with self._lock:
            known = self._attached()
            device = block_devices.find(self._run, attachment.origin)
            if name not in known:
                self._create(name, dm.Table(device.size, device.number, mode),
                             self._fitting(name, attachment.limit, known))
            elif known[name].table.origin != device.number:
                raise base.VolumeRefused(
                    f'volume {name} is attached with another origin')
            else:
                self.set_limit(name, attachment.limit)
                self.set_mode(name, mode)
            return self._find(name).state()

    def detach(self, name: str) -> None:
        """See :meth:`.base.Engine.detach`."""
        with self._lock:
            cached = self._attached().get(name)
            if cached is None:
                return
            self.flush(name)
            self._run(dm.remove(cached.name))
            self._remove_unused()

    def set_limit(self, name: str, limit: int) -> None:
        """See :meth:`.base.Engine.set_limit`.

        The volume is served without a cache while it gets another one.
        """
        with self._lock:
            known = self._attached()
            cached = self._find(name)
            limit = self._fitting(name, limit, known)
            if limit == cached.limit:
                return
            table = cached.table
            self._exchange(cached, dm.linear_table(table.size, table.origin))
            self._remove_unused(cached.name)
            try:
                self._create_parts(cached.name, limit)
                self._exchange(cached, self._cache_table(
                    cached.name, dataclasses.replace(
                        table, mode=table.mode or 'write-through')))
            except exceptions.DiffCacheError:
                LOG.warning('Volume %s is served without the SSD cache until'
                            ' its limit is set again', name)
                raise

    def set_mode(self, name: str, mode: str) -> None:
        """See :meth:`.base.Engine.set_mode`."""
        base.check_mode(self, mode)
        with self._lock:
            self._change(self._find(name), mode=mode)

    def resize(self, name: str) -> None:
        """See :meth:`.base.Engine.resize`."""
        with self._lock:
            cached = self._find(name)
            size = block_devices.find(
                self._run, f'/dev/block/{cached.table.origin}').size
            if size < cached.table.size:
                raise base.VolumeRefused(
                    f'volume {name}: its origin has {size} bytes, fewer than'
                    f' {cached.table.size}')
            self._change(cached, size=size)

    def flush(self, name: str) -> None:
        """See :meth:`.base.Engine.flush`."""
        self._run(['sync', dm.path(self._find(name).name)])

    def invalidate(self, name: str) -> None:
        """See :meth:`.base.Engine.invalidate`."""
        with self._lock:
            cached = self._find(name)
            if cached.table.mode is None:
                return
            self._change(cached, mode='pass-through')
            try:
                self._run(dm.invalidate(cached.name, cached.status.total))
            finally:
                self._change(self._find(name), mode=cached.table.mode)

    # -- changes

    def _create(self, name: str, table: dm.Table, limit: int) -> None:
        device = f'{dm.PREFIX}{name}-{secrets.token_hex(4)}'
        self._remove_unused()
        self._create_parts(device, limit)
        try:
            self._run(dm.create(device, self._cache_table(device, table)))
        except exceptions.DiffCacheError:
            self._remove_unused()
            raise

    def _create_parts(self, device: str, limit: int) -> None:
        extent = self._find_group().extent
        size = limit * _BLOCK
        metadata = _METADATA + size // dm.CHUNK * _METADATA_OF_CHUNK
        blocks, meta = _parts(device)
        self._run(lvm.create(self._group, blocks, size, False))
        # Metadata that begins with zeroes is made anew by dm-cache.
        self._run(lvm.create(self._group, meta,
                             -(-metadata // extent) * extent, True))

    def _remove_unused(self, unused: str = '') -> None:
        """Remove logical volumes of devices that are not there any more.

        After a restart of the host, or a failure, there are some.

        :param unused: name of a device that has no cache at the moment
        """
        used = {part for cached in self._attached().values()
                if cached.name != unused for part in _parts(cached.name)}
        names = [name for name, volume in self._logical().items()
                 if volume.is_ours and name not in used]
        if not names:
            return
        try:
            self._run(lvm.remove(self._group, names))
        except commands.CommandFailed as error:
            LOG.warning('Could not remove logical volumes, will retry when the'
                        ' next volume is attached: %s', error)

    def _change(self, cached: _Cached, **fields: object) -> None:
        table = dataclasses.replace(
            cached.table, **fields)  # type: ignore[arg-type]
        if table == cached.table:
            return
        if cached.table.mode is None and 'mode' in fields:
            raise base.VolumeRefused(
                f'{cached.name} has no cache at the moment: set its limit')
        self._exchange(
            cached, dm.linear_table(table.size, table.origin)
            if table.mode is None else self._cache_table(cached.name, table))

    def _exchange(self, cached: _Cached, table: str) -> None:
        for words in dm.exchange(cached.name, table):
            self._run(words)

    def _cache_table(self, device: str, table: dm.Table) -> str:
        blocks, meta = _parts(device)
        return dm.cache_table(table, lvm.path(self._group, meta),
                              lvm.path(self._group, blocks))

    # -- state

    def _find_group(self) -> lvm.Group:
        group = lvm.parse_group(self._group, self._run(
            lvm.show_group(self._group)))
        if group.extent % dm.CHUNK:
            raise exceptions.InvalidInput(
                f'Volume group {self._group} has extents of {group.extent}'
                f' bytes, no multiple of {dm.CHUNK}: create it with vgcreate'
                ' --physicalextentsize 4m.')
        return group

    def _logical(self) -> dict[str, lvm.LogicalVolume]:
        return lvm.parse_volumes(self._group, self._run(
            lvm.show_volumes(self._group)))

    def _attached(self) -> dict[str, _Cached]:
        with self._lock:
            tables = dm.parse_tables(self._run(dm.TABLES))
            statuses = dm.parse_status(self._run(dm.STATUS))
            logical = self._logical()
        found = {}
        for device, table in tables.items():
            name = _DEVICE.fullmatch(device)
            if name is None:
                raise commands.unknown(dm.TABLES, device)
            blocks = logical.get(_parts(device)[0])
            found[name[1]] = _Cached(
                device, table, statuses.get(device, dm.Status()),
                0 if blocks is None or table.mode is None
                else blocks.size // _BLOCK)
        return found

    def _find(self, name: str) -> _Cached:
        found = self._attached().get(name)
        if found is None:
            raise base.VolumeRefused(f'volume {name} is not attached')
        return found

    def _fitting(self, name: str, limit: int,
                 known: collections.abc.Mapping[str, _Cached]) -> int:
        """Return a limit as a multiple of extents.

        :raises VolumeRefused: there is no room for it
        """
        grain, capacity = self.grain(), self.capacity()
        base.check_limit(name, limit, capacity, {
            other: cached.limit for other, cached in known.items()})
        return base.rounded(name, limit, grain)


def _parts(device: str) -> tuple[str, str]:
    """Return the logical volumes of a device: blocks, and metadata."""
    return f'{device}-blocks', f'{device}-metadata'


def open_engine(settings: base.Settings) -> LvmCacheEngine:
    """Return the engine.

    :raises NotConfigured: ``volume_group`` is not set, or this is not root
    """
    if not settings.volume_group:
        raise exceptions.NotConfigured('[ssd_cache] volume_group is not set.')
    commands.check_root(LvmCacheEngine.name)
    return LvmCacheEngine(settings.volume_group)
