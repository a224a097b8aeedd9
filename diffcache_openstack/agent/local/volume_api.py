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
"""HTTP interface of the socket for cinder-backup.

It gives the agent volumes that it has opened, and the ids of tasks on them.
What it may have done is decided by the conductor, which has begun the tasks.
"""

import collections.abc
import contextlib
import os
import socket
import typing

from werkzeug import routing
from werkzeug import wrappers

from diffcache_openstack.agent.images import contents
from diffcache_openstack.agent.local import local_server
from diffcache_openstack.agent.local import long_work
from diffcache_openstack.agent.local import messages
from diffcache_openstack.agent.local import socket_api
from diffcache_openstack.agent.versions import version_service
from diffcache_openstack.common import exceptions

_ROUTES = routing.Map([
    routing.Rule('/v1/host', methods=['GET'], endpoint='show_host'),
    routing.Rule('/v1/volume-tasks/<task_id>', methods=['POST'],
                 endpoint='perform'),
])


class VolumeApi(socket_api.SocketApi):
    """The WSGI application of Cinder's socket.

    :param service: performs tasks
    """

    def __init__(self, service: version_service.VersionService) -> None:
        self._service = service
        self._work = long_work.LongWork()

    def __call__(self, environ: dict, start_response: typing.Callable
                 ) -> collections.abc.Iterable[bytes]:
        """Answer a request of Cinder's."""
        return self.serve(_ROUTES, environ, start_response)

    def _show_host(self, _request):
        return messages.answer({'host': self._service.name})

    def _perform(self, request, task_id):
        if not messages.is_name(task_id):
            raise exceptions.InvalidInput('A task has an id.')
        messages.read_json(request)
        # The connection has bytes that are no part of a request.
        exchange = request.environ[local_server.REQUEST]
        exchange.close_connection = True
        return wrappers.Response(self._performed(request, task_id),
                                 mimetype=messages.JSON_LINES)

    def _performed(self, request, task_id: str) -> messages.Lines:
        """Yield a line that asks for the volume, progress, and the outcome."""
        yield b'{"send": "volume"}\n'
        try:
            descriptor = _receive(
                request.environ[local_server.REQUEST].conn.socket)
        except exceptions.DiffCacheError as error:
            yield messages.line(messages.error_of(error))
            return
        watch = contents.Watch()

        def work() -> dict:
            with contextlib.ExitStack() as stack:
                stack.callback(os.close, descriptor)
                return {'performed': self._service.perform_on_volume(
                    task_id, descriptor, watch.advance)}

        try:
            found = self._work.lines(request, f'volume-{task_id[:8]}', watch,
                                     work)
        except exceptions.ServiceUnavailable as error:
            os.close(descriptor)
            yield messages.line(messages.error_of(error))
            return
        yield from found


def _receive(connection: socket.socket) -> int:
    """Return the descriptor that a client sends with one byte.

    :raises InvalidInput: it sends none
    """
    _data, descriptors, _flags, _address = socket.recv_fds(
        connection, 1, 1, socket.MSG_CMSG_CLOEXEC)
    if not descriptors:
        raise exceptions.InvalidInput('The client sent no descriptor.')
    return descriptors[0]
