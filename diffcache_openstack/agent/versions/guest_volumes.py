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
"""Volumes of a server that are saved and restored with its disks."""

import collections.abc
import contextlib
import dataclasses
import pathlib
import typing

from diffcache_openstack.agent.versions import guests
from diffcache_openstack.agent.versions import volumes
from diffcache_openstack.common import exceptions
from diffcache_openstack import objects
from diffcache_openstack.versions.disks import rollback_journal
from diffcache_openstack.versions.guests import snapshots
from diffcache_openstack.versions.guests import volume_points
from diffcache_openstack.versions.restore import volume_rollback
from diffcache_openstack.versions import version_store


def chosen(guest: guests.Guest, ids: collections.abc.Sequence[str]
           ) -> list[guests.Volume]:
    """Return the volumes of a server that are to be saved.

    :raises Conflict: the server does not have one of them any more, or QEMU
        keeps no moment of one; the message says which
    :raises NotFound: there is nothing to save
    """
    if not ids:
        if not guest.disks:
            raise exceptions.NotFound(
                f'Server {guest.server_id} has no disk that is a file of this'
                f' host: save it with its volumes.')
        return []
    attached = {each.id: each for each in guest.volumes}
    for volume_id in ids:
        if volume_id not in attached:
            raise exceptions.Conflict(
                f'Server {guest.server_id} does not have volume {volume_id}'
                f' any more: save it again.')
        if attached[volume_id].refused:
            raise exceptions.Conflict(
                f'Cannot save volume {volume_id} with server'
                f' {guest.server_id}: {attached[volume_id].refused}. Leave it'
                f' out (--exclude-volume {volume_id}).')
    return [attached[volume_id] for volume_id in ids]


@dataclasses.dataclass(frozen=True)
class Open:
    """Volumes that QEMU has open.

    :param volumes: in the order in which they were chosen
    :param guest: what has those of a stopped server open, without running;
        None if the server runs
    """

    volumes: list[guests.Volume]
    guest: guests.Guest | None = None

    def engine_guest(self) -> snapshots.Guest | None:
        """Return what has them open if the server is stopped."""
        if self.guest is None or self.guest.monitor is None:
            return None
        return snapshots.Guest(self.guest.monitor)


@contextlib.contextmanager
def opened(found: guests.Guests, guest: guests.Guest,
           ids: collections.abc.Sequence[str]) -> typing.Iterator[Open]:
    """Have QEMU open volumes of a server for a ``with`` block.

    Errors are those of :func:`chosen` and :meth:`.Guests.open_volumes`.
    """
    attached = chosen(guest, ids)
    if guest.running or not attached:
        yield Open(attached)
        return
    with found.open_volumes(guest.server_id, ids) as instead:
        # Devices are named as the server has them.
        yield Open([dataclasses.replace(each, alias=other.alias) for
                    each, other in zip(attached, instead.volumes)], instead)


def to_save(found: Open, scratch: volume_points.Scratch,
            check: collections.abc.Callable[[], None]
            ) -> version_store.GuestVolumes | None:
    """Return what a version store saves of volumes; None for none.

    :param check: raises an error if a stopped server was started
    """
    if not found.volumes:
        return None
    return version_store.GuestVolumes(
        [version_store.GuestVolume(_named(each), volumes.series(each.id))
         for each in found.volumes], scratch, found.engine_guest(),
        None if found.guest is None else check)


def to_roll_back(found: Open, disks: collections.abc.Sequence[
        objects.VersionDisk]) -> list[volume_rollback.Target]:
    """Return which version each volume is rolled back to.

    :param disks: of the version
    """
    wanted = {disk.volume_id: disk.version for disk in disks}
    return [volume_rollback.Target(_named(each), wanted[each.id])
            for each in found.volumes]


def _named(volume: guests.Volume) -> volume_points.Volume:
    return volume_points.Volume(volume.id, volume.alias or '')


class Journals:
    """Files that say that volumes of a server are being rolled back.

    They are in the server's directory, where Nova's driver looks for them
    before it starts the server.

    :param ids: of the volumes
    """

    def __init__(self, directory: pathlib.Path,
                 ids: collections.abc.Iterable[str]) -> None:
        self._paths = {each: directory / each for each in ids}

    def refuse_unfinished(self) -> None:
        """Refuse to save a volume in the middle of a rollback.

        :raises Conflict: it is neither its old state nor the new one
        """
        for path in self._paths.values():
            rollback_journal.refuse_unfinished(path)

    def any(self) -> bool:
        """Return whether a volume is in the middle of a rollback."""
        return any(rollback_journal.read(path)
                   for path in self._paths.values())

    def write(self, targets: collections.abc.Sequence[volume_rollback.Target]
              ) -> None:
        """Write the journals, before anything is changed."""
        for each in targets:
            rollback_journal.write(
                self._paths[each.volume.id], volumes.series(each.volume.id),
                each.version, None)

    def remove(self) -> None:
        """Remove the journals of volumes that are complete."""
        rollback_journal.remove(self._paths.values())


def journals(found: guests.Guests, guest: guests.Guest, attached: Open
             ) -> Journals:
    """Return the journals of a server's volumes."""
    return Journals(found.directory(guest),
                    [each.id for each in attached.volumes])


def check_stopped(found: guests.Guests, guest: guests.Guest) -> None:
    """Check that nothing has started a server meanwhile.

    :raises Conflict: something has
    """
    if found.find(guest.server_id).running:
        raise exceptions.Conflict(
            f'Server {guest.server_id} was started meanwhile. Stop it, and'
            f' try again.')
