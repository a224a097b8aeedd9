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
"""What the HTTP interfaces of the local sockets have in common."""

import collections.abc
import logging
import typing
import urllib.parse

from werkzeug import exceptions as http_exceptions
from werkzeug import routing
from werkzeug import wrappers

from diffcache_openstack.agent.local import messages
from diffcache_openstack.common import exceptions

LOG = logging.getLogger(__name__)


class SocketApi:
    """A WSGI application whose handlers are methods, named by routes."""

    def serve(self, routes: routing.Map, environ: dict,
              start_response: typing.Callable
              ) -> collections.abc.Iterable[bytes]:
        """Answer a request by the method that a route names."""
        request = wrappers.Request(environ)
        # For log lines of this thread, until its next request.
        messages.context_of(request).update_store()
        LOG.debug('%s %s', request.method, environ['REQUEST_URI'])
        return self._answer(routes, request)(environ, start_response)

    def _answer(self, routes: routing.Map, request: wrappers.Request
                ) -> wrappers.Response:
        try:
            messages.check_length(request)
            handler, arguments = self._route(routes, request)
            return handler(request, **arguments)
        except (ConnectionError, TimeoutError):
            # The client has gone: cheroot closes the connection.
            raise
        except exceptions.DiffCacheError as error:
            return messages.refusal(request, error)
        except Exception as error:
            LOG.exception('%s %s', request.method, request.path)
            return messages.refusal(request, messages.internal(error))

    def _route(self, routes, request):
        path = urllib.parse.urlsplit(request.environ['REQUEST_URI']).path
        try:
            endpoint, arguments = routes.bind('local').match(
                path, method=request.method)
        except http_exceptions.HTTPException as error:
            raise exceptions.NotFound(
                f'There is nothing at {request.method} {path}; the client may'
                f' be newer than this agent.') from error
        return getattr(self, f'_{endpoint}'), {
            name: urllib.parse.unquote(text)
            for name, text in arguments.items()}
