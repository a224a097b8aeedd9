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
"""Volumes of a running server that are saved with its disks."""

import collections.abc

from diffcache_openstack.agent.versions import guests
from diffcache_openstack.agent.versions import volumes
from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.guests import volume_points
from diffcache_openstack.versions import version_store


def chosen(guest: guests.Guest, ids: collections.abc.Sequence[str]
           ) -> list[guests.Volume]:
    """Return the volumes of a server that are to be saved.

    :raises Conflict: the server does not have one of them any more, does not
        run, or QEMU keeps no moment of one; the message says which
    :raises NotFound: there is nothing to save
    """
    if not ids:
        if not guest.disks:
            raise exceptions.NotFound(
                f'Server {guest.server_id} has no disk that is a file of this'
                f' host: save it with its volumes.')
        return []
    if not guest.running:
        raise exceptions.Conflict(
            f'Cannot save the volumes of server {guest.server_id}: it does not'
            f' run. Start it, or leave them out (--exclude-volume).')
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


def to_save(attached: list[guests.Volume], scratch: volume_points.Scratch
            ) -> version_store.GuestVolumes | None:
    """Return what a version store saves of volumes; None for none."""
    if not attached:
        return None
    scratch.directory.mkdir(parents=True, exist_ok=True)
    return version_store.GuestVolumes(
        [version_store.GuestVolume(
            volume_points.Volume(each.id, each.alias or ''),
            volumes.series(each.id)) for each in attached], scratch)
