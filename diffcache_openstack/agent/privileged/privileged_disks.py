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
"""Disks of servers, handled by privileged processes."""

import contextlib
import itertools
import os
import pathlib
import socket
import threading
import typing

from oslo_privsep import capabilities

from diffcache_openstack import _native
from diffcache_openstack.agent.privileged import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.disks import disk_files
from diffcache_openstack.versions.disks import programs

_FORMATS = ('raw', 'qcow2')
# Servers at a time; more are refused.
_MOST_SERVERS = 256

_Lent = typing.TypeVar('_Lent')
# Set before the processes are forked.
_files = disk_files.DiskFiles(())


def configure(roots: tuple[str, ...]) -> None:
    """State what the processes are for, before they are forked.

    :param roots: ``[versions] directories``
    """
    global _files
    _files = disk_files.DiskFiles(roots)


def _path(value: object) -> pathlib.Path:
    return pathlib.Path(contexts.text(value))


def _pass_on(context: contexts.Context, fd: int) -> tuple[None, int]:
    try:
        return None, context.send(fd)
    finally:
        os.close(fd)


# -- reading


@contexts.READER.entrypoint
def open_disk(path: str) -> tuple[None, int]:
    """Open a disk for reading; pass on its descriptor."""
    return _pass_on(contexts.READER, _files.open(_path(path)))


@contexts.READER.entrypoint
def companions(path: str) -> list[str]:
    """Return the names of the files of ours that a directory has."""
    return _files.companions(_path(path))


# -- writing


@contexts.FILES.entrypoint
def open_writable(path: str) -> tuple[None, int]:
    """Open a disk for reading and writing; pass on its descriptor."""
    return _pass_on(contexts.FILES, _files.open_writable(_path(path)))


@contexts.FILES.entrypoint
def create(path: str) -> tuple[None, int]:
    """Create a file beside a disk, or empty it; pass on its descriptor."""
    return _pass_on(contexts.FILES, _files.create(_path(path)))


@contexts.FILES.entrypoint
def rename(path: str, name: str) -> None:
    """Rename a file beside a disk, durably."""
    _files.rename(_path(path), contexts.text(name))


@contexts.FILES.entrypoint
def remove(path: str) -> None:
    """Remove a file beside a disk, if it exists."""
    _files.remove(_path(path))


@contexts.FILES.entrypoint
def sync_directory(path: str) -> None:
    """Make the names of the files beside a disk durable."""
    _files.sync_directory(_path(path))


@contexts.FILES.entrypoint
def create_room(disk: str) -> tuple[None, int]:
    """Create a private directory beside a disk; pass on its descriptor."""
    return _pass_on(contexts.FILES, _files.create_room(_path(disk)))


@contexts.FILES.entrypoint
def adopt(disk: str) -> None:
    """Give a new disk the owner, group and mode of the old one."""
    _files.adopt(_path(disk))


@contexts.FILES.entrypoint
def replace(disk: str) -> None:
    """Put the new disk that was adopted in the place of the old one."""
    _files.replace(_path(disk))


@contexts.FILES.entrypoint
def remove_room(disk: str) -> None:
    """Remove a new disk, or what a killed process left of one."""
    _files.remove_room(_path(disk))


# -- QEMU's programs


class _Numbered(typing.Generic[_Lent]):
    """What the agent has lent, or started, by number."""

    def __init__(self, end: typing.Callable[[_Lent], object]) -> None:
        """:param end: ends what there is no room for"""
        self._end = end
        self._known: dict[int, _Lent] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def add(self, lent: _Lent) -> int:
        """Keep something; return its number."""
        with self._lock:
            if len(self._known) < _MOST_SERVERS:
                number = next(self._numbers)
                self._known[number] = lent
                return number
        self._end(lent)
        raise exceptions.ServiceUnavailable(
            'This agent writes to as many disks as it may.')

    def pop(self, number: object) -> _Lent:
        """Return something, and forget it."""
        with self._lock:
            if isinstance(number, int) and number in self._known:
                return self._known.pop(number)
        raise exceptions.NotFound('There is no such lock or server.')


# Descriptors of the locks of disks.
_locks = _Numbered[int](os.close)
_servers = _Numbered[programs.Server](lambda server: server.end())


@contextlib.contextmanager
def _lock_used(number: object) -> typing.Iterator[int]:
    """Yield the descriptor of a lock, which is closed after the block."""
    fd = _locks.pop(number)
    try:
        yield fd
    finally:
        os.close(fd)


def _equip_programs() -> None:
    """Let the programs that this thread starts open disks of other users."""
    _native.pass_on_capability(capabilities.CAP_DAC_OVERRIDE)


@contexts.PROGRAMS.entrypoint
def borrow_lock() -> int:
    """Keep the lock of a disk for one program; return its number.

    Programs inherit it and do nothing with it, whatever it is.
    """
    return _locks.add(contexts.PROGRAMS.received())


@contexts.PROGRAMS.entrypoint
def qemu_img(disk: str, lock: int, action: str, name: str) -> tuple[int, str]:
    """Have qemu-img change a disk; return its exit code and message."""
    _equip_programs()
    with _lock_used(lock) as fd:
        ended = _files.qemu_img(_path(disk), fd, contexts.text(action),
                                contexts.text(name))
    return ended.code, ended.message


@contexts.PROGRAMS.entrypoint
def serve(disk: str, lock: int, disk_format: str, base: str | None
          ) -> tuple[int, int]:
    """Start qemu-nbd on a disk; pass on its client's socket.

    :returns: its number, and that of the socket
    """
    if disk_format not in _FORMATS:
        raise exceptions.InvalidInput('A disk is raw or qcow2.')
    _equip_programs()
    with _lock_used(lock) as fd:
        server = _files.serve(_path(disk), fd, disk_format,
                              None if base is None else _path(base))
    with server.connected:
        number = _servers.add(server)
        return number, contexts.PROGRAMS.send(server.connected.fileno())


@contexts.PROGRAMS.entrypoint
def end_server(number: int) -> tuple[int, str]:
    """Kill a server; return its exit code and message."""
    ended = _servers.pop(number).end()
    return ended.code, ended.message


@contexts.PROGRAMS.entrypoint
def wait_for_server(number: int) -> None:
    """Wait until a server ends, as it does after its last client."""
    _servers.pop(number).wait()


class PrivilegedServer:
    """A server of the privileged process; see :class:`.programs.Server`."""

    def __init__(self, number: int, fd: int) -> None:
        self._number = number
        self.connected = socket.socket(fileno=fd)

    def end(self) -> programs.Result:
        """Kill the server; return how it ended."""
        return programs.Result(*end_server(self._number))

    def wait(self) -> None:
        """Wait until the server ends, as it does after its last client."""
        wait_for_server(self._number)


class PrivilegedDiskFiles(disk_files.DiskFiles):
    """Disks and the files beside them, by the privileged processes."""

    def open(self, path: pathlib.Path) -> int:
        """Open a disk, a file beside one, or a base image, for reading."""
        return contexts.READER.receiving(open_disk, str(path))[1]

    def open_writable(self, path: pathlib.Path) -> int:
        """Open a disk for reading and writing."""
        return contexts.FILES.receiving(open_writable, str(path))[1]

    def create(self, path: pathlib.Path) -> int:
        """Create a file beside a disk, or empty it; open it for writing."""
        return contexts.FILES.receiving(create, str(path))[1]

    def rename(self, path: pathlib.Path, name: str) -> None:
        """Rename a file beside a disk, durably."""
        rename(str(path), name)

    def remove(self, path: pathlib.Path) -> None:
        """Remove a file beside a disk, if it exists."""
        remove(str(path))

    def companions(self, path: pathlib.Path) -> list[str]:
        """Return the names of the files of ours that a directory has."""
        return list(companions(str(path)))

    def sync_directory(self, path: pathlib.Path) -> None:
        """Make the names of the files beside a disk durable."""
        sync_directory(str(path))

    def create_room(self, disk: pathlib.Path) -> int:
        """Create a private directory beside a disk, in which to build it."""
        return contexts.FILES.receiving(create_room, str(disk))[1]

    def adopt(self, disk: pathlib.Path) -> None:
        """Give a new disk the owner, group and mode of the old one."""
        adopt(str(disk))

    def replace(self, disk: pathlib.Path) -> None:
        """Put the new disk that was adopted in the place of the old one."""
        replace(str(disk))

    def remove_room(self, disk: pathlib.Path) -> None:
        """Remove a new disk, or what a killed process left of one."""
        remove_room(str(disk))

    def qemu_img(self, disk: pathlib.Path, lock: int, action: str,
                 name: str = '') -> programs.Result:
        """Have qemu-img change a stopped guest's qcow2 disk."""
        number = contexts.PROGRAMS.sending(lock, borrow_lock)
        return programs.Result(*qemu_img(str(disk), number, action, name))

    def serve(self, disk: pathlib.Path, lock: int, disk_format: str,
              base: pathlib.Path | None) -> programs.Server:
        """Start qemu-nbd on a disk, for writing."""
        number = contexts.PROGRAMS.sending(lock, borrow_lock)
        return PrivilegedServer(*contexts.PROGRAMS.receiving(
            serve, str(disk), number, disk_format, None if base is None
            else str(base)))
