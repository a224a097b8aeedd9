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
import pathlib
from typing import Any
from typing import Iterable

from diffcache_openstack.common import files
from diffcache_openstack.versions.store import catalogue


def path_of(disk: pathlib.Path) -> pathlib.Path:
    """Return the path of a disk's journal."""
    return disk.with_name(f'{disk.name}.rollback')


def read(disk: pathlib.Path) -> dict[str, Any] | None:
    """Return what an interrupted rollback was doing; None if none was.

    The keys are ``version``, ``kept`` and ``series``.
    """
    try:
        return json.loads(path_of(disk).read_text())
    except FileNotFoundError:
        return None


def write(disk: pathlib.Path, series: str, version: catalogue.Version,
          kept: str | None) -> None:
    """Write a disk's journal durably, before the disk is changed.

    :param kept: the version that has the state before, if one has
    """
    path = path_of(disk)
    files.write_json(path, {'version': version.id, 'kept': kept,
                            'series': series})


def remove(disks: Iterable[pathlib.Path]) -> None:
    """Remove the journals of disks that are complete."""
    paths = [path_of(disk) for disk in disks]
    for path in paths:
        path.unlink()
        # Of processes that were killed while they wrote it.
        for temporary in files.temporaries_of(path):
            temporary.unlink(missing_ok=True)
    for directory in {path.parent for path in paths}:
        files.sync_directory(directory)
