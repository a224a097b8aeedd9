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
"""Requests as passed to handlers."""

import collections.abc
import dataclasses
import functools
import json
import math
import typing

from oslo_config import cfg
from werkzeug import exceptions as http
from werkzeug import wrappers

from diffcache_openstack.api import microversions
from diffcache_openstack.api.policies import base as rules
from diffcache_openstack.api import policy as policies
from diffcache_openstack.cloud import quotas
from diffcache_openstack.cloud import servers as nova
from diffcache_openstack.cloud import volumes as cinder
from diffcache_openstack.common import contexts
from diffcache_openstack.db import engine
from diffcache_openstack.db import listing
from diffcache_openstack.rpc import conductor_api
from diffcache_openstack.rpc import conductor_control_api
from diffcache_openstack.rpc import conductor_lazy_api
from diffcache_openstack.rpc import conductor_versions_api
from diffcache_openstack.rpc import conductor_volumes_api
from diffcache_openstack.sites import maps


# Entries of a page if the request sets no limit.
PAGE = 100


class StrictJson:
    """Reads and writes JSON, without NaN and infinity."""

    dumps = staticmethod(json.dumps)

    @staticmethod
    def loads(text: str | bytes) -> typing.Any:
        """Parse a text.

        :raises ValueError: it is no JSON, is nested too deeply, or has a
            string that is no text
        """
        try:
            found = json.loads(text, parse_constant=_finite,
                               parse_float=_finite)
            json.dumps(found, ensure_ascii=False).encode()
        except RecursionError:
            raise ValueError('it is nested too deeply') from None
        except UnicodeEncodeError:
            raise ValueError('a string contains a lone surrogate') from None
        return found


def _finite(text):
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f'{text[:20]} is not a usable number')
    return number


@dataclasses.dataclass(frozen=True)
class Services:
    """Services that handlers use.

    :param database: only ever read from
    :param conductor: the first of the conductor's interfaces
    :param control: the one through which the API has things changed
    :param versions: the conductor's interface for versions of servers
    :param servers: asks Nova
    :param cinder: asks Cinder
    :param quotas: shows them, the conductor enforces them
    :param volumes: the conductor's interface for volumes in SSD caches
    :param lazy: the conductor's interface for lazy boots
    """

    conf: cfg.ConfigOpts
    database: engine.Database
    conductor: conductor_api.ConductorAPI
    control: conductor_control_api.ControlAPI
    enforcer: policies.Enforcer
    site_maps: maps.Maps
    versions: conductor_versions_api.VersionsAPI
    servers: nova.Servers
    quotas: quotas.Quotas
    volumes: conductor_volumes_api.VolumesAPI
    lazy: conductor_lazy_api.LazyAPI
    cinder: cinder.Volumes


class Request(wrappers.Request):
    """A request with its sender and the services that handlers use.

    :ivar parameters: the query, checked and typed
    :ivar document: the body, checked; None if the route has none
    :ivar found: the objects that the request is about, if the route names
        any; its policy allows the request with each of them
    """

    max_content_length = 2 ** 20
    json_module: typing.Any = StrictJson

    services: Services
    context: contexts.RequestContext
    version: microversions.Version
    parameters: dict[str, typing.Any]
    document: typing.Any
    found: collections.abc.Sequence[typing.Any]

    def read(self, function: typing.Callable, *args: typing.Any
             ) -> typing.Any:
        """Return the result of a function of ``db``."""
        return self.services.database.read(function, *args)

    def look(self, function: typing.Callable, *args: typing.Any
             ) -> typing.Any:
        """Return the result of a function that only selects columns."""
        return self.services.database.look(function, *args)

    def may(self, rule: str) -> bool:
        """Return whether a policy allows the caller something."""
        return self.services.enforcer.may(self.context, rule)

    @property
    def sees_infrastructure(self) -> bool:
        """Whether the caller may see names of hosts and errors as raised."""
        return self.may(rules.INFRASTRUCTURE)

    def find_server(self, server_id: str) -> nova.Server:
        """Return a server of Nova if the caller may see it.

        :raises NotFound: it does not
        """
        return self.services.servers.get(server_id, self.context.auth_token)

    def filters(self) -> dict[str, typing.Any]:
        """Return the parameters except those of paging."""
        return {name: value for name, value in self.parameters.items()
                if name not in ('limit', 'marker')}

    @property
    def page(self) -> listing.Page:
        """Return the requested page of a listing."""
        limit = self.parameters.get('limit', PAGE)
        return listing.Page(min(limit, self.services.conf.api.max_limit),
                            self.parameters.get('marker'))

    @functools.cached_property
    def viewer(self) -> listing.Viewer:
        """Return the project whose resources a listing may contain."""
        return listing.Viewer(self.context.project_id,
                              self.may(rules.ALL_PROJECTS))

    def content(self) -> typing.Any:
        """Return the parsed body.

        :raises BadRequest: it is not JSON
        :raises UnsupportedMediaType: its type is not JSON
        """
        if not self.is_json:
            raise http.UnsupportedMediaType(
                'Send the body as application/json.')
        return self.get_json()

    def on_json_loading_failed(self, e: ValueError | None) -> typing.Any:
        """Refuse a body that is not JSON."""
        raise http.BadRequest(f'The body is not JSON: {e}')
