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
"""Views of all raw disks and volumes of a guest, of one moment.

The guest is paused while views are created, and resumed before they are read.
"""

import contextlib
import dataclasses
import logging
import pathlib
import secrets
import time
from typing import Iterator
from typing import Sequence

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.disks import disk_views
from diffcache_openstack.versions.disks import locks
from diffcache_openstack.versions.guests import guest_agent
from diffcache_openstack.versions.guests import snapshots
from diffcache_openstack.versions.guests import view_cleanup
from diffcache_openstack.versions.guests import volume_points

LOG = logging.getLogger(__name__)


@contextlib.contextmanager
def paused(monitor: snapshots.Channel) -> Iterator[None]:
    """Pause a guest for the time of a ``with`` block.

    QEMU completes writes in flight before it confirms. A guest that was
    paused before stays so.
    """
    if not monitor.command('query-status')['running']:
        yield
        return
    try:
        # It may stop later, though no answer comes.
        monitor.command('stop')
        yield
    finally:
        monitor.command('cont')


@dataclasses.dataclass(frozen=True)
class PairedSnapshot:
    """A snapshot of the guest's qcow2 disks, to take in the same pause."""

    snapshotter: snapshots.RunningSnapshotter
    name: str


@dataclasses.dataclass(frozen=True)
class _Moment:
    """What is kept in one pause of a guest.

    :param views: of its raw disks
    :param written: its disks that are files
    :param paired: the snapshot of its qcow2 disks
    :param points: of its volumes
    """

    views: Sequence[disk_views.DiskView]
    written: Sequence[pathlib.Path]
    paired: PairedSnapshot | None = None
    points: volume_points.VolumePoints | None = None


@dataclasses.dataclass(frozen=True)
class _Created:
    """The files to read, in the order of the disks, and the pause."""

    paths: list[pathlib.Path]
    pause: snapshots.GuestPause


class GuestViews(contextlib.AbstractContextManager['GuestViews']):
    """Views of a guest's raw disks, all created at the first use.

    A guest that has qcow2 disks, too, is saved in one state if
    :meth:`create_with` is the first use.

    :param guest: the running guest that has the disks; None if it is stopped
    :param token: of a save that may be attempted again: views that an
        interrupted attempt left are used, and stay if this one is interrupted;
        not those of a guest with volumes, whose moment ends with the attempt
    :param points: of volumes that are saved with them
    :param opened: what has the volumes of a stopped guest open
    """

    def __init__(self, disks: Sequence[pathlib.Path],
                 guest: snapshots.Guest | None,
                 token: str | None = None,
                 points: volume_points.VolumePoints | None = None,
                 opened: snapshots.Guest | None = None) -> None:
        self._disks = list(disks)
        self._guest = guest
        self._points = points
        self._opened = guest or opened
        self._tag = None if token is None else view_cleanup.tag_of(token)
        self._views: list[disk_views.DiskView] = []
        self._created: _Created | None = None

    def open(self, disk: pathlib.Path
             ) -> tuple[pathlib.Path, snapshots.GuestPause]:
        """Return the file to read in place of a disk, and the guest's pause.

        Without views a stopped guest's disk itself is returned.

        :raises Busy: a guest that was not named has the disk
        :raises PermanentError: the guest runs, and no view can be created; it
            was not paused
        """
        self._prepare()
        if self._created is None:
            self._created = self._create()
        return (self._created.paths[self._disks.index(disk)],
                self._created.pause)

    @property
    def running(self) -> bool:
        """Whether a running guest has the disks."""
        return self._guest is not None

    def has_all(self) -> bool:
        """Return whether all views exist, from now or an earlier attempt.

        The errors are those of :meth:`open`.
        """
        self._prepare()
        return self._created is not None

    @property
    def has_volumes(self) -> bool:
        """Whether volumes are saved with the disks."""
        return self._points is not None

    @property
    def pause(self) -> snapshots.GuestPause:
        """What the views cost the running guest."""
        assert self._created is not None
        return self._created.pause

    def create_with(self, paired: PairedSnapshot | None
                    ) -> snapshots.GuestPause:
        """Create the views anew in the pause in which a snapshot is taken.

        :returns: what that cost the running guest
        :raises NotFound: the guest does not have one of the snapshot's disks
        :raises PermanentError: a view cannot be created, or the snapshot was
            refused; then neither exists
        """
        self._prepare()
        if self._guest is None:
            self._keep_volumes()
            self._created = self._create()
        else:
            self._created = self._create_all(paired)
        return self._created.pause

    def _keep_volumes(self) -> None:
        """Keep the state of a stopped guest's volumes."""
        if self._points is None:
            return
        assert self._opened is not None
        with snapshots.connect(self._opened.monitor) as monitor:
            self._points.prepare(monitor)
            self._points.keep(monitor)
            self._points.publish(monitor)

    def _prepare(self) -> None:
        if self._views:
            return
        view_cleanup.recover(self._disks, self._guest, self._tag)
        if self._guest is None:
            for each in self._disks:
                locks.check_idle(each)
        tag = self._tag or secrets.token_hex(8)
        self._views = [disk_views.of_disk(each, tag) for each in self._disks]
        if self._points is None:
            self._created = _find_existing(self._views)

    def _create(self) -> _Created:
        try:
            return self._create_all()
        except exceptions.PermanentError as exc:
            if self._guest is not None:
                raise
            LOG.debug('Reading stopped disks without views: %s', exc)
            return _Created(self._disks, snapshots.GuestPause(quiesced=True))

    def _create_all(self, paired: PairedSnapshot | None = None) -> _Created:
        for view in self._views:
            view.remove()
            view.check()
        written = [*self._disks,
                   *(paired.snapshotter.disks if paired else ())]
        # So that little is left to write while the guest is paused.
        snapshots.flush_disks(written)
        pause = snapshots.GuestPause(quiesced=True)
        if self._guest is None:
            for view in self._views:
                view.create()
        else:
            pause = _create_paused(
                _Moment(self._views, written, paired, self._points),
                self._guest)
        return _Created([view.publish() for view in self._views], pause)

    def __exit__(self, _kind: object, error: BaseException | None,
                 _trace: object) -> None:
        self._remove_points()
        if (self._points is None and self._tag is not None
                and error is not None and exceptions.is_resumable(error)):
            return
        for view in self._views:
            try:
                view.remove()
            except (exceptions.DiffCacheError, OSError) as exc:
                LOG.error('Could not remove a view, which takes up space: '
                          '%s; remove it by hand', exc)

    def _remove_points(self) -> None:
        if self._points is None or self._opened is None:
            return
        try:
            with snapshots.connect(self._opened.monitor) as monitor:
                self._points.remove(monitor)
        except exceptions.DiffCacheError as exc:
            # They are bounded, and end with QEMU.
            LOG.error('Could not end the moment of volumes, will retry with'
                      ' the next save of the server: %s', exc)


def _find_existing(views: list[disk_views.DiskView]) -> _Created | None:
    """Return the views that an earlier attempt created, if all exist."""
    paths = [view.path for view in views
             if isinstance(view, disk_views.Reflink) and view.exists()]
    if len(paths) < len(views):
        return None
    LOG.info('Resuming an interrupted save with %s',
             ', '.join(map(str, paths)))
    return _Created(paths, snapshots.GuestPause())


def _create_paused(moment: _Moment, guest: snapshots.Guest
                   ) -> snapshots.GuestPause:
    """Keep all disks of a running guest while it is paused."""
    points = moment.points
    if points is not None:
        with snapshots.connect(guest.monitor) as monitor:
            points.prepare(monitor)
    with guest_agent.frozen(guest.agent) as freeze:
        if freeze.quiesced:
            snapshots.flush_disks(moment.written)
        # A monitor serves one client at a time: disconnect before reading.
        with snapshots.connect(guest.monitor) as monitor:
            paired = moment.paired
            actions = paired.snapshotter.actions(
                monitor, paired.name) if paired else []
            started = time.monotonic()
            with paused(monitor):
                for view in moment.views:
                    view.create()
                if points is not None:
                    points.keep(monitor)
                # Last, since it is taken of all disks or of none: a failure
                # before it leaves nothing in them.
                if actions:
                    monitor.command('transaction', actions=actions)
            pause_ms = (time.monotonic() - started) * 1000
    if points is not None:
        with snapshots.connect(guest.monitor) as monitor:
            points.publish(monitor)
    return snapshots.GuestPause(pause_ms, freeze.frozen_ms, freeze.quiesced)
