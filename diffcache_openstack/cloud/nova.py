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
"""Nova's API: servers, aggregates and compute services."""

import typing
import urllib.parse

from keystoneauth1 import exceptions as ksa_exceptions
from keystoneauth1 import token_endpoint
from novaclient import client
from novaclient import exceptions as nova_exceptions
from oslo_config import cfg
import requests

from diffcache_openstack.cloud import base
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import keystone
from diffcache_openstack.conf import nova

# Pinned, so that answers stay what the code reads whatever Nova's release. The
# last in which servers of a cell that is down are left out of lists; from the
# next on they are listed without most of their fields.
MICROVERSION = '2.68'

# Paths beside those of servers; no server has such an ID.
_NO_SERVERS = ('detail', '.', '..')

Document = dict[str, typing.Any]


class Nova(base.ServiceClient):
    """Nova, with the credentials of ``[nova]`` or with a user's token.

    Every method raises what :meth:`ServiceClient._call` does.
    """

    name = 'Nova'
    errors = (nova_exceptions.ClientException,
              nova_exceptions.UnsupportedVersion,
              ksa_exceptions.ClientException, requests.RequestException)

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__(conf, nova.GROUP.name)

    def server(self, server_id: str, token: str | None = None) -> Document:
        """Return a server, as the owner of a token sees it.

        :param token: None for the service's own credentials
        :raises NotFound: it is not known to Nova
        """
        if server_id in _NO_SERVERS:
            raise exceptions.NotFound(f'Nova has no server {server_id!r}.')
        with self._call(f'show server {server_id}') as own:
            compute = own if token is None else self._as_user(own, token)
            return compute.servers.get(
                urllib.parse.quote(server_id, safe='')).to_dict()

    def servers_of(self, project_id: str) -> list[Document]:
        """Return all servers of a project."""
        with self._call(f'list the servers of project {project_id}') as own:
            return [server.to_dict() for server in own.servers.list(
                search_opts={'all_tenants': '1', 'project_id': project_id},
                limit=-1)]

    def servers_on(self, host: str) -> list[Document]:
        """Return all servers of a host, with the volumes attached to them."""
        with self._call(f'list the servers of host {host}') as own:
            return [server.to_dict() for server in own.servers.list(
                search_opts={'all_tenants': '1', 'host': host}, limit=-1)]

    def aggregates(self) -> list[Document]:
        """Return all host aggregates."""
        with self._call('list aggregates') as own:
            return [entry.to_dict() for entry in own.aggregates.list()]

    def compute_services(self) -> list[Document]:
        """Return the nova-compute services of all hosts."""
        with self._call('list compute services') as own:
            return [entry.to_dict() for entry
                    in own.services.list(binary='nova-compute')]

    def _connect(self, session: keystone.Session,
                 options: dict[str, typing.Any]) -> typing.Any:
        interface = options.pop('interface', None)
        return client.Client(MICROVERSION, session=session,
                             endpoint_type=interface, **options)

    def _as_user(self, own: typing.Any, token: str) -> typing.Any:
        """Return a client with a user's token, at the same endpoint."""
        options = keystone.adapter_options(self._conf, self._group)
        user = token_endpoint.Token(own.client.get_endpoint(), token)
        return client.Client(
            MICROVERSION, session=own.client.session, auth=user,
            endpoint_type=options.pop('interface', None), **options)
