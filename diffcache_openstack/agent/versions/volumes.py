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
"""Volumes that clients of this host's agent have opened for it.

cinder-backup opens a volume, and passes its descriptor on with the id of a
task that the conductor has begun: the agent needs no rights to volumes.
"""

import contextlib
import os
import stat
import threading
import typing

from diffcache_openstack.common import exceptions


class OpenVolumes:
    """Descriptors of volumes, by the ids of the tasks that they are for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._descriptors: dict[str, int] = {}

    @contextlib.contextmanager
    def lent(self, task_id: str, descriptor: int) -> typing.Iterator[None]:
        """Lend a volume to a task for the time of a ``with`` block.

        :raises InvalidInput: the descriptor is no volume's
        """
        mode = os.fstat(descriptor).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISBLK(mode)):
            raise exceptions.InvalidInput(
                'A volume is a block device or a regular file.')
        with self._lock:
            lent = self._descriptors.setdefault(task_id, descriptor)
        try:
            yield
        finally:
            if lent == descriptor:
                with self._lock:
                    del self._descriptors[task_id]

    def of(self, task_id: str) -> int:
        """Return the descriptor of a task's volume.

        :raises Conflict: no client has lent it
        """
        with self._lock:
            found = self._descriptors.get(task_id)
        if found is None:
            raise exceptions.Conflict(
                f'Task {task_id} works on a volume that its client no longer'
                f' has open here: repeat the operation in Cinder.')
        return found


def series(volume_id: str) -> str:
    """Return the name of the series of a volume's backups."""
    return f'volume-{volume_id}'
