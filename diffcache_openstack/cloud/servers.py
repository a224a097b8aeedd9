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
"""Servers of Nova: their projects, hosts and states."""

import collections.abc
import dataclasses

from oslo_config import cfg

from diffcache_openstack.cloud import nova
from diffcache_openstack.common import exceptions

STOPPED = 'SHUTOFF'
# Servers in these states have volumes that QEMU has open, or can open.
_WITH_VOLUMES = ('ACTIVE', 'PAUSED', STOPPED)
_VOLUMES = 'os-extended-volumes:volumes_attached'


@dataclasses.dataclass(frozen=True)
class Server:
    """A server of Nova.

    :param host: None if the caller may not know it, or it has none
    :param image_id: None if it was booted from a volume
    :param volumes: IDs of those attached to it
    """

    id: str
    project_id: str
    status: str
    host: str | None = None
    task: str | None = None
    image_id: str | None = None
    user_id: str | None = None
    locked: bool = False
    volumes: tuple[str, ...] = ()

    @property
    def stopped(self) -> bool:
        """Whether it is off, with no task that could start it."""
        return self.status == STOPPED and self.task is None

    @property
    def shows_volumes(self) -> bool:
        """Whether its volumes can be saved."""
        return self.status in _WITH_VOLUMES

    def check_task(self, project_id: str, host: str,
                   tasks: collections.abc.Collection[str]) -> None:
        """Check what a host says of a server that it is about to save.

        :param tasks: what Nova calls what the host does with it
        :raises Forbidden: Nova says otherwise
        :raises ServiceUnavailable: Nova does not say on which host it is
        """
        if self.host is None:
            raise exceptions.ServiceUnavailable(
                f'Nova does not show the host of server {self.id}; give the'
                f' user of [nova] the role admin, or wait until the cell of'
                f' the server can be reached.')
        if (self.project_id, self.host) != (project_id, host) \
                or self.task not in tasks:
            raise exceptions.Forbidden(
                f'Host {host} cannot save server {self.id} of project'
                f' {project_id} as one that is {" or ".join(tasks)}: in Nova'
                f' it belongs to'
                f' project {self.project_id}, is on host {self.host}, and its'
                f' task is {self.task or "none"}.')


class Servers:
    """Reads from Nova, with a user's token or the service's credentials."""

    def __init__(self, conf: cfg.ConfigOpts):
        self._nova = nova.Nova(conf)

    def get(self, server_id: str, token: str | None = None) -> Server:
        """Return a server, as the owner of a token sees it.

        :param token: None for the service's own credentials
        :raises NotFound: there is none that this user may see
        :raises ServiceUnavailable: Nova does not answer
        """
        try:
            return _server(self._nova.server(server_id, token))
        except exceptions.NotConfigured as error:
            raise exceptions.ServiceUnavailable(str(error)) from error
        except (exceptions.NotFound, exceptions.Forbidden,
                exceptions.InvalidInput) as error:
            raise exceptions.NotFound(
                f'Server {server_id} is unknown to Nova; see "openstack'
                f' server list".') from error
        except exceptions.PermanentError as error:
            raise exceptions.ServiceUnavailable(str(error)) from error

    def of_project(self, project_id: str) -> list[Server]:
        """Return all servers of a project.

        :raises ServiceUnavailable: Nova does not answer, or refuses
        """
        try:
            return list(map(_server, self._nova.servers_of(project_id)))
        except exceptions.PermanentError as error:
            raise exceptions.ServiceUnavailable(
                f'{error} Correct the options of [nova].') from error

    def on(self, host: str) -> list[Server]:
        """Return the servers of a host; none is known without ``[nova]``.

        :raises ServiceUnavailable: Nova does not answer, or refuses
        """
        try:
            return list(map(_server, self._nova.servers_on(host)))
        except exceptions.NotConfigured:
            return []
        except exceptions.PermanentError as error:
            raise exceptions.ServiceUnavailable(
                f'{error} Correct the options of [nova].') from error

    def volumes_on(self, host: str) -> dict[str, Server]:
        """Return the servers of a host by the volumes attached to them.

        :raises ServiceUnavailable: Nova does not answer, or refuses
        """
        try:
            return {volume['id']: _server(document)
                    for document in self._nova.servers_on(host)
                    for volume in document.get(_VOLUMES) or ()}
        except exceptions.PermanentError as error:
            raise exceptions.ServiceUnavailable(
                f'{error} Correct the options of [nova].') from error


def _server(document: nova.Document) -> Server:
    image = document.get('image') or {}
    return Server(
        id=document['id'], project_id=document['tenant_id'],
        status=document['status'],
        host=document.get('OS-EXT-SRV-ATTR:host'),
        task=document.get('OS-EXT-STS:task_state'),
        image_id=image.get('id'), user_id=document.get('user_id'),
        locked=bool(document.get('locked')),
        volumes=tuple(volume['id']
                      for volume in document.get(_VOLUMES) or ()))
