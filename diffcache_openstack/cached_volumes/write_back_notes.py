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
"""Notes of the volumes whose newest blocks may be in this host's SSD cache.

nova-compute looks for them where the agent or the cache does not answer: such
a volume must not be used without the cache, nor by another host.
"""

import os
import pathlib
import urllib.parse

from diffcache_openstack.common import files

# Of the directory, in the agent's directory for its state.
NAME = 'write_back'
# Other users may look for a volume, and list none.
_MODE = 0o711


class Notes:
    """A file for each volume in write-back, in a directory that lasts.

    :param directory: survives a restart of the host
    """

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory

    def path(self, volume_id: str) -> pathlib.Path:
        """Return the file of a volume."""
        return self._directory / urllib.parse.quote(volume_id, safe='')

    def begin(self, volume_id: str) -> None:
        """Note that the cache may have newer blocks; durable on return.

        :raises OSError: as the kernel reports it
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        os.chmod(self._directory, _MODE)
        self.path(volume_id).touch()
        files.sync_directory(self._directory)
        files.sync_directory(self._directory.parent)

    def end(self, volume_id: str) -> None:
        """Note that the volume has all of its blocks; durable on return.

        A note that came back after a power cut would say that they were lost.

        :raises OSError: as the kernel reports it
        """
        try:
            self.path(volume_id).unlink()
        except FileNotFoundError:
            return
        files.sync_directory(self._directory)

    def has(self, volume_id: str) -> bool:
        """Return whether the cache may have newer blocks of a volume.

        :raises OSError: it cannot be found out
        """
        try:
            self.path(volume_id).lstat()
        except FileNotFoundError:
            return False
        return True
