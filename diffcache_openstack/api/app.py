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
"""The WSGI application.

Built from one configuration and nothing global, as everything else here, so
that it runs under any server and in tests.
"""

import collections.abc
import json
import typing

from keystonemiddleware import auth_token
from oslo_config import cfg
from oslo_log import log
from oslo_middleware import cors
from oslo_middleware import healthcheck
from oslo_middleware import http_proxy_to_wsgi
from oslo_middleware import request_id
from werkzeug import exceptions as http
from werkzeug import wrappers

from diffcache_openstack.api import fields
from diffcache_openstack.api import handlers
from diffcache_openstack.api import microversions
from diffcache_openstack.api import policy
from diffcache_openstack.api import problems
from diffcache_openstack.api import requests
from diffcache_openstack.api import routing
from diffcache_openstack.api import validation
from diffcache_openstack.cloud import quotas
from diffcache_openstack.cloud import servers
from diffcache_openstack.cloud import volumes
from diffcache_openstack.common import contexts
from diffcache_openstack.common.signing import host_keys
from diffcache_openstack.common.telemetry import tracing
from diffcache_openstack.db import engine
from diffcache_openstack.db import migration
from diffcache_openstack.rpc import buses
from diffcache_openstack.rpc import conductor_api
from diffcache_openstack.rpc import conductor_control_api
from diffcache_openstack.rpc import conductor_lazy_api
from diffcache_openstack.rpc import conductor_versions_api
from diffcache_openstack.rpc import conductor_volumes_api
from diffcache_openstack.sites import maps

LOG = log.getLogger(__name__)

_JSON = 'application/json'

WSGI = collections.abc.Callable[..., collections.abc.Iterable[bytes]]


class Core:
    """Routes a request to its handler, past policy and schemas."""

    def __init__(self, services: requests.Services):
        self._services = services
        self._map = routing.build_map(handlers.routes())

    def __call__(self, environ: dict, start_response: typing.Any
                 ) -> collections.abc.Iterable[bytes]:
        """Answer one request."""
        request = requests.Request(environ)
        request.services = self._services
        request.context = contexts.RequestContext.from_environ(environ)
        request.version = microversions.MINIMUM
        try:
            response = self._answer(request)
        except Exception as error:
            # The outermost handler: every error gets the same format.
            response = self._refusal(request, error)
        response.headers[microversions.HEADER] = \
            f'{microversions.SERVICE_TYPE} {request.version}'
        response.headers['Vary'] = microversions.HEADER
        LOG.info('%s %s: %s', request.method, request.full_path.rstrip('?'),
                 response.status_code)
        return response(environ, start_response)

    def _answer(self, request):
        request.version = microversions.of_request(request.headers)
        route, arguments = self._map.bind_to_environ(request.environ).match()
        if request.version < route.since:
            raise http.NotFound(
                f'This requires version {route.since}; send'
                f' "{microversions.HEADER}: {microversions.SERVICE_TYPE}'
                f' {route.since}".')
        self._services.enforcer.require(request.context, route.policy)
        request.parameters = validation.parse_query(route.query, request.args)
        request.document = None
        if route.body is not None:
            request.document = request.content()
            validation.check_body(route.body, request.document)
        self._check_rights(request, route, arguments)
        result = route.handler(request, **arguments)
        return self._response(request, route, result)

    def _check_rights(self, request, route, arguments):
        """Find what a request is about, and check the policy with it."""
        enforcer = self._services.enforcer
        for name, rule in route.guarded.items():
            if name in request.parameters:
                enforcer.require(request.context, rule)
        request.found = () if route.finder is None \
            else route.finder(request, **arguments)
        check = enforcer.require_on if route.method == 'GET' \
            else enforcer.require_change
        for found in request.found:
            check(request.context, route.policy, policy.target_of(found))

    def _response(self, request, route, result):
        document, headers = result if isinstance(result, tuple) \
            else (result, {})
        if document is not None:
            document = fields.select(document, route.shows, request.version,
                                     request.sees_infrastructure)
        validation.check_response(self._services.conf, route.response,
                                  document)
        text = b'' if document is None else json.dumps(document).encode()
        return wrappers.Response(
            text, route.status, headers,
            mimetype=None if document is None else _JSON)

    def _refusal(self, request, error):
        problem = problems.of(error)
        if problem.is_internal and not self._sees_infrastructure(request):
            problem = problems.without_details(problem)
        headers = {}
        if isinstance(error, http.MethodNotAllowed):
            headers['Allow'] = ', '.join(sorted(error.valid_methods or ()))
        if problem.status == 503:
            headers['Retry-After'] = '5'
        document = problems.body(problem, request.context.request_id)
        return wrappers.Response(json.dumps(document), problem.status,
                                 headers, mimetype=_JSON)

    def _sees_infrastructure(self, request):
        try:
            return request.sees_infrastructure
        except Exception:
            # This is the outermost handler: there is an answer in any case.
            LOG.exception('Could not check the policy of an error message')
            return False


class OpenDoor:
    """Lets what is public past the check of tokens."""

    def __init__(self, doors: dict[str, WSGI], guarded: WSGI):
        """:param doors: what answers public paths"""
        self._doors = doors
        self._guarded = guarded

    def __call__(self, environ: dict, start_response: typing.Any
                 ) -> collections.abc.Iterable[bytes]:
        """Answer one request."""
        path = environ.get('PATH_INFO', '/').rstrip('/') or '/'
        inner = self._doors.get(path, self._guarded)
        return inner(environ, start_response)


def build(conf: cfg.ConfigOpts, services: requests.Services) -> WSGI:
    """Build the application behind the middleware for every request.

    :raises oslo_config.cfg.Error: the configuration cannot be used
    """
    core = Core(services)
    # What clients discover the API with, and what balancers ask.
    doors: dict[str, WSGI] = {
        '/': core, '/v1': core,
        '/healthcheck': healthcheck.Healthcheck(None, conf)}
    guarded = auth_token.AuthProtocol(core, {'oslo_config_config': conf})
    # Also what is asked of Keystone is part of a request's time.
    application: WSGI = tracing.traced(OpenDoor(doors, guarded))
    for layer in (request_id.RequestId, cors.CORS,
                  http_proxy_to_wsgi.HTTPProxyToWSGI):
        application = typing.cast(WSGI, layer(application, conf))
    return application


def set_defaults() -> None:
    """Allow browsers to send and read the headers of this API."""
    cors.set_defaults(
        allow_headers=['X-Auth-Token', 'X-OpenStack-Request-ID',
                       microversions.HEADER],
        expose_headers=['X-OpenStack-Request-ID', microversions.HEADER,
                        'Location', 'Retry-After'],
        allow_methods=sorted({route.method for route in handlers.routes()}))


def load(conf: cfg.ConfigOpts) -> WSGI:
    """Build the application of a configuration, with its clients.

    :raises PermanentError: the database's schema is not the code's
    """
    set_defaults()
    migration.wait_for_schema(conf)
    bus = buses.open_bus(conf, host_keys.CONTROLLER)
    database = engine.Database(conf)
    return build(conf, requests.Services(
        conf, database, conductor_api.ConductorAPI(bus, conf),
        conductor_control_api.ControlAPI(bus, conf), policy.Enforcer(conf),
        maps.Maps(conf, database),
        conductor_versions_api.VersionsAPI(bus, conf), servers.Servers(conf),
        quotas.Quotas(conf, database),
        conductor_volumes_api.VolumesAPI(bus, conf),
        conductor_lazy_api.LazyAPI(bus, conf), volumes.Volumes(conf)))
