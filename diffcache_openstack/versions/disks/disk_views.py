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
"""Views of raw disks: copies that keep the state of one moment.

A raw disk has no snapshots of its own. On a filesystem that shares extents
(XFS, Btrfs) a *reflink* of the file is a view of it; for a logical volume it
is an LVM snapshot.
"""

import abc
import contextlib
import os
import pathlib
import secrets
import subprocess
from typing import Callable
from typing import Iterator
from typing import Sequence

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import mounts
from diffcache_openstack.common import reflinks
from diffcache_openstack.versions.disks import disk_files

_PROBED = 4096
# What the name of a reflink ends with, and while its guest is paused.
VIEW, PART = '.view', '.part'
_TIMEOUT_S = 60
# What the origin may change while its snapshot is read; beyond that LVM drops
# the snapshot, and reading it fails.
_LVM_ROOM = '20%ORIGIN'


class DiskView(abc.ABC):
    """A copy of a disk that keeps the state of one moment."""

    @abc.abstractmethod
    def check(self) -> None:
        """Check, before the guest is paused, that the view can be created.

        :raises PermanentError: it cannot; the message has the remedy
        """

    @abc.abstractmethod
    def create(self) -> None:
        """Create the view; the guest may be paused.

        :raises PermanentError: that is not possible for this disk
        """

    @abc.abstractmethod
    def publish(self) -> pathlib.Path:
        """Return the path to read, after the guest was resumed."""

    @abc.abstractmethod
    def remove(self) -> None:
        """Remove the view, if it exists."""


class Reflink(DiskView):
    """A file beside the disk that shares its extents.

    Its name ends in ``.part`` until the guest was resumed: a reflink found
    under such a name is of a process that was killed with its guest paused.

    :param tag: the part of its name that identifies the save
    """

    def __init__(self, disk: pathlib.Path, tag: str) -> None:
        self._disk = disk
        self.path = disk.with_name(f'.{disk.name}.{tag}{VIEW}')
        self._part = self.path.with_name(self.path.name + PART)

    def check(self) -> None:
        with self._opened() as (source, view):
            reflinks.clone_start(source, view, self._probed())

    def _probed(self) -> int:
        """Return how many bytes to share for a check; 0 means all."""
        return _PROBED if self._disk.stat().st_size >= _PROBED else 0

    def create(self) -> None:
        with self._opened() as (source, view):
            reflinks.clone(source, view)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[tuple[int, int]]:
        """Open disk and view; explain why sharing their extents fails."""
        with contextlib.ExitStack() as stack:
            source = disk_files.access().open(self._disk)
            stack.callback(os.close, source)
            view = disk_files.access().create(self._part)
            stack.callback(os.close, view)
            try:
                yield source, view
            except OSError as exc:
                self.remove()
                raise exceptions.PermanentError(
                    f'Cannot save the raw disk {self._disk} while it is in '
                    f'use: {filesystem_of(self._disk)} cannot create the '
                    f'copy with shared extents that this needs '
                    f'({exc.strerror}). Stop the server to save it, or move '
                    f'its disks to XFS or Btrfs.') from exc

    def publish(self) -> pathlib.Path:
        disk_files.access().rename(self._part, self.path.name)
        return self.path

    def exists(self) -> bool:
        """Return whether the view was created and published."""
        return self.path.name in disk_files.access().companions(
            self.path.parent)

    def remove(self) -> None:
        disk_files.access().remove(self._part)
        disk_files.access().remove(self.path)


def filesystem_of(path: pathlib.Path) -> str:
    """Describe the filesystem that a path is on, for messages."""
    mount = mounts.mount_of(path)
    return f'{mount.kind or "the filesystem"} at {mount.place}'


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True,
                              timeout=_TIMEOUT_S)
    except (FileNotFoundError, subprocess.TimeoutExpired) as exc:
        raise exceptions.PermanentError(
            f'Could not run {command[0]}: {exc}; install lvm2.') from exc
    if done.returncode != 0:
        raise exceptions.PermanentError(
            f'{command[0]} failed: {done.stderr.strip()}; check the volume '
            f'group.')


class Lvm(DiskView):
    """A snapshot of a logical volume.

    :param run: runs a command, and raises if it fails
    """

    def __init__(self, volume: pathlib.Path,
                 run: Callable[[Sequence[str]], None] = _run) -> None:
        self._volume = volume
        self._run = run
        self._name = f'{volume.name}-view-{secrets.token_hex(4)}'
        self._exists = False

    def check(self) -> None:
        """Do nothing: ``lvcreate`` itself checks without side effects."""

    def create(self) -> None:
        self._run(['lvcreate', '--yes', '--snapshot', '--permission', 'r',
                   '--name', self._name, '--extents', _LVM_ROOM,
                   str(self._volume)])
        self._exists = True

    def publish(self) -> pathlib.Path:
        return self._volume.with_name(self._name)

    def remove(self) -> None:
        if self._exists:
            self._run(['lvremove', '--yes',
                       str(self._volume.with_name(self._name))])
            self._exists = False


def of_disk(disk: pathlib.Path, tag: str) -> DiskView:
    """Return the kind of view that a disk can have.

    :param tag: identifies the save, in the names of files
    """
    return Lvm(disk) if disk.is_block_device() else Reflink(disk, tag)
