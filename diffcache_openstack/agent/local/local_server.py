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
"""HTTP servers of the local sockets: cheroot on unix sockets.

Access is controlled by a socket's mode and group, and by the user at the other
end.
"""

import contextlib
import dataclasses
import json
import logging
import os
import pathlib
import pwd
import socket
import stat
import threading
import typing

from cheroot import server as http
from cheroot.workers import threadpool
from cheroot import wsgi

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import groups

LOG = logging.getLogger(__name__)

# A client that takes nothing, or sends nothing, for this many seconds is gone.
CLIENT_TIMEOUT = 120
# Each request has a thread while it is answered, which takes as long as an
# image takes to be built. Further ones wait.
MOST_THREADS = 128
_FIRST_THREADS = 8
# Connections that wait for a thread; more are closed.
_MOST_WAITING = 256
# Requests that are answered at the end of the server have this many seconds.
_STOP_SECONDS = 1
_BACKLOG = 128
_MOST_HEAD = 64 << 10
# The kernel's limit on the name of a unix socket, with its terminator.
_LONGEST_PATH = 107
# The request, as a key of the WSGI environment.
REQUEST = 'diffcache.request'


@dataclasses.dataclass(frozen=True)
class Access:
    """Who uses a socket.

    :ivar option: of ``[agent]``, which names the socket; that of the group has
        its name and ``_group``
    :ivar group: its members may connect, besides the agent's own user; None
        for no one else
    :ivar users: numbers of the users that are answered; None for any that can
        connect
    """

    option: str
    group: str | None = None
    users: frozenset[int] | None = None


def users_with(name: str) -> frozenset[int]:
    """Return root, this process's user, and the one with a name if it exists.

    A host without Nova, such as a repository, has no user of it.
    """
    found = {0, os.geteuid()}
    with contextlib.suppress(KeyError):
        found.add(pwd.getpwnam(name).pw_uid)
    return frozenset(found)


class LocalServer:
    """Serves a WSGI application on a unix socket.

    :param path: of the socket
    :param access: who uses it
    :param application: answers
    """

    def __init__(self, path: pathlib.Path, access: Access,
                 application: typing.Callable) -> None:
        self._path = path
        self._access = access
        if access.users is not None:
            application = _Guard(access.users, application)
        self._server = _Server(str(path), application)

    def start(self) -> None:
        """Start the server.

        :raises InvalidInput: the socket cannot be made; the message names
            the option
        """
        if len(os.fsencode(self._path)) > _LONGEST_PATH:
            raise exceptions.InvalidInput(
                f'[agent] {self._access.option} {self._path} is longer than'
                f' the {_LONGEST_PATH} bytes a socket\'s name may have; name a'
                f' shorter path.')
        try:
            self._server.bound = _listen(self._path, groups.number(
                f'[agent] {self._access.option}_group', self._access.group))
        except OSError as error:
            raise exceptions.InvalidInput(
                f'[agent] {self._access.option} {self._path} cannot be made:'
                f' {error.strerror}; name a path in a directory that the'
                f' agent may write to.') from error
        # Its workers are daemons because this thread is one.
        threading.Thread(target=self._server.safe_serve, daemon=True,
                         name='local-server').start()
        self._server.started.wait()

    def stop(self) -> None:
        """Refuse new requests; wait a moment for those in progress."""
        stopping = threading.Thread(target=self._server.stop, daemon=True,
                                    name='local-server-stop')
        stopping.start()
        stopping.join(2 * _STOP_SECONDS)
        self._path.unlink(missing_ok=True)


class _Guard:
    """Refuses requests of other users; the group alone gives no right."""

    def __init__(self, users: frozenset[int], application: typing.Callable
                 ) -> None:
        self._users = users
        self._application = application

    def __call__(self, environ: dict, start_response: typing.Callable
                 ) -> typing.Any:
        user = environ[REQUEST].conn.peer_uid
        if user in self._users:
            return self._application(environ, start_response)
        LOG.warning('Refusing a request of user %d to the local socket: only'
                    ' root, the agent and [agent] nova_user are served', user)
        document = json.dumps({'error': {
            'type': exceptions.Forbidden.__name__, 'retryable': False,
            'message': f'User {user} may not ask this agent to read images or'
                       f' volumes: name the user of nova-compute in [agent]'
                       f' nova_user of diffcache.conf.'}}).encode()
        start_response('403 Forbidden', [
            ('Content-Type', 'application/json'),
            ('Content-Length', str(len(document)))])
        return [document]


def _listen(path: pathlib.Path, gid: int | None) -> socket.socket:
    """Listen under a name that appears with its mode and group.

    :raises OSError: as the kernel reports it
    """
    # A socket there is a leftover: the state directory's lock keeps other
    # agents out.
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(0, 'a file of that name exists')
    temporary = path.with_name(f'.{path.name[:20]}.{os.getpid()}')
    temporary.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(str(temporary))
        # No moment at which others may connect.
        os.chmod(temporary, 0o600)
        if gid is not None:
            os.chown(temporary, -1, gid)
            os.chmod(temporary, 0o660)  # nosec B103
        listening.listen(_BACKLOG)
        os.replace(temporary, path)
    except OSError:
        listening.close()
        temporary.unlink(missing_ok=True)
        raise
    return listening


class _Workers(threadpool.ThreadPool):
    """Starts threads as they are needed, up to its limit."""

    def put(self, obj: typing.Any) -> None:
        """Queue a connection for a worker."""
        if self.qsize >= self.idle:
            self.grow(1)
        super().put(obj)


class _Gateway(wsgi.Gateway_10):
    """Shows the application the request, whose connection it may close."""

    def get_environ(self) -> typing.Any:
        """Return the WSGI environment."""
        return {**super().get_environ(), REQUEST: self.req}


class _Server(http.HTTPServer):
    """Takes a socket that listens already, and logs to the agent's log."""

    shutdown_timeout = _STOP_SECONDS
    timeout = CLIENT_TIMEOUT
    max_request_header_size = _MOST_HEAD
    # How soon a stop is noticed, seconds.
    expiration_interval = 0.2

    def __init__(self, path: str, application: typing.Callable) -> None:
        super().__init__(path, gateway=_Gateway, server_name='diffcache',
                         peercreds_enabled=True)
        self.wsgi_app = application
        self.request_queue_size = _BACKLOG
        self.requests = _Workers(
            self, min=_FIRST_THREADS, max=MOST_THREADS,
            accepted_queue_size=_MOST_WAITING,
            accepted_queue_timeout=_STOP_SECONDS)
        self.bound: socket.socket | None = None
        self.started = threading.Event()

    def bind_unix_socket(self, bind_addr: typing.Any) -> typing.Any:
        """Use the socket that was bound before."""
        self.socket = self.bound
        return self.socket

    def safe_serve(self) -> None:
        """Serve until the server is stopped."""
        try:
            self.prepare()
        finally:
            self.started.set()
        self.serve()

    def error_log(self, msg: str = '', level: int = logging.INFO,
                  traceback: bool = False) -> None:
        """Log a message of cheroot's."""
        LOG.log(level, 'Local socket: %s', msg, exc_info=traceback)
