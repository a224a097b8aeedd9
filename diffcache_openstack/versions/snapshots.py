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
import subprocess
import time
from typing import Any
from typing import Iterator
from typing import Protocol
from typing import Sequence

from diffcache_openstack import _native
from diffcache_openstack.blocks import native as native_errors
from diffcache_openstack.common import exceptions
from diffcache_openstack.versions import guest_agent

_TIMEOUT_S = 120


@dataclasses.dataclass(frozen=True)
class Taken:
    """What taking a snapshot cost the guest, in milliseconds."""

    # The guest stood still.
    pause_ms: float = 0.0
    # Its filesystems took no writes, while it went on otherwise.
    frozen_ms: float = 0.0
    # The filesystems were asked to write everything down before.
    quiesced: bool = False


class Snapshots(abc.ABC):
    """Makes and removes internal snapshots of a guest's disks."""

    @abc.abstractmethod
    def create(self, name: str) -> Taken:
        """Keep the present state of all disks under a name.

        :raises ServiceUnavailable: the guest's monitor did not answer
        :raises Busy: the disk is in use by somebody else
        :raises PermanentError: it was refused; the message says why
        """

    @abc.abstractmethod
    def delete(self, name: str) -> None:
        """Forget a state, where it is kept; raises as :meth:`create`."""


def disk_info(disk: pathlib.Path, disk_format: str | None = None
              ) -> dict[str, Any]:
    """What the tables of a disk say, if it has some.

    The keys are ``format``, ``size`` in bytes, ``cluster_size``,
    ``backing`` (a name or None) and ``snapshots`` (number, name and
    fingerprint of each).

    :param disk_format: ``raw`` or ``qcow2``; if None, what the file begins
        with is believed, which the guest of a raw disk may have written
    :raises InvalidInput: the disk is refused
    """
    with native_errors.translated():
        return _native.version_disk_info(disk, disk_format)


def can_keep(disk: pathlib.Path, disk_format: str | None = None) -> bool:
    """Whether a disk's format has internal snapshots: it is qcow2.

    The parameter and errors are those of :func:`disk_info`.
    """
    return disk_info(disk, disk_format)['format'] == 'qcow2'


def working_path(disk: pathlib.Path) -> pathlib.Path:
    """The file that says that qemu-img is, or was, changing snapshots."""
    return disk.with_name(f'{disk.name}.snapshots')


class Offline(Snapshots):
    """A disk that no guest uses, through qemu-img, which checks that.

    A qemu-img that is killed meanwhile leaves reference counts that are too
    high: no data is lost or wrong, but space is, and the disk's check fails.
    A file beside the disk says that one was at work; the next one mends.
    """

    def __init__(self, disk: pathlib.Path) -> None:
        self._disk = disk
        self._marker = working_path(disk)

    @contextlib.contextmanager
    def _marked(self) -> Iterator[None]:
        if self._marker.exists():
            self._run('check', '-q', '-r', 'all')
        self._marker.touch()
        yield
        # Not reached if this process or qemu-img is killed, or fails.
        self._marker.unlink()

    def _run(self, *arguments: str) -> None:
        try:
            done = subprocess.run(
                ['qemu-img', *arguments, str(self._disk)],
                capture_output=True, text=True, timeout=_TIMEOUT_S)
        except FileNotFoundError as exc:
            raise exceptions.PermanentError(
                'qemu-img is not installed: install QEMU\'s tools') from exc
        except subprocess.TimeoutExpired as exc:
            raise exceptions.ServiceUnavailable(
                f'qemu-img did not finish with {self._disk} in {_TIMEOUT_S} '
                f'seconds') from exc
        if done.returncode == 0:
            return
        message = done.stderr.strip().replace('\n', ' ')
        if 'lock' in message:
            raise exceptions.Busy(
                f'{self._disk} is in use: {message}; give the QMP socket of '
                f'its guest')
        raise exceptions.PermanentError(
            f'qemu-img {arguments[0]} failed on {self._disk}: {message}')

    def create(self, name: str) -> Taken:
        with self._marked():
            self._run('snapshot', '-c', name)
        # No guest, so all that was written is on the disk.
        return Taken(quiesced=True)

    def delete(self, name: str) -> None:
        with self._marked():
            self._run('snapshot', '-d', name)


class Channel(Protocol):
    """What speaks QMP to a guest's monitor."""

    def command(self, name: str, /, **arguments: Any) -> Any:
        """What a command returns.

        :raises PermanentError: the command was refused
        :raises ServiceUnavailable: no answer came
        """


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
            self._stream = self._socket.makefile('rwb')
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
                f'{self._path} is no monitor of QEMU.')
        return answer

    def command(self, name: str, /, **arguments: Any) -> Any:
        """What a command returns; events that come between are passed over.

        :raises PermanentError: the command was refused
        :raises ServiceUnavailable: no answer came
        """
        request = {'execute': name, 'arguments': arguments}
        try:
            self._stream.write(json.dumps(request).encode() + b'\n')
            self._stream.flush()
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


def opened(where: pathlib.Path | Channel
           ) -> contextlib.AbstractContextManager[Channel]:
    """What speaks to a monitor, for the time of a ``with`` block."""
    if isinstance(where, pathlib.Path):
        return Monitor(where)
    return contextlib.nullcontext(where)


def _node(monitor: Channel, disk: pathlib.Path) -> dict[str, Any]:
    """What a monitor tells of the node of a disk.

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


def sync(disks: Sequence[pathlib.Path]) -> None:
    """Let the kernel write down what a guest wrote to its disks.

    QEMU does so while the guest stands still: what is left then is little.
    """
    for disk in disks:
        handle = os.open(disk, os.O_RDONLY)
        try:
            os.fdatasync(handle)
        finally:
            os.close(handle)


class Running(Snapshots):
    """Disks of a running guest, through its monitor: all in one transaction.

    The guest stands still while QEMU's main loop makes the snapshot: the
    time of the command is the pause.

    :param monitor: its socket, or what speaks to it
    :param agent: the same of the guest agent, which is asked to keep the
        filesystems still meanwhile
    """

    def __init__(self, monitor: pathlib.Path | Channel,
                 disks: list[pathlib.Path],
                 agent: pathlib.Path | guest_agent.Channel | None = None
                 ) -> None:
        self._monitor = monitor
        self.disks = disks
        self._agent = agent

    def actions(self, monitor: Channel, name: str) -> list[dict[str, Any]]:
        """What a transaction does that takes the snapshot of all disks.

        :raises NotFound: the guest does not have one of them
        """
        return [{'type': 'blockdev-snapshot-internal-sync',
                 'data': {'device': _node(monitor, disk)['node-name'],
                          'name': name}} for disk in self.disks]

    def create(self, name: str) -> Taken:
        with opened(self._monitor) as monitor:
            actions = self.actions(monitor, name)
            sync(self.disks)
            with guest_agent.still(self._agent) as stillness:
                if stillness.quiesced:
                    sync(self.disks)
                started = time.monotonic()
                monitor.command('transaction', actions=actions)
                pause_ms = (time.monotonic() - started) * 1000
        return Taken(pause_ms, stillness.frozen_ms, stillness.quiesced)

    def delete(self, name: str) -> None:
        with opened(self._monitor) as monitor:
            for disk in self.disks:
                node = _node(monitor, disk)
                kept = node['image'].get('snapshots', ())
                if any(each['name'] == name for each in kept):
                    monitor.command('blockdev-snapshot-delete-internal-sync',
                                    device=node['node-name'], name=name)
