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
"""Internal snapshots of qcow2 disks: of a guest that runs, and of none.

A stopped guest's disk is handled with qemu-img, a running one's through its
QMP socket. Either way the snapshot keeps the disk's state and not the
memory's.
"""

import abc
import contextlib
import dataclasses
import json
import os
import pathlib
import socket
import time
from typing import Any
from typing import Protocol
from typing import Sequence

from diffcache_openstack import _native
from diffcache_openstack.blocks import native_errors
from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.disks import disk_files
from diffcache_openstack.versions.disks import locks
from diffcache_openstack.versions.guests import guest_agent

_TIMEOUT_S = 120


@dataclasses.dataclass(frozen=True)
class GuestPause:
    """What a snapshot or view cost the guest, in milliseconds."""

    # The guest was paused.
    pause_ms: float = 0.0
    # Its filesystems took no writes, while it ran otherwise.
    frozen_ms: float = 0.0
    # The filesystems were flushed and frozen before.
    quiesced: bool = False


class Snapshotter(abc.ABC):
    """Creates and deletes internal snapshots of a guest's disks."""

    @abc.abstractmethod
    def create(self, name: str) -> GuestPause:
        """Take a snapshot of all disks under a name.

        :raises ServiceUnavailable: the guest's monitor did not answer
        :raises Busy: another process uses the disk
        :raises PermanentError: it was refused; the message says why
        """

    @abc.abstractmethod
    def delete(self, name: str) -> None:
        """Delete a snapshot, where it exists; raises as :meth:`create`."""


def disk_info(disk: pathlib.Path, disk_format: str | None = None
              ) -> dict[str, Any]:
    """Read the format, size, backing file and snapshots of a disk.

    The keys are ``format``, ``size`` in bytes, ``cluster_size``,
    ``refcount_bits``, ``backing`` (a name or None) and ``snapshots`` (number,
    name and fingerprint of each).

    :param disk_format: ``raw`` or ``qcow2``; if None it is detected by the
        first bytes, which the guest of a raw disk may have written: then a
        header that names a backing file is refused
    :raises InvalidInput: the disk is refused
    """
    with disk_files.reading(disk) as opened, native_errors.translated():
        return _native.version_disk_info(opened, disk_format)


def supports_snapshots(disk: pathlib.Path, disk_format: str | None = None
                       ) -> bool:
    """Return whether a disk can have internal snapshots.

    Those are qcow2 disks, unless their reference counts of one bit cannot
    count two users of a cluster. The parameter and errors are those of
    :func:`disk_info`.
    """
    info = disk_info(disk, disk_format)
    return info['format'] == 'qcow2' and info['refcount_bits'] > 1


def marker_path(disk: pathlib.Path) -> pathlib.Path:
    """Return the file that exists while qemu-img changes snapshots."""
    return disk.with_name(f'{disk.name}.snapshots')


class OfflineSnapshotter(Snapshotter):
    """Snapshots of a stopped guest's disk, which is locked, by qemu-img.

    A qemu-img that is killed may leave reference counts that are too high: no
    data is lost, but space is, and the disk's check fails. A marker file
    beside the disk stays then, by which the next call frees that space. Other
    errors of a disk are reported, never repaired: a repair may drop data.
    """

    def __init__(self, disk: pathlib.Path) -> None:
        self._disk = disk
        self._marker = marker_path(disk)

    def _change(self, action: str, name: str) -> None:
        access = disk_files.access()
        with locks.hold(self._disk) as lock:
            if self._marker.name in access.companions(self._marker.parent):
                self._run(lock, disk_files.CHECK_LEAKS)
            os.close(access.create(self._marker))
            self._run(lock, action, name)
            # Not reached if this process or qemu-img is killed, or fails.
            access.remove(self._marker)

    def _run(self, lock: int, action: str, name: str = '') -> None:
        ended = disk_files.access().qemu_img(self._disk, lock, action, name)
        if ended.code == 0:
            return
        raise exceptions.PermanentError(
            f'qemu-img could not {action} on {self._disk}: {ended.message}. '
            f'Save the stopped guest\'s disk without a snapshot (--scan), or '
            f'examine it with qemu-img check.')

    def create(self, name: str) -> GuestPause:
        self._change(disk_files.CREATE_SNAPSHOT, name)
        # Without a guest nothing is unwritten.
        return GuestPause(quiesced=True)

    def delete(self, name: str) -> None:
        self._change(disk_files.DELETE_SNAPSHOT, name)


class Channel(Protocol):
    """A connection to a guest's monitor, which speaks QMP."""

    def command(self, name: str, /, **arguments: Any) -> Any:
        """Run a command and return its result.

        :raises PermanentError: the command was refused
        :raises ServiceUnavailable: no answer came
        """

    def command_with(self, descriptor: int, name: str, /, **arguments: Any
                     ) -> Any:
        """Run a command that gets a descriptor, as :meth:`command`."""


@dataclasses.dataclass(frozen=True)
class Guest:
    """The running guest that has some disks."""

    # Its monitor: a unix socket that speaks QMP, or a connection to it.
    monitor: pathlib.Path | Channel
    # The same of its guest agent, by which filesystems are frozen.
    agent: pathlib.Path | guest_agent.Channel | None = None


class Monitor:
    """A client of QEMU's machine protocol on a unix socket.

    A context manager; one command at a time.
    """

    def __init__(self, path: pathlib.Path,
                 timeout_s: float = _TIMEOUT_S) -> None:
        self._path = path
        self._timeout_s = timeout_s

    def __enter__(self) -> 'Monitor':
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(self._timeout_s)
        try:
            self._socket.connect(str(self._path))
            self._stream = self._socket.makefile('rb')
            self._receive()
            self.command('qmp_capabilities')
        except OSError as exc:
            self._socket.close()
            raise exceptions.ServiceUnavailable(
                f'The monitor {self._path} does not answer: {exc}') from exc
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self._stream.close()
        self._socket.close()

    def _receive(self) -> dict[str, Any]:
        line = self._stream.readline()
        if not line:
            raise exceptions.ServiceUnavailable(
                f'The monitor {self._path} closed the connection.')
        answer = json.loads(line)
        if not isinstance(answer, dict):
            raise exceptions.PermanentError(
                f'{self._path} is not a QEMU monitor: check the path.')
        return answer

    def command(self, name: str, /, **arguments: Any) -> Any:
        """Run a command and return its result, skipping events.

        :raises PermanentError: the command was refused
        :raises ServiceUnavailable: no answer came
        """
        return self._run((), name, arguments)

    def command_with(self, descriptor: int, name: str, /, **arguments: Any
                     ) -> Any:
        """Run a command that gets a descriptor, as :meth:`command`."""
        return self._run((descriptor,), name, arguments)

    def _run(self, descriptors: Sequence[int], name: str,
             arguments: dict[str, Any]) -> Any:
        request = {'execute': name, 'arguments': arguments}
        try:
            data = json.dumps(request).encode() + b'\n'
            # Nothing is left in the stream's buffer between commands.
            sent = socket.send_fds(self._socket, [data], descriptors)
            self._socket.sendall(data[sent:])
            answer = self._receive()
            while 'return' not in answer and 'error' not in answer:
                answer = self._receive()
        except (OSError, ValueError) as exc:
            raise exceptions.ServiceUnavailable(
                f'The monitor {self._path} did not answer {name}: {exc}'
            ) from exc
        if 'error' in answer:
            raise exceptions.PermanentError(
                f'The monitor {self._path} refused {name}: '
                f'{answer["error"].get("desc")}')
        return answer['return']


def connect(where: pathlib.Path | Channel
            ) -> contextlib.AbstractContextManager[Channel]:
    """Connect to a monitor for the time of a ``with`` block."""
    if isinstance(where, pathlib.Path):
        return Monitor(where)
    return contextlib.nullcontext(where)


def _node(monitor: Channel, disk: pathlib.Path) -> dict[str, Any]:
    """Return what a monitor reports of the block node of a disk.

    :raises NotFound: the guest has no such qcow2 disk
    """
    wanted = disk.resolve()
    for node in monitor.command('query-named-block-nodes'):
        if (node.get('drv') == 'qcow2' and pathlib.Path(
                node.get('image', {}).get('filename', '')).resolve()
                == wanted):
            return node
    raise exceptions.NotFound(
        f'The guest has no qcow2 disk {disk}: check the socket and the path.')


def flush_disks(disks: Sequence[pathlib.Path]) -> None:
    """Make what a guest wrote to its disks durable.

    QEMU does so in the guest's pause, which this shortens.
    """
    for disk in disks:
        handle = disk_files.access().open(disk)
        try:
            os.fdatasync(handle)
        finally:
            os.close(handle)


class RunningSnapshotter(Snapshotter):
    """Snapshots of a running guest's disks, all in one QMP transaction.

    The guest is paused while QEMU's main loop takes the snapshot: the time of
    the command is the pause.

    :param monitor: its socket, or a connection
    :param agent: the same of the guest agent, by which filesystems are frozen
        for that time
    """

    def __init__(self, monitor: pathlib.Path | Channel,
                 disks: list[pathlib.Path],
                 agent: pathlib.Path | guest_agent.Channel | None = None
                 ) -> None:
        self._monitor = monitor
        self.disks = disks
        self._agent = agent

    def actions(self, monitor: Channel, name: str) -> list[dict[str, Any]]:
        """Return the actions of a transaction that snapshots all disks.

        :raises NotFound: the guest does not have one of them
        """
        return [{'type': 'blockdev-snapshot-internal-sync',
                 'data': {'device': _node(monitor, disk)['node-name'],
                          'name': name}} for disk in self.disks]

    def create(self, name: str) -> GuestPause:
        with connect(self._monitor) as monitor:
            actions = self.actions(monitor, name)
            flush_disks(self.disks)
            with guest_agent.frozen(self._agent) as freeze:
                if freeze.quiesced:
                    flush_disks(self.disks)
                started = time.monotonic()
                monitor.command('transaction', actions=actions)
                pause_ms = (time.monotonic() - started) * 1000
        return GuestPause(pause_ms, freeze.frozen_ms, freeze.quiesced)

    def delete(self, name: str) -> None:
        with connect(self._monitor) as monitor:
            for disk in self.disks:
                node = _node(monitor, disk)
                kept = node['image'].get('snapshots', ())
                if any(each['name'] == name for each in kept):
                    monitor.command('blockdev-snapshot-delete-internal-sync',
                                    device=node['node-name'], name=name)


def for_stopped_guest(disk: pathlib.Path, disk_format: str | None = None
                      ) -> Snapshotter | None:
    """Return what takes snapshots of a stopped guest's disk; None for none.

    :param disk_format: see :func:`disk_info`
    """
    if supports_snapshots(disk, disk_format):
        return OfflineSnapshotter(disk)
    return None
