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
"""One moment of a running guest's volumes, which QEMU keeps while it is read.

A filter goes between a volume and the guest's device: before the guest
overwrites a part for the first time, QEMU copies what was there to a scratch
file, and serves the moment by NBD. A full scratch file ends the moment;
with a backup job (``blockdev-backup`` with ``sync: none``) in place of the
filter (``copy-before-write``) QEMU 7.2 fails the guest's writes.

All nodes have names by which a later process finds what a killed one left, so
that nothing is kept of them elsewhere. Scratch files have no names: they end
with the nodes, or with QEMU.
"""

import contextlib
import dataclasses
import logging
import os
import pathlib
import socket
import subprocess
import tempfile
import time
from typing import Any
from typing import Callable
from typing import Iterator
from typing import Sequence

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.runtime import directories
from diffcache_openstack.versions.guests import snapshots

LOG = logging.getLogger(__name__)

# Names of nodes and exports: the filter above node N is FILTER + N.
_SCRATCH, _FILTER, _ACCESS, _EXPORT = 'dc-s-', 'dc-f-', 'dc-a-', 'dc-e-'
_MOST_NAME = 31
# What our descriptors in QEMU are called, by whether the guest ran before.
_RAN, _PAUSED = 'diffcache ran', 'diffcache paused'
_LISTENER = 'diffcache-nbd'
# An export that is written to.
_WRITTEN = 'written'
# What native code relies on when it reads.
_CLUSTERS = 'cluster_size=64k'
_IMG_TIMEOUT_S = 120
# The guest waits this long for a copy to the scratch file, or the moment ends.
_COPY_TIMEOUT_S = 5
# To a volume and its scratch file.
_CONNECTIONS = 3
# Bytes that QEMU copies at a time, at most.
_COPY = 1 << 20
# A hard-closed export is gone when its last request is.
_EXPORT_TIMEOUT_S = 60
# Room of the scratch file for tables, which grow with the volume: 8 bytes for
# 64 KiB, and as much again for counts.
_TABLES = 16 / 65536
_LEAST_TABLES = 1 << 20


@dataclasses.dataclass(frozen=True)
class Volume:
    """A volume of a running guest.

    :param device: the id of its device in QEMU
    """

    id: str
    device: str


@dataclasses.dataclass(frozen=True)
class Scratch:
    """Where QEMU keeps what a guest overwrites.

    :param limit: bytes of each volume, at most
    """

    directory: pathlib.Path
    limit: int


@dataclasses.dataclass(frozen=True)
class Export:
    """A moment of a volume, to read by NBD.

    :param scratch: name of the export of its scratch file
    """

    socket: pathlib.Path
    name: str
    scratch: str
    size: int


@dataclasses.dataclass(frozen=True)
class _Kept:
    """A volume whose moment is kept, or is to be."""

    volume: Volume
    number: int
    # The device in QEMU's object model, and the node that it reads.
    qdev: str
    node: str
    size: int
    # Descriptor of the scratch file.
    scratch: int

    @property
    def filter(self) -> str:
        return _FILTER + self.node


class VolumePoints:
    """One moment of all volumes of a guest; used once.

    :meth:`prepare`, :meth:`keep` in the guest's pause, :meth:`publish`, and
    :meth:`remove` whatever happened. All raise what
    :meth:`.snapshots.Channel.command` does.

    :param check: raises an error if a moment that was read is none
    """

    def __init__(self, volumes: Sequence[Volume], scratch: Scratch,
                 check: Callable[[], None] | None = None) -> None:
        self._volumes = list(volumes)
        self._scratch = scratch
        self._check = check
        self._kept: list[_Kept] = []
        self._exports: dict[str, Export] = {}
        self._open = contextlib.ExitStack()

    def __bool__(self) -> bool:
        return bool(self._volumes)

    def prepare(self, monitor: snapshots.Channel) -> None:
        """Create scratch files; remove what an interrupted save left.

        :raises NotFound: QEMU does not serve one of the volumes
        :raises NoSpace: there is no room for a scratch file
        """
        clear(monitor)
        found = {volume.id: _device(monitor, volume)
                 for volume in self._volumes}
        ran = monitor.command('query-status')['running']
        for number, volume in enumerate(self._volumes):
            entry = found[volume.id]
            inserted = entry['inserted']
            size = inserted['image']['virtual-size']
            node = inserted['node-name']
            if len(_FILTER + node) > _MOST_NAME:
                raise exceptions.PermanentError(
                    f'QEMU\'s name of volume {volume.id}, {node}, is too'
                    f' long to keep a moment of it.')
            scratch = self._new_scratch(size)
            self._kept.append(_Kept(volume, number, entry['qdev'], node, size,
                                    scratch))
            fdset = monitor.command_with(
                scratch, 'add-fd', opaque=_RAN if ran else _PAUSED)
            monitor.command('blockdev-add', **{
                'driver': 'qcow2', 'node-name': f'{_SCRATCH}{number}',
                # Fixed, so that QEMU itself refuses to exceed the limit.
                'file': {'driver': 'raw', 'size': os.fstat(scratch).st_size,
                         'file': {
                             'driver': 'file', 'locking': 'off',
                             'filename': f'/dev/fdset/{fdset["fdset-id"]}'}}})

    def _new_scratch(self, size: int) -> int:
        """Return the descriptor of an empty qcow2 file without a name."""
        directory = self._scratch.directory
        with files.space_errors(directory), \
                directories.Directory.open(directory) as opened:
            handle = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o600,
                             dir_fd=opened.fd)
        self._open.callback(os.close, handle)
        try:
            subprocess.run(
                ['qemu-img', 'create', '-q', '-f', 'qcow2', '-o', _CLUSTERS,
                 str(directories.descriptor_path(handle)), str(size)],
                pass_fds=[handle], check=True, capture_output=True,
                text=True, timeout=_IMG_TIMEOUT_S)
        except FileNotFoundError as exc:
            raise exceptions.PermanentError(
                'qemu-img is not installed: install QEMU\'s tools') from exc
        except subprocess.TimeoutExpired as exc:
            raise exceptions.ServiceUnavailable(
                f'qemu-img could not create a scratch file in {directory}'
                f' in {_IMG_TIMEOUT_S} seconds.') from exc
        except subprocess.CalledProcessError as exc:
            raise exceptions.PermanentError(
                f'qemu-img could not create a scratch file in {directory}:'
                f' {exc.stderr.strip()}') from exc
        # No part is copied twice.
        room = min(self._scratch.limit, size)
        os.ftruncate(handle, room + _tables(size))
        return handle

    def keep(self, monitor: snapshots.Channel) -> None:
        """Keep the present moment of all volumes of a guest that is paused."""
        for each in self._kept:
            monitor.command('blockdev-add', **{
                'driver': 'copy-before-write', 'node-name': each.filter,
                'file': each.node, 'target': f'{_SCRATCH}{each.number}',
                'on-cbw-error': 'break-snapshot',
                'cbw-timeout': _COPY_TIMEOUT_S})
            _set_drive(monitor, each.qdev, each.filter)

    def publish(self, monitor: snapshots.Channel) -> None:
        """Serve the moment to this process.

        :raises Busy: QEMU serves something else by NBD, such as a backup
        """
        for each in self._kept:
            monitor.command('blockdev-add', **{
                'driver': 'snapshot-access', 'file': each.filter,
                'node-name': f'{_ACCESS}{each.number}'})
        path = self._open.enter_context(_socket_path())
        _listen(monitor, path, _CONNECTIONS * len(self._kept))
        self._start_server(monitor)
        for each in self._kept:
            name = each.volume.id
            scratch = f'{name}-scratch'
            _add_export(monitor, f'{_ACCESS}{each.number}', name)
            _add_export(monitor, f'{_SCRATCH}{each.number}', scratch)
            self._exports[name] = Export(path, name, scratch, each.size)

    def _start_server(self, monitor: snapshots.Channel) -> None:
        try:
            _start_server(monitor)
        except exceptions.PermanentError as exc:
            # By these nodes the server would be taken for ours.
            _delete_nodes(monitor, _ACCESS)
            raise exceptions.Busy(
                f'QEMU serves other disks of the guest by NBD now, such as'
                f' those of a backup or a migration: {exc}') from exc

    def export(self, volume_id: str) -> Export:
        """Return where the moment of a volume is read."""
        return self._exports[volume_id]

    def scratch_bytes(self) -> int:
        """Return the bytes that scratch files take up."""
        return sum(os.fstat(each.scratch).st_blocks * 512
                   for each in self._kept)

    @contextlib.contextmanager
    def reading(self, volume_id: str) -> Iterator[None]:
        """Say why reading the moment of a volume failed, if it has ended.

        :raises NoSpace: the guest has overwritten more than the limit
        """
        try:
            yield
        except exceptions.DiffCacheError as exc:
            [kept] = [each for each in self._kept
                      if each.volume.id == volume_id]
            used = os.fstat(kept.scratch).st_blocks * 512
            if used + _COPY < min(self._scratch.limit, kept.size):
                raise
            raise exceptions.NoSpace(
                f'The server has overwritten more of volume {volume_id} while'
                f' it was read than its scratch file may keep,'
                f' {self._scratch.limit} bytes: save when it writes less.'
                ) from exc
        if self._check is not None:
            self._check()

    def remove(self, monitor: snapshots.Channel) -> None:
        """End the moment, and remove all that belongs to it.

        That is also what a killed attempt left that had saved everything.
        """
        try:
            clear(monitor)
        finally:
            self._open.close()
            self._kept, self._exports = [], {}


@contextlib.contextmanager
def writing(monitor: snapshots.Channel, volume: Volume
            ) -> Iterator[socket.socket]:
    """Serve a volume that no guest uses, to write to it.

    Yields a socket that is connected to its export, the default one.

    :raises NotFound: QEMU does not have it
    :raises Busy: QEMU serves something else by NBD
    """
    node = _device(monitor, volume)['inserted']['node-name']
    with _socket_path() as path:
        _listen(monitor, path, 1)
        try:
            _start_server(monitor)
        except exceptions.PermanentError as exc:
            raise exceptions.Busy(
                f'QEMU serves another volume by NBD now: {exc}') from exc
        try:
            monitor.command('block-export-add', **{
                'type': 'nbd', 'id': _EXPORT + _WRITTEN, 'node-name': node,
                'name': '', 'writable': True})
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                client.connect(str(path))
                yield client
        finally:
            _close_exports(monitor)
            monitor.command('nbd-server-stop')


@contextlib.contextmanager
def _socket_path() -> Iterator[pathlib.Path]:
    with tempfile.TemporaryDirectory(prefix='diffcache-') as directory:
        yield pathlib.Path(directory) / 'nbd'


def _listen(monitor: snapshots.Channel, path: pathlib.Path, count: int
            ) -> None:
    """Give QEMU a socket on which its NBD server is to listen."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen(count)
        monitor.command_with(listening.fileno(), 'getfd', fdname=_LISTENER)


def _start_server(monitor: snapshots.Channel) -> None:
    monitor.command('nbd-server-start', addr={
        'type': 'fd', 'data': {'str': _LISTENER}})


def clear(monitor: snapshots.Channel) -> None:
    """Remove all moments of a guest's volumes; resume a guest left paused.

    :raises ServiceUnavailable: QEMU still works on them
    """
    fdsets = [fdset for fdset in monitor.command('query-fdsets')
              if any(each.get('opaque') in (_RAN, _PAUSED)
                     for each in fdset['fds'])]
    if not fdsets:
        return
    nodes = _nodes(monitor)
    published = any(name.startswith(_ACCESS) for name in nodes)
    _close_exports(monitor)
    if published:
        with contextlib.suppress(exceptions.PermanentError):  # Not started.
            monitor.command('nbd-server-stop')
    # First: a filter that is read lets the device have no other node.
    _delete_nodes(monitor, _ACCESS)
    for entry in monitor.command('query-block'):
        name = entry.get('inserted', {}).get('node-name', '')
        if name.startswith(_FILTER):
            _set_drive(monitor, entry['qdev'], name.removeprefix(_FILTER))
    for prefix in (_FILTER, _SCRATCH):
        _delete_nodes(monitor, prefix)
    if not published and fdsets[0]['fds'][0]['opaque'] == _RAN:
        _resume(monitor)
    # Last: by them a later attempt knows that there is something to remove.
    for fdset in fdsets:
        monitor.command('remove-fd', **{'fdset-id': fdset['fdset-id']})


def _close_exports(monitor: snapshots.Channel) -> None:
    for name in _exports(monitor):
        monitor.command('block-export-del', id=name, mode='hard')
    deadline = time.monotonic() + _EXPORT_TIMEOUT_S
    while _exports(monitor):
        if time.monotonic() > deadline:
            raise exceptions.ServiceUnavailable(
                'QEMU still reads volumes for a save that has ended.')
        time.sleep(0.02)


def _add_export(monitor: snapshots.Channel, node: str, name: str) -> None:
    monitor.command('block-export-add', **{
        'type': 'nbd', 'id': _EXPORT + node, 'node-name': node,
        'name': name})


def _exports(monitor: snapshots.Channel) -> list[str]:
    return [each['id'] for each in monitor.command('query-block-exports')
            if each['id'].startswith(_EXPORT)]


def _resume(monitor: snapshots.Channel) -> None:
    """Resume a guest that ran when a save that was killed began."""
    if monitor.command('query-status')['status'] == 'paused':
        LOG.warning('Resuming a guest that a killed save left paused')
        monitor.command('cont')


def _nodes(monitor: snapshots.Channel) -> set[str]:
    return {node['node-name'] for node
            in monitor.command('query-named-block-nodes', flat=True)}


def _delete_nodes(monitor: snapshots.Channel, prefix: str) -> None:
    for name in _nodes(monitor):
        if name.startswith(prefix):
            monitor.command('blockdev-del', **{'node-name': name})


def _set_drive(monitor: snapshots.Channel, qdev: str, node: str) -> None:
    monitor.command('qom-set', path=qdev, property='drive', value=node)


def _device(monitor: snapshots.Channel, volume: Volume) -> dict[str, Any]:
    """Return what QEMU says of the device that has a volume."""
    path = f'/machine/peripheral/{volume.device}'
    for entry in monitor.command('query-block'):
        qdev = entry.get('qdev', '')
        if 'inserted' in entry and (qdev == path
                                    or qdev.startswith(f'{path}/')):
            return entry
    raise exceptions.NotFound(
        f'QEMU does not serve volume {volume.id} to the server: save it'
        f' without that.')


def _tables(size: int) -> int:
    return max(_LEAST_TABLES, int(size * _TABLES))
