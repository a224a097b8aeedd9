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
"""What Nova says of servers: whose they are, where, and in which state."""

import dataclasses
import typing
import urllib.parse

from keystoneauth1 import exceptions as ksa_exceptions
from oslo_config import cfg

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import keystone
from diffcache_openstack.conf import nova

STOPPED = 'SHUTOFF'
_PAGE = 500


@dataclasses.dataclass(frozen=True)
class Server:
    """A server of Nova's.

    :param host: None if the caller may not know it, or it has none
    :param image_id: None if it was booted from a volume
    """

    id: str
    project_id: str
    status: str
    host: str | None = None
    task: str | None = None
    image_id: str | None = None

    @property
    def stopped(self) -> bool:
        """Whether it is off, and about to stay so."""
        return self.status == STOPPED and self.task is None


class Servers:
    """Asks Nova, with a caller's rights or with the service's own."""

    def __init__(self, conf: cfg.ConfigOpts):
        self._nova = keystone.Service(conf, nova.GROUP.name)

    def get(self, server_id: str, token: str | None = None) -> Server:
        """A server, as the owner of a token sees it.

        :param token: None for the service's own rights
        :raises NotFound: there is none that may be seen
        :raises ServiceUnavailable: Nova cannot be asked
        """
        try:
            answer = self._ask(
                f'/servers/{urllib.parse.quote(server_id, safe="")}', token)
        except (ksa_exceptions.NotFound, ksa_exceptions.Forbidden,
                ksa_exceptions.BadRequest) as error:
            raise exceptions.NotFound(
                f'Server {server_id} is unknown to Nova; see "openstack'
                f' server list".') from error
        return _server(answer['server'])

    def of_project(self, project_id: str) -> list[Server]:
        """All servers of a project.

        :raises ServiceUnavailable: Nova cannot be asked
        """
        found: list[Server] = []
        query = {'all_tenants': '1', 'project_id': project_id,
                 'limit': str(_PAGE)}
        while True:
            path = f'/servers/detail?{urllib.parse.urlencode(query)}'
            try:
                servers = self._ask(path)['servers']
            except ksa_exceptions.ClientException as error:
                raise _unavailable(path, error) from error
            found += map(_server, servers)
            if len(servers) < _PAGE:
                return found
            query['marker'] = servers[-1]['id']

    def _ask(self, path, token=None):
        own: dict[str, typing.Any] = {} if token is None else {
            'headers': {'X-Auth-Token': token}, 'authenticated': False}
        try:
            return self._nova.adapter().get(path, **own).json()
        except (ksa_exceptions.NotFound, ksa_exceptions.Forbidden,
                ksa_exceptions.BadRequest):
            raise
        except (ksa_exceptions.ClientException, ValueError,
                exceptions.InvalidInput) as error:
            raise _unavailable(path, error) from error


def _server(document):
    image = document.get('image') or {}
    return Server(
        id=document['id'], project_id=document['tenant_id'],
        status=document['status'],
        host=document.get('OS-EXT-SRV-ATTR:host'),
        task=document.get('OS-EXT-STS:task_state'),
        image_id=image.get('id'))


def _unavailable(path, error):
    return exceptions.ServiceUnavailable(
        f'Nova was not asked for {path}: {error}; check the options [nova]'
        f' and that Nova runs.')
