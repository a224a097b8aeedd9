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

A reflink has a name that ends in ``.part`` until the guest goes on again: one
that is found under that name is of a process that was killed meanwhile, and
the guest that stands still then does so for nobody.
"""

import abc
import contextlib
import dataclasses
import fcntl
import hashlib
import logging
import os
import pathlib
import secrets
import struct
import subprocess
import time
from typing import Callable
from typing import Collection
from typing import Iterator
from typing import Sequence

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions import guest_agent
from diffcache_openstack.versions import locks
from diffcache_openstack.versions import snapshots

LOG = logging.getLogger(__name__)

# The ioctls that make a file, or a part of it, share another's extents
# (linux/fs.h), and what the second one is told: file, offset, length, offset.
_FICLONE = 0x40049409
_FICLONERANGE = 0x4020940D
_RANGE = struct.Struct('=qQQQ')
_PROBED = 4096
_VIEW, _PART = '.view', '.part'
_TIMEOUT_S = 60
# What the origin may change while its snapshot is read; beyond that LVM drops
# the snapshot, and reading it fails.
_LVM_ROOM = '20%ORIGIN'


class View(abc.ABC):
    """A disk as it was at one moment."""

    @abc.abstractmethod
    def check(self) -> None:
        """Find out, before the guest stands still, whether it can be made.

        :raises PermanentError: it cannot; the message says what can be done
        """

    @abc.abstractmethod
    def make(self) -> None:
        """Make it.

        :raises PermanentError: that is not possible for this disk
        """

    @abc.abstractmethod
    def keep(self) -> pathlib.Path:
        """The guest goes on; returns what is to be read."""

    @abc.abstractmethod
    def drop(self) -> None:
        """Remove it; nothing happens if there is none."""


class Reflink(View):
    """A file beside the disk that shares its extents.

    :param tag: a part of its name, which tells it from others of the disk
    """

    def __init__(self, disk: pathlib.Path, tag: str) -> None:
        self._disk = disk
        self.path = disk.with_name(f'.{disk.name}.{tag}{_VIEW}')
        self._part = self.path.with_name(self.path.name + _PART)

    def check(self) -> None:
        with self._opened() as (source, view):
            fcntl.ioctl(view, _FICLONERANGE,
                        _RANGE.pack(source, 0, self._probed(), 0))

    def _probed(self) -> int:
        """Bytes that are shared for a try; 0 stands for all there are."""
        return _PROBED if self._disk.stat().st_size >= _PROBED else 0

    def make(self) -> None:
        with self._opened() as (source, view):
            fcntl.ioctl(view, _FICLONE, source)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[tuple[int, int]]:
        """The files; what is wrong with sharing their extents is told."""
        with contextlib.ExitStack() as stack:
            source = os.open(self._disk, os.O_RDONLY)
            stack.callback(os.close, source)
            # As private as disks of servers are.
            view = os.open(self._part, os.O_WRONLY | os.O_CREAT, 0o600)
            stack.callback(os.close, view)
            try:
                yield source, view
            except OSError as exc:
                self.drop()
                raise exceptions.PermanentError(
                    f'{self._disk} is raw, and a raw disk in use is saved '
                    f'through a copy that shares its extents, which '
                    f'{filesystem_of(self._disk)} refuses ({exc.strerror}): '
                    f'stop the server to save it, or move its disks to XFS '
                    f'or Btrfs.') from exc

    def keep(self) -> pathlib.Path:
        os.rename(self._part, self.path)
        return self.path

    def drop(self) -> None:
        self._part.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)


def filesystem_of(path: pathlib.Path) -> str:
    """What people are told of the filesystem that a path is on."""
    real = path.resolve()
    best, kind = pathlib.Path('/'), 'the filesystem'
    with contextlib.suppress(OSError):
        with open('/proc/self/mounts', encoding='utf-8') as mounts:
            for line in mounts:
                _device, where, found = line.split()[:3]
                mounted = pathlib.Path(
                    where.encode().decode('unicode_escape'))
                # Of two at one place, the later one lies over the other.
                if (real.is_relative_to(mounted)
                        and len(mounted.parts) >= len(best.parts)):
                    best, kind = mounted, found
    return f'{kind} at {best}'


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

    def check(self) -> None:
        """Nothing: LVM says so when it is asked for the snapshot."""

    def make(self) -> None:
        self._run(['lvcreate', '--yes', '--snapshot', '--permission', 'r',
                   '--name', self._name, '--extents', _LVM_ROOM,
                   str(self._volume)])
        self._made = True

    def keep(self) -> pathlib.Path:
        return self._volume.with_name(self._name)

    def drop(self) -> None:
        if self._made:
            self._run(['lvremove', '--yes',
                       str(self._volume.with_name(self._name))])
            self._made = False


@contextlib.contextmanager
def still(monitor: snapshots.Channel) -> Iterator[None]:
    """Let a guest stand still for the time of a ``with`` block.

    QEMU waits for what the guest is writing before it says that it does. A
    guest that stood still before is left so.
    """
    if not monitor.command('query-status')['running']:
        yield
        return
    monitor.command('stop')
    try:
        yield
    finally:
        monitor.command('cont')


@dataclasses.dataclass(frozen=True)
class Owner:
    """A running guest that has disks, as :class:`.engine.Guest` names it."""

    monitor: pathlib.Path | snapshots.Channel
    agent: pathlib.Path | guest_agent.Channel | None = None


@dataclasses.dataclass(frozen=True)
class Beside:
    """A snapshot of the guest's qcow2 disks, to be of the same moment."""

    snapshotter: snapshots.Running
    name: str


@dataclasses.dataclass(frozen=True)
class Views:
    """What is to be read in place of disks, and what that cost the guest."""

    paths: list[pathlib.Path]
    taken: snapshots.Taken


def tag_of(token: str) -> str:
    """The part of views' names that tells those of one save."""
    return hashlib.sha256(token.encode()).hexdigest()[:16]


class Together(contextlib.AbstractContextManager['Together']):
    """Views of a guest's raw disks, all of one moment: the first use's.

    A guest that has qcow2 disks, too, has one moment for all of them if
    :meth:`take` is the first use.

    :param owner: the guest that runs with them; None if none does
    :param token: of a save that may be tried again: if it was interrupted,
        the views that it left are taken, and if it is now by what may pass,
        they stay for the next try
    """

    def __init__(self, disks: Sequence[pathlib.Path], owner: Owner | None,
                 token: str | None = None) -> None:
        self._disks = list(disks)
        self._owner = owner
        self._tag = None if token is None else tag_of(token)
        self._views: list[View] = []
        self._seen: Views | None = None

    def of(self, disk: pathlib.Path) -> tuple[pathlib.Path, snapshots.Taken]:
        """What is to be read in place of a disk, and what that cost.

        That is the disk itself if no guest has it and there is no view.

        :raises Busy: a guest has it that nobody told of
        :raises PermanentError: a guest has it, and there is no way to make a
            view; it did not stand still
        """
        self._prepare()
        if self._seen is None:
            self._seen = self._make()
        return self._seen.paths[self._disks.index(disk)], self._seen.taken

    @property
    def running(self) -> bool:
        """Whether a running guest has the disks."""
        return self._owner is not None

    def left(self) -> bool:
        """Whether an interrupted try left all views, which are taken then.

        The errors are those of :meth:`of`.
        """
        self._prepare()
        return self._seen is not None

    def take(self, beside: Beside) -> snapshots.Taken:
        """Make the views anew in the pause in which a snapshot is taken.

        :returns: what that cost the running guest
        :raises NotFound: the guest does not have one of the snapshot's disks
        :raises PermanentError: there is no way to make a view, or the
            snapshot was refused; then nothing was made
        """
        self._prepare()
        self._seen = _made(self._views, self._disks, self._owner, beside)
        return self._seen.taken

    def _prepare(self) -> None:
        if self._views:
            return
        recover(self._disks, self._owner, self._tag)
        if self._owner is None:
            for each in self._disks:
                locks.check_idle(each)
        tag = self._tag or secrets.token_hex(8)
        self._views = [_view(each, tag) for each in self._disks]
        self._seen = _left(self._views)

    def _make(self) -> Views:
        try:
            return _made(self._views, self._disks, self._owner)
        except exceptions.PermanentError as exc:
            if self._owner is not None:
                raise
            LOG.debug('Stopped disks are read as they are: %s', exc)
            return Views(self._disks, snapshots.Taken(quiesced=True))

    def __exit__(self, _kind: object, error: BaseException | None,
                 _trace: object) -> None:
        if (self._tag is not None and error is not None
                and exceptions.goes_on(error)):
            return
        for view in self._views:
            try:
                view.drop()
            except (exceptions.DiffCacheError, OSError) as exc:
                LOG.error('A view stays and takes space: %s; remove it', exc)


def _view(disk: pathlib.Path, tag: str) -> View:
    return Lvm(disk) if disk.is_block_device() else Reflink(disk, tag)


def _left(made: list[View]) -> Views | None:
    """The views that an earlier try made, if all of them are there."""
    paths = [view.path for view in made
             if isinstance(view, Reflink) and view.path.exists()]
    if len(paths) < len(made):
        return None
    LOG.info('going on with %s', ', '.join(map(str, paths)))
    return Views(paths, snapshots.Taken())


def _made(made: list[View], disks: Sequence[pathlib.Path],
          owner: Owner | None, beside: Beside | None = None) -> Views:
    for view in made:
        view.drop()
        view.check()
    written = [*disks, *(beside.snapshotter.disks if beside else ())]
    # So that little is left to write while the guest stands still.
    snapshots.sync(written)
    taken = snapshots.Taken(quiesced=True)
    if owner is None:
        for view in made:
            view.make()
    else:
        taken = _meanwhile_still(made, written, owner, beside)
    return Views([view.keep() for view in made], taken)


def _meanwhile_still(made: list[View], disks: Sequence[pathlib.Path],
                     owner: Owner, beside: Beside | None
                     ) -> snapshots.Taken:
    """Make views of a running guest's disks while it stands still."""
    with guest_agent.still(owner.agent) as stillness:
        if stillness.quiesced:
            snapshots.sync(disks)
        # A monitor serves one client at a time: let go of it before reading.
        with snapshots.opened(owner.monitor) as monitor:
            actions = beside.snapshotter.actions(
                monitor, beside.name) if beside else []
            started = time.monotonic()
            with still(monitor):
                for view in made:
                    view.make()
                # The last: it is made for all disks or for none, and whatever
                # failed before leaves nothing in them.
                if actions:
                    monitor.command('transaction', actions=actions)
            pause_ms = (time.monotonic() - started) * 1000
    return snapshots.Taken(pause_ms, stillness.frozen_ms, stillness.quiesced)


def discard(disks: Sequence[pathlib.Path], token: str) -> None:
    """Remove the views that a save left for another try: there is none."""
    for disk in disks:
        Reflink(disk, tag_of(token)).drop()


def recover(disks: Sequence[pathlib.Path], owner: Owner | None,
            tag: str | None) -> None:
    """Put right what killed processes left of a guest's views.

    Their reflinks go, except those of a tag. A guest that one of them let
    stand still goes on.
    """
    keep = set() if tag is None else {tag}
    remains = [path for disk in disks for path in disk.parent.glob(
        f'.{disk.name}.*{_VIEW}*') if _is_remains(path, keep)]
    if owner is not None and any(path.name.endswith(_PART)
                                 for path in remains):
        with snapshots.opened(owner.monitor) as monitor:
            if monitor.command('query-status').get('status') == 'paused':
                LOG.warning('A guest stood still for a save that was killed:'
                            ' it goes on')
                monitor.command('cont')
    for path in remains:
        _remove(path)


def remove_abandoned(directory: pathlib.Path, tags: Collection[str]) -> None:
    """Remove reflinks that killed processes left in disks' directories.

    :param directory: where the directories of servers are
    :param tags: of saves that will be tried again, and put theirs right
    """
    for path in directory.glob(f'*/.*{_VIEW}*'):
        if _is_remains(path, set()) and not any(
                f'.{tag}{_VIEW}' in path.name for tag in tags):
            _remove(path)


def _is_remains(path: pathlib.Path, keep: Collection[str]) -> bool:
    name = path.name
    if name.endswith(_VIEW + _PART):
        return True
    return name.endswith(_VIEW) and name.split('.')[-2] not in keep


def _remove(path: pathlib.Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        LOG.info('removing %s, which a killed process left', path)
        os.unlink(path)
