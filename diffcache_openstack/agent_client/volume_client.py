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
"""Client of the agent's socket for cinder-backup."""

import socket
import typing

from diffcache_openstack.agent_client import local_client


class VolumeClient(local_client.LocalClient):
    """The agent behind ``[agent] cinder_socket``; see LocalClient."""

    def host(self) -> str:
        """Return the name of the agent's host."""
        return self._ask('GET', '/v1/host')['host']

    def perform(self, task_id: str, volume: int,
                stall_timeout: float = 60.0,
                progress: local_client.Progress | None = None
                ) -> dict[str, typing.Any]:
        """Have the agent perform a task on a volume.

        :param task_id: of the task that the conductor has begun
        :param volume: descriptor of the volume, open for reading, and for
            writing if a backup is written to it
        :param stall_timeout: seconds without a sign of life
        :param progress: called with bytes done and bytes in all; an error
            that it raises ends the task
        :returns: ``bytes_read``, ``seconds``, and ``bytes_stored`` of a
            backup or ``bytes_written`` of a restore
        :raises Forbidden: the conductor has begun no such task there
        :raises Cancelled: it was cancelled, or the agent was restarted
        """
        path = f'/v1/volume-tasks/{task_id}'
        with self._connected('POST', path, {}, stall_timeout) as (answer,
                                                                  used):
            what = f'performed task {task_id}'
            self._last(answer, 'send', what, None)
            with self._unavailable():
                socket.send_fds(used, [b'\0'], [volume])
            return self._last(answer, 'performed', what, progress)
