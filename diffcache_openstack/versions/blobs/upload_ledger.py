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
"""What a host has put into stores that cannot list their blobs.

A writer that is killed, or whose commit fails, leaves blobs that no catalogue
names. An object store behind glance_store cannot say which they are, so a name
is noted here before its blob is put, until it is deleted.
"""

import pathlib
import time
from typing import Callable

from diffcache_openstack.common import files
from diffcache_openstack.common import threads

# Of all ledgers of this process: the same file may be opened several times.
_locks = threads.KeyedLocks()


class UploadLedger:
    """The names of the blobs that this host has put into one store.

    :param path: of the file
    :param ignored: returns whether a name is not noted
    """

    def __init__(self, path: pathlib.Path,
                 ignored: Callable[[str], bool]) -> None:
        self._path = path
        self._ignored = ignored

    def note(self, name: str) -> None:
        """Note durably that a blob is about to be put.

        :raises NoSpace: it cannot be noted
        """
        if self._ignored(name):
            return
        with _locks.of(self._path):
            noted = self._read()
            noted[name] = time.time()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            files.write_json(self._path, noted)

    def forget(self, name: str) -> None:
        """Note that a blob is not in the store any more."""
        with _locks.of(self._path):
            noted = self._read()
            if noted.pop(name, None) is not None:
                files.write_json(self._path, noted, durable=False)

    def names(self) -> list[str]:
        """Return the names, in any order."""
        return list(self._read())

    def age(self, name: str) -> float:
        """Return the seconds since a blob was about to be put; 0 if unknown.

        A clock that was set back makes blobs new.
        """
        return max(0.0, time.time() - self._read().get(name, time.time()))

    def _read(self) -> dict[str, float]:
        found = files.read_json(self._path)
        return found if isinstance(found, dict) else {}
