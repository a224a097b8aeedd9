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
"""Client of this host's agent, over its local socket.

This runs inside other projects' services as well, so it takes nothing but the
standard library, and blocks in plain sockets. Where such a service traces a
request, the agent continues its trace.
"""

import collections.abc
import contextlib
import http.client
import json
import socket
import typing
import urllib.parse

from diffcache_openstack.common import exceptions
from diffcache_openstack.common.telemetry import tracing

# No answer has longer lines, and no single answer is longer.
_LONGEST_LINE = 1 << 20
_LONGEST_ANSWER = 256 << 20
_PIECE = 1 << 20
# The ways to an image take milliseconds to look up, and a catalogue may have
# thousands.
_LIST_SECONDS = 30.0
# agent_api.MOST_IMAGE_WAIT, and the look-ups before and after.
_LONGEST_WAIT = 65.0

_BY_STATUS: dict[int, type[exceptions.DiffCacheError]] = {
    400: exceptions.InvalidInput,
    404: exceptions.NotFound,
    409: exceptions.Conflict,
    503: exceptions.ServiceUnavailable,
    507: exceptions.NoSpace,
}

# How a connection ends with the process at its other end.
_GONE = (ConnectionError, EOFError, FileNotFoundError,
         http.client.IncompleteRead)

Progress = collections.abc.Callable[[int, int], None]
RequestId = collections.abc.Callable[[], str | None]
REQUEST_ID_HEADER = 'X-OpenStack-Request-ID'


def is_gone(error: exceptions.DiffCacheError) -> bool:
    """Return whether no service listens, or it ended while it answered.

    :param error: what a method raised
    """
    return isinstance(error.__cause__, _GONE)


class LocalClient:
    """The agent behind a socket; every call makes its own connection.

    All methods raise ServiceUnavailable if the agent does not answer, and
    the errors that the agent answers with.

    :param path: the socket, ``[agent] socket``
    :param timeout: seconds to wait for an answer that takes no work
    :param request_id: returns the ID of the request that the caller works
        for, which the agent has in its log lines; None outside of requests
    """

    def __init__(self, path: str, timeout: float = 1.5,
                 request_id: RequestId = lambda: None) -> None:
        self._path = path
        self._timeout = timeout
        self._request_id = request_id

    def status(self) -> dict[str, typing.Any]:
        """Return the agent's status."""
        return self._ask('GET', '/v1/status')

    def images(self) -> list[dict[str, typing.Any]]:
        """List all images of the catalogue, with their state on this host."""
        answer = self._ask('GET', '/v1/images',
                           timeout=max(self._timeout, _LIST_SECONDS))
        return answer['images'] if isinstance(answer, dict) else answer

    def image(self, image_id: str) -> dict[str, typing.Any]:
        """Describe an image, and the cost of bringing it here.

        :raises NotFound: the catalogue does not have it
        """
        return self._ask('GET', _path(image_id))

    def new_image(self, image_id: str, size: int) -> dict[str, typing.Any]:
        """Describe an image that the catalogue may not have yet.

        The agent waits for a repository that is adding the image, as long as
        that is worth it.

        :param size: bytes of the image's file
        :raises NotFound: no repository will have it soon
        """
        return self._ask('GET', f'{_path(image_id)}?new_file_size={size}',
                         timeout=self._timeout + _LONGEST_WAIT)

    def drop(self, image_id: str) -> None:
        """Remove what this host holds of an image.

        :raises NotFound: the catalogue does not have it
        """
        self._ask('DELETE', _path(image_id))

    def fallback(self, service: str, reason: str, count: int) -> None:
        """Report images that a service had to fetch without the agent.

        :param reason: the class of the error
        """
        self._ask('POST', '/v1/fallbacks',
                  {'service': service, 'reason': reason, 'count': count})

    def save_server(self, server_id: str, wanted: dict[str, typing.Any],
                    stall_timeout: float = 60.0) -> dict[str, typing.Any]:
        """Save a server that is stopped or deleted next, if a policy asks it.

        :param wanted: ``project_id``, ``trigger`` (shutdown or delete) and
            ``image_id``
        :param stall_timeout: seconds without a sign of life
        :returns: ``version``, its id or None; ``required``, whether the
            policy insists on it; ``error``, why there is none though there
            should be
        """
        path = f'/v1/servers/{urllib.parse.quote(server_id, safe="")}/versions'
        return self._awaited('POST', path, wanted, stall_timeout, 'saved',
                             f'saved server {server_id}')

    def write_server_image(self, server_id: str, wanted: dict[str, typing.Any],
                           stall_timeout: float = 60.0
                           ) -> dict[str, typing.Any]:
        """Make the agent save a server, and write a disk of it to a file.

        :param wanted: ``project_id``, ``disk`` and ``output``, absolute paths,
            and ``format``, raw or qcow2
        :param stall_timeout: seconds without a sign of life
        :returns: ``bytes_changed``, ``bytes_stored``, ``pause_ms`` and
            ``quiesced`` of the save
        :raises InvalidInput: the agent must not write the file
        """
        path = f'/v1/servers/{urllib.parse.quote(server_id, safe="")}/image'
        return self._awaited('POST', path, wanted, stall_timeout, 'written',
                             f'image of server {server_id}')

    def content(self, image_id: str, output: str, mode: str | None = None,
                stall_timeout: float = 60.0,
                progress: Progress | None = None,
                own_bytes: int | None = None) -> dict[str, typing.Any]:
        """Make the agent write an image's raw content to a file.

        :param output: absolute path; complete when this returns, and not
            there if it raises
        :param mode: how to build it; None leaves it to the agent
        :param stall_timeout: seconds without a sign of life
        :param progress: called with bytes done and bytes in all
        :param own_bytes: bytes that the caller could download instead
        :returns: how the request was served, the fields of objects.Request
        :raises NotFound: the catalogue does not have it, or no longer
        :raises DownloadCheaper: the image would cross the WAN whole, in more
            than ``own_bytes``
        """
        body: dict[str, typing.Any] = {'output': output, 'mode': mode}
        if own_bytes is not None:
            body['own_bytes'] = own_bytes
        return self._awaited('POST', _path(image_id, 'content'), body,
                             stall_timeout, 'request',
                             f'delivered image {image_id}', progress)

    def lend(self, image_id: str, path: str) -> bool:
        """Let the agent read a file that has an image's raw content.

        It is served to other hosts until it is removed or changed.

        :param path: absolute
        :returns: whether the agent uses it already; it may verify it first
        :raises NotFound: the catalogue does not have the image
        :raises InvalidInput: the agent must not read the file
        """
        return bool(self._ask('POST', _path(image_id, 'lent'),
                              {'path': path})['borrowed'])

    def open_lazy(self, image_id: str, rate: int | None = None,
                  timeout: float = 60.0) -> dict[str, typing.Any]:
        """Have an image served while it arrives.

        :param rate: bytes per second at which it is fetched at most, besides
            what is read, if this begins it
        :param timeout: seconds until its file can be read
        :returns: ``path`` of the file, or None and the ``reason`` why it is
            to be delivered whole
        :raises NotFound: the catalogue does not have the image
        """
        body = {} if rate is None else {'hydrate_rate': rate}
        return self._ask('POST', _path(image_id, 'lazy'), body,
                         timeout=timeout)

    def open_version(self, version_id: str, wanted: dict[str, str],
                     rate: int | None = None, timeout: float = 60.0
                     ) -> dict[str, typing.Any]:
        """Have a version served while it arrives.

        :param wanted: ``project_id`` of the server that boots from it, and
            ``image_id``, which stands for it in Nova
        :param rate: as of :meth:`open_lazy`
        :param timeout: seconds until its file can be read
        :returns: as :meth:`open_lazy`
        :raises NotFound: the project has no such version
        :raises Conflict: it is not complete, or has several disks
        """
        limit = {} if rate is None else {'hydrate_rate': rate}
        return self._ask('POST', _version_path(version_id, 'lazy'),
                         {**wanted, **limit}, timeout=timeout)

    def version_content(self, version_id: str, wanted: dict[str, str],
                        stall_timeout: float = 60.0) -> None:
        """Make the agent write a version's raw content to a file.

        :param wanted: ``project_id`` of the server that boots from it, and
            ``output``, an absolute path; the file is complete when this
            returns, and not there if it raises
        :param stall_timeout: seconds without a sign of life
        :raises NotFound: the project has no such version
        :raises Conflict: it is not complete, or has several disks
        """
        self._awaited('POST', _version_path(version_id, 'content'), wanted,
                      stall_timeout, 'delivered', f'version {version_id}')

    def lazy(self) -> list[dict[str, typing.Any]]:
        """List the images that are served while they arrive."""
        return self._ask('GET', '/v1/lazy')['images']

    def add_lazy_server(self, server_id: str,
                        server: dict[str, typing.Any]) -> None:
        """Announce that a server boots from an image that is served.

        :param server: ``project_id``, ``image_id`` and ``label``
        :raises NotFound: it is not served
        """
        self._ask('PUT', f'/v1/lazy-servers/{server_id}', server)

    def remove_lazy_server(self, server_id: str) -> None:
        """Announce that a server is no longer on this host."""
        self._ask('DELETE', f'/v1/lazy-servers/{server_id}', {})

    def release_lazy(self, content_id: str) -> None:
        """Announce that no new user of a served image comes.

        :raises NotFound: it is not served
        """
        self._ask('POST', f'/v1/lazy/{content_id}/released', {})

    @contextlib.contextmanager
    def file(self, image_id: str, first: int = 0, last: int | None = None,
             site_only: bool = False, stall_timeout: float = 60.0
             ) -> collections.abc.Iterator['File']:
        """Open the complete file that Glance has, for reading.

        :param last: position of the last byte; None for the file's end
        :param site_only: fail rather than use the WAN
        :param stall_timeout: seconds without a byte
        :returns: the bytes, as they come
        :raises Conflict: site_only, and it takes the WAN
        """
        path = _path(image_id, 'file') + ('?site_only=1' if site_only else '')
        end = '' if last is None else str(last)
        headers = {'Range': f'bytes={first}-{end}'} if first or end else {}
        with self._answer('GET', path, None, stall_timeout,
                          headers) as answer:
            yield File(answer, image_id)

    def prefetch(self, image_id: str, stall_timeout: float) -> None:
        """Bring the complete file that Glance has to the site.

        :param stall_timeout: seconds until it is there
        :raises NotFound: the catalogue does not have the image
        """
        self._ask('POST', _path(image_id, 'prefetched'),
                  timeout=stall_timeout)

    @contextlib.contextmanager
    def expecting(self, image_id: str) -> collections.abc.Iterator[None]:
        """Announce an image's file, which follows soon, or never.

        While the block lasts, no fill of the site brings the content over the
        WAN beside it. It ends with this process, too.

        :raises NotFound: the catalogue does not have the image
        """
        with self._answer('POST', _path(image_id, 'expected'), None,
                          self._timeout):
            yield

    def give_file(self, image_id: str, source: typing.BinaryIO, length: int,
                  timeout: float = 600.0) -> None:
        """Send the agent an image's file that was fetched over the WAN.

        :param length: bytes that ``source`` has
        :param timeout: seconds in which it has to be verified and unpacked
        :raises NotFound: the catalogue does not have the image
        :raises IntegrityError: it is not the file that Glance vouches for
        """
        headers = {'Content-Length': str(length),
                   'Content-Type': 'application/octet-stream'}
        with self._answer('PUT', _path(image_id, 'file'), source, timeout,
                          headers):
            pass

    def ssd_cache(self) -> dict[str, typing.Any]:
        """Return the capacity of this host's SSD cache, and its volumes.

        :raises NotFound: the host has no SSD cache
        """
        return self._ask('GET', '/v1/ssd-cache')

    def attach_volume(self, volume_id: str, wanted: dict[str, typing.Any],
                      timeout: float = 60.0) -> dict[str, typing.Any]:
        """Attach a volume to this host's SSD cache, without cached blocks.

        :param wanted: ``origin``, ``mode``, and maybe ``min``, ``max``,
            ``weight``, ``sequential``, ``rates``, what it may do per
            second, and ``nbd_reason``: why its server has to reach it by
            NBD, none for any way
        :returns: ``export``, ``socket`` and ``reconnect_delay``;
            ``vhost``, the socket to use instead, if there is one; and
            ``rates`` that the cache enforces
        :raises NotFound: the host has no SSD cache
        :raises NoSpace: it is full, or its device failed
        :raises Conflict: it does not take the volume
        """
        return self._ask('PUT', _volume_path(volume_id), wanted,
                         timeout=timeout)

    def detach_volume(self, volume_id: str, timeout: float = 60.0) -> None:
        """Detach a volume from this host's SSD cache, if it is attached.

        :raises NotFound: the host has no SSD cache
        :raises Conflict: what was written cannot be made durable
        """
        self._ask('DELETE', _volume_path(volume_id), timeout=timeout)

    def end_volume_guest(self, volume_id: str) -> None:
        """Announce that the server that used a volume has ended.

        :raises NotFound: the host has no SSD cache, or not this volume
        """
        self._ask('POST', _volume_path(volume_id) + '/guest-ended')

    def resize_volume(self, volume_id: str, timeout: float = 60.0) -> None:
        """Tell this host's SSD cache that a volume grew.

        :raises NotFound: the host has no SSD cache
        :raises Conflict: the volume is not attached, or became smaller
        """
        self._ask('POST', _volume_path(volume_id) + '/resize',
                  timeout=timeout)

    def disconnect_volume(self, volume_id: str, timeout: float = 60.0
                          ) -> None:
        """Have this host's SSD cache end the connections to a volume.

        QEMU sees the size of the volume when it connects again.

        :raises NotFound: the host has no SSD cache
        :raises Conflict: the volume is not attached, or has no connections
        """
        self._ask('POST', _volume_path(volume_id) + '/disconnect',
                  timeout=timeout)

    def expect_volume(self, volume_id: str, host: str,
                      timeout: float = 60.0) -> None:
        """Announce which host runs the server of a volume until now.

        :raises NotFound: the host has no SSD cache, or the volume is not
            attached
        """
        self._ask('POST', _volume_path(volume_id) + '/expected',
                  {'host': host}, timeout=timeout)

    def set_volume_mode(self, volume_id: str, mode: str,
                        timeout: float = 60.0) -> None:
        """Change what this host's SSD cache does with a volume.

        :raises NotFound: the host has no SSD cache
        :raises Conflict: the volume is not attached
        """
        self._ask('PUT', _volume_path(volume_id) + '/mode', {'mode': mode},
                  timeout=timeout)

    def drain_volume(self, volume_id: str, seconds: float, leaves: bool
                     ) -> None:
        """Keep a volume out of write-back, as its server is to leave.

        What this host's SSD cache has and the volume lacks is written back.

        :param seconds: to wait; it continues after that
        :param leaves: the server leaves now, and not only may; then the
            volume is so until :meth:`give_volume_back` or it is attached
        :raises NotFound: the host has no SSD cache, or the volume is not
            attached
        :raises Busy: it takes longer
        :raises Conflict: the volume cannot be written
        """
        self._ask('PUT', _volume_path(volume_id) + '/leave',
                  {'seconds': seconds, 'leaves': leaves},
                  timeout=seconds + _LIST_SECONDS)

    def give_volume_back(self, volume_id: str, timeout: float = 60.0) -> None:
        """Let a volume be in write-back again, as its server stays.

        :raises NotFound: the host has no SSD cache
        """
        self._ask('DELETE', _volume_path(volume_id) + '/leave',
                  timeout=timeout)

    def forget_volume(self, volume_id: str, timeout: float = 60.0) -> None:
        """Detach a volume whose server runs on another host since.

        What this host's SSD cache kept of it over a start of this host is
        lost, and does not replace what the other host wrote.

        :raises NotFound: the host has no SSD cache
        :raises Conflict: what was written cannot be made durable
        """
        self._ask('POST', _volume_path(volume_id) + '/forgotten',
                  timeout=timeout)

    def queue(self) -> list[str]:
        """List images that operators want cached, oldest first."""
        return self._ask('GET', '/v1/queue')['images']

    def enqueue(self, image_id: str) -> bool:
        """Queue an image; False if it is queued or cached already."""
        return self._ask('PUT', _queue_path(image_id))['queued']

    def dequeue(self, image_id: str) -> bool:
        """Remove an image from the queue; return whether it was in it."""
        return self._ask('DELETE', _queue_path(image_id))['queued']

    def _awaited(self, method, path, body, stall_timeout, key, what,
                 progress=None):
        """Return the value of a key in the last line of an answer."""
        with self._answer(method, path, body, stall_timeout) as answer:
            return self._last(answer, key, what, progress)

    def _last(self, answer, key, what, progress):
        while (line := self._line(answer)) is not None:
            if 'error' in line:
                raise _reported(line['error'], answer.status)
            if key in line:
                return line[key]
            if progress is not None and 'progress' in line:
                progress(int(line['progress']['done']),
                         int(line['progress']['total']))
        raise exceptions.ServiceUnavailable(
            f'The agent at {self._path} broke off while it {what}; its log'
            f' may say why.') from EOFError()

    def _ask(self, method, path, body=None, timeout=None):
        with self._answer(method, path, body,
                          timeout or self._timeout) as answer:
            with self._unavailable():
                data = answer.read(_LONGEST_ANSWER)
                return json.loads(data) if data else None

    @contextlib.contextmanager
    def _answer(self, method, path, body, timeout, headers=None):
        """Return the response to a request that succeeded."""
        with self._connected(method, path, body, timeout, headers) as found:
            yield found[0]

    @contextlib.contextmanager
    def _connected(self, method, path, body, timeout, headers=None):
        """Return the response to a request that succeeded, and its socket."""
        headers = {**tracing.headers(), **(headers or {})}
        if request_id := self._request_id():
            headers[REQUEST_ID_HEADER] = request_id
        with contextlib.closing(UnixConnection(self._path, self._timeout)
                                ) as connection:
            with self._unavailable():
                connection.connect()
                connection.sock.settimeout(timeout)
                used = connection.sock
                answer = _exchange(connection, method, path, body, headers)
            if not 200 <= answer.status < 300:
                with self._unavailable():
                    data = answer.read(_LONGEST_LINE)
                raise _error(answer.status, data)
            # Not with the traceback that refers to it: the agent waits for it.
            with answer:
                yield answer, used

    def _line(self, answer):
        """Read the next document of a stream, one a line; None at its end."""
        with self._unavailable():
            line = answer.readline(_LONGEST_LINE)
            document = json.loads(line) if line else None
            if line and not isinstance(document, dict):
                raise ValueError(f'no object in line {line[:100]!r}')
            return document

    @contextlib.contextmanager
    def _unavailable(self):
        try:
            yield
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = (getattr(error, 'strerror', None) or str(error)
                      or type(error).__name__)
            raise exceptions.ServiceUnavailable(
                f'The agent at {self._path} does not answer: {reason}; check'
                f' that it runs, and that this user may connect to its'
                f' socket.') from error


class File:
    """An image's file, or a range of it, as it comes from the agent.

    :ivar length: bytes that come in all
    :ivar total: bytes of the whole file
    """

    def __init__(self, answer: http.client.HTTPResponse,
                 image_id: str) -> None:
        self._answer = answer
        self._image_id = image_id
        self.length = self._left = int(answer.headers['Content-Length'])
        span = answer.headers.get('Content-Range') or ''
        self.total = int(span.rpartition('/')[2] or self.length)

    def read(self, size: int = -1) -> bytes:
        """Read the next bytes, up to this many; none at the end.

        :raises ServiceUnavailable: the agent broke off
        """
        if not self._left or not size:
            return b''
        wanted = self._left if size < 0 else min(size, self._left)
        try:
            data = self._answer.read(wanted)
        except (OSError, http.client.HTTPException) as error:
            raise self._broke_off(error) from error
        if not data:
            raise self._broke_off('the connection ended')
        self._left -= len(data)
        return data

    def __iter__(self) -> collections.abc.Iterator[bytes]:
        while data := self.read(_PIECE):
            yield data

    def _broke_off(self, why):
        return exceptions.ServiceUnavailable(
            f'The agent broke off image {self._image_id} with {self._left} of'
            f' {self.length} bytes missing ({why}); its log may say why.')


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__('localhost', timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket rather than to a host."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _exchange(connection, method, path, body, headers):
    data = body
    if isinstance(body, dict):
        data = json.dumps(body).encode()
        headers = {**headers, 'Content-Type': 'application/json'}
    # An agent may answer, and close, before it has read a long body.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.request(method, path, data, headers)
    return connection.getresponse()


def _volume_path(volume_id: str) -> str:
    return '/v1/ssd-cache/volumes/' + urllib.parse.quote(volume_id, safe='')


def _queue_path(image_id):
    return f'/v1/queue/{urllib.parse.quote(image_id, safe="")}'


def _version_path(version_id: str, what: str) -> str:
    return f'/v1/versions/{urllib.parse.quote(version_id, safe="")}/{what}'


def _path(image_id, *parts):
    return '/'.join(['/v1/images', urllib.parse.quote(image_id, safe=''),
                     *parts])


def _error(status, data):
    try:
        return _reported(json.loads(data)['error'], status)
    except (ValueError, KeyError, TypeError):
        kind = _by_status(status)
        return kind(f'The agent answered {status}:'
                    f' {data[:200].decode(errors="replace")}')


def _reported(error, status):
    """Return the error that the agent reports by the name of its class."""
    kind = getattr(exceptions, str(error['type']), None)
    if not (isinstance(kind, type)
            and issubclass(kind, exceptions.DiffCacheError)):
        kind = (exceptions.RetryableError if error.get('retryable')
                else _by_status(status))
    return kind(str(error['message']))


def _by_status(status):
    return _BY_STATUS.get(status, exceptions.ServiceUnavailable
                          if status >= 500 else exceptions.PermanentError)
