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
"""Removing views that interrupted saves left beside disks."""

import hashlib
import logging
import pathlib
from typing import Collection
from typing import Sequence

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.disks import disk_files
from diffcache_openstack.versions.disks import disk_views
from diffcache_openstack.versions.guests import snapshots

LOG = logging.getLogger(__name__)


def tag_of(token: str) -> str:
    """Return the part of views' names that identifies a save."""
    return hashlib.sha256(token.encode()).hexdigest()[:16]


def recover(disks: Sequence[pathlib.Path], guest: snapshots.Guest | None,
            tag: str | None) -> None:
    """Remove what killed processes left of views of a guest's disks.

    A guest that one of them left paused is resumed.

    :param guest: the running guest; None if it is stopped
    :param tag: of the save whose views stay
    """
    keep = set() if tag is None else {tag}
    leftovers = [
        disk.with_name(name) for disk in disks
        for name in disk_files.access().companions(disk.parent)
        if name.startswith(f'.{disk.name}.')
        and _is_leftover(disk.with_name(name), keep)]
    if guest is not None and any(path.name.endswith(disk_views.PART)
                                 for path in leftovers):
        _resume_paused(guest)
    for path in leftovers:
        _remove(path)


def _resume_paused(guest: snapshots.Guest) -> None:
    with snapshots.connect(guest.monitor) as monitor:
        if monitor.command('query-status').get('status') == 'paused':
            LOG.warning('Resuming a guest that a killed save left paused')
            monitor.command('cont')


def remove_abandoned(directory: pathlib.Path, tags: Collection[str]) -> None:
    """Remove reflinks that killed processes left in servers' directories.

    :param directory: the one with a directory for each server
    :param tags: of saves that will be attempted again and use their views
    """
    for server in directory.glob('*/'):
        for name in _companions(server):
            path = server / name
            if _is_leftover(path, set()) and not any(
                    f'.{tag}{disk_views.VIEW}' in name for tag in tags):
                _remove(path)


def _companions(directory: pathlib.Path) -> list[str]:
    try:
        return disk_files.access().companions(directory)
    except (exceptions.DiffCacheError, OSError) as error:
        # Of a server that is deleted now, or a link.
        LOG.debug('Not looking for copies of disks in %s: %s', directory,
                  error)
        return []


def _is_leftover(path: pathlib.Path, keep: Collection[str]) -> bool:
    name = path.name
    if name.endswith(disk_views.VIEW + disk_views.PART):
        return True
    return (name.endswith(disk_views.VIEW)
            and name.split('.')[-2] not in keep)


def _remove(path: pathlib.Path) -> None:
    LOG.info('Removing %s, which a killed process left', path)
    disk_files.access().remove(path)
