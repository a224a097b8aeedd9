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
"""Views of raw disks that stay what they are while a guest goes on writing.

A raw disk has no snapshots of its own. On a filesystem that shares extents
(XFS, Btrfs) a *reflink* of the file is one; a logical volume has those of LVM.
The guest stands still while views are made, and goes on while they are read.
"""

import abc
import contextlib
import fcntl
import logging
import os
import pathlib
import secrets
import subprocess
import time
from typing import Callable
from typing import Iterator
from typing import Sequence

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions import snapshots

LOG = logging.getLogger(__name__)

# The ioctl that makes a file share another's extents (linux/fs.h).
_FICLONE = 0x40049409
_TIMEOUT_S = 60
# What the origin may change while its snapshot is read; beyond that LVM drops
# the snapshot, and reading it fails.
_LVM_ROOM = '20%ORIGIN'


class View(abc.ABC):
    """A disk as it was at one moment."""

    @abc.abstractmethod
    def make(self) -> pathlib.Path:
        """Make it; returns what is to be read.

        :raises PermanentError: that is not possible for this disk
        """

    @abc.abstractmethod
    def drop(self) -> None:
        """Remove it; nothing happens if there is none."""


class Reflink(View):
    """A file beside the disk that shares its extents."""

    def __init__(self, disk: pathlib.Path) -> None:
        self._disk = disk
        self._path = disk.with_name(
            f'.{disk.name}.{secrets.token_hex(4)}.view')

    def make(self) -> pathlib.Path:
        with open(self._disk, 'rb') as source, open(self._path, 'xb') as view:
            try:
                fcntl.ioctl(view.fileno(), _FICLONE, source.fileno())
            except OSError as exc:
                self.drop()
                raise exceptions.PermanentError(
                    f'{self._disk} lies on a filesystem that does not share '
                    f'extents ({exc.strerror}): stop the guest, or move its '
                    f'disks to XFS or Btrfs.') from exc
        return self._path

    def drop(self) -> None:
        self._path.unlink(missing_ok=True)


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True,
                              timeout=_TIMEOUT_S)
    except (FileNotFoundError, subprocess.TimeoutExpired) as exc:
        raise exceptions.PermanentError(
            f'{command[0]} did not run: {exc}; install lvm2.') from exc
    if done.returncode != 0:
        raise exceptions.PermanentError(
            f'{command[0]}: {done.stderr.strip()}; look at the volume group.')


class Lvm(View):
    """A snapshot of a logical volume.

    :param run: runs a command, and raises if it fails
    """

    def __init__(self, volume: pathlib.Path,
                 run: Callable[[Sequence[str]], None] = _run) -> None:
        self._volume = volume
        self._run = run
        self._name = f'{volume.name}-view-{secrets.token_hex(4)}'
        self._made = False

    def make(self) -> pathlib.Path:
        self._run(['lvcreate', '--yes', '--snapshot', '--permission', 'r',
                   '--name', self._name, '--extents', _LVM_ROOM,
                   str(self._volume)])
        self._made = True
        return self._volume.with_name(self._name)

    def drop(self) -> None:
        if self._made:
            self._run(['lvremove', '--yes',
                       str(self._volume.with_name(self._name))])
            self._made = False


def view_of(disk: pathlib.Path) -> View:
    """A view of a volume, by LVM, or of a file, by sharing extents."""
    return Lvm(disk) if disk.is_block_device() else Reflink(disk)


@contextlib.contextmanager
def still(monitor: snapshots.Channel) -> Iterator[None]:
    """Let a guest stand still for the time of a ``with`` block.

    A guest that stood still before is left so.
    """
    if not monitor.command('query-status')['running']:
        yield
        return
    monitor.command('stop')
    try:
        yield
    finally:
        monitor.command('cont')


@contextlib.contextmanager
def views_of(disks: Sequence[pathlib.Path],
             where: pathlib.Path | snapshots.Channel
             ) -> Iterator[tuple[list[pathlib.Path], float]]:
    """Views of raw disks of a running guest, all of one moment.

    Yields what is to be read and the milliseconds that the guest stood still.
    """
    made = [view_of(disk) for disk in disks]
    with contextlib.ExitStack() as stack:
        started = time.monotonic()
        # A monitor serves one client at a time: let go of it before reading.
        with snapshots.opened(where) as monitor, still(monitor):
            paths = []
            for view in made:
                stack.callback(_drop, view)
                paths.append(view.make())
        pause_ms = (time.monotonic() - started) * 1000
        yield paths, pause_ms


def _drop(view: View) -> None:
    try:
        view.drop()
    except (exceptions.DiffCacheError, OSError) as exc:
        LOG.error('A view stays and takes space: %s; remove it', exc)


def remove_remains(disk: pathlib.Path) -> None:
    """Remove the reflinks that killed processes left beside a disk."""
    for path in disk.parent.glob(f'.{disk.name}.*.view'):
        with contextlib.suppress(FileNotFoundError):
            LOG.info('removing %s, which a killed process left', path)
            os.unlink(path)
