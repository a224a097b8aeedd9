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
"""The file beside a disk that says that the disk is being rolled back.

While it exists the disk is neither its old state nor the new one.
"""

import json
import os
import pathlib
from typing import Any
from typing import Iterable

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.runtime import directories
from diffcache_openstack.versions.disks import disk_files

# Bytes of the longest journal.
_LONGEST = 64 << 10
_KEYS = {'version', 'kept', 'series'}


def path_of(disk: pathlib.Path) -> pathlib.Path:
    """Return the path of a disk's journal."""
    return disk.with_name(f'{disk.name}.rollback')


def read(disk: pathlib.Path) -> dict[str, Any] | None:
    """Return what an interrupted rollback was doing; None if none was.

    The keys are ``version``, ``kept`` and ``series``.

    :raises Conflict: another program's file is in its place
    """
    path = path_of(disk)
    try:
        fd = disk_files.access().open(path)
    except FileNotFoundError:
        return None
    with os.fdopen(fd, 'rb') as stream:
        data = stream.read(_LONGEST)
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    if not (isinstance(found, dict) and found.keys() == _KEYS and all(
            isinstance(value, (str, type(None))) for value in found.values())):
        raise exceptions.Conflict(
            f'{path} is no journal of a rollback: check which program wrote'
            f' it. If the disk is not in the middle of a restore, remove it.')
    return found


def refuse_unfinished(disk: pathlib.Path) -> None:
    """Refuse to save a disk in the middle of a rollback.

    :raises Conflict: it is neither its old state nor the new one
    """
    found = read(disk)
    if found is not None:
        raise exceptions.Conflict(
            f'Cannot save {disk}: rolling it back to version '
            f'{found["version"]} was interrupted, so that it has no state '
            f'that a guest had. Roll it back to that or another version '
            f'first, without saving the present state (--discard-current).')


def write(disk: pathlib.Path, series: str, version: str,
          kept: str | None) -> None:
    """Write a disk's journal durably, before the disk is changed.

    :param version: the id of the version that the disk will have
    :param kept: the version that has the state before, if one has
    """
    path = path_of(disk)
    # A name that a link cannot be waiting at.
    part = files.temporary_beside(path)
    access = disk_files.access()
    try:
        with files.space_errors(path):
            with os.fdopen(access.create(part), 'wb') as stream:
                stream.write(json.dumps({'version': version, 'kept': kept,
                                         'series': series}).encode())
                stream.flush()
                os.fsync(stream.fileno())
            access.rename(part, path.name)
    except BaseException:
        access.remove(part)
        raise


def remove(disks: Iterable[pathlib.Path]) -> None:
    """Remove the journals of disks that are complete."""
    access = disk_files.access()
    for disk in disks:
        path = path_of(disk)
        access.remove(path)
        # Of processes that were killed while they wrote it.
        for name in access.companions(disk.parent):
            if directories.is_temporary(name, path.name):
                access.remove(disk.with_name(name))
        access.sync_directory(disk)
