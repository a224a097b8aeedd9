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
"""HTTP server of the local socket: cheroot on a unix socket.

Access is controlled by the socket's mode and group.
"""

import contextlib
import grp
import logging
import os
import pathlib
import socket
import stat
import threading
import typing

from cheroot import server as http
from cheroot.workers import threadpool
from cheroot import wsgi

from diffcache_openstack.common import exceptions

LOG = logging.getLogger(__name__)

# A client that takes nothing, or sends nothing, for so many seconds is gone.
CLIENT_TIMEOUT = 120
SOCKET_MODE = 0o660
# Each request has a thread while it is answered, which takes as long as an
# image takes to be built. Further ones wait.
MOST_THREADS = 128
_FIRST_THREADS = 8
# Connections that wait for a thread; more are closed.
_MOST_WAITING = 256
# Requests that are answered at the end of the server have so many seconds.
_STOP_SECONDS = 1
_BACKLOG = 128
_MOST_HEAD = 64 << 10
# The kernel's limit on the name of a unix socket, with its terminator.
_LONGEST_PATH = 107
# The request, as a key of the WSGI environment.
REQUEST = 'diffcache.request'


class LocalServer:
    """Serves a WSGI application on a unix socket.

    :param path: of the socket
    :param group: name of the group that may connect; None for the agent's
    :param application: answers
    """

    def __init__(self, path: pathlib.Path, group: str | None,
                 application: typing.Callable) -> None:
        self._path = path
        self._group = group
        self._server = _Server(str(path), application)

    def start(self) -> None:
        """Start the server.

        :raises InvalidInput: the socket cannot be made; the message names
            the option
        """
        if len(os.fsencode(self._path)) > _LONGEST_PATH:
            raise exceptions.InvalidInput(
                f'[agent] socket {self._path} is longer than the'
                f' {_LONGEST_PATH} bytes a socket\'s name may have; name a'
                f' shorter path.')
        try:
            self._server.bound = _listen(self._path, _gid_of(self._group))
        except OSError as error:
            raise exceptions.InvalidInput(
                f'[agent] socket {self._path} cannot be made:'
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


def _gid_of(group: str | None) -> int:
    """Return the number of a group; -1, which changes nothing, for none.

    :raises InvalidInput: there is no such group
    """
    if not group:
        return -1
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError as error:
        raise exceptions.InvalidInput(
            f'[agent] socket_group: there is no group {group}; create it, or'
            f' name the one that nova and glance belong to.') from error


def _listen(path: pathlib.Path, gid: int) -> socket.socket:
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
        os.chown(temporary, -1, gid)
        os.chmod(temporary, SOCKET_MODE)
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
        super().__init__(path, gateway=_Gateway, server_name='diffcache')
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
