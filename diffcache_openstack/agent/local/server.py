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
"""The agent's local socket: HTTP for the other services of its host.

Nova's driver and Glance's cache driver ask here. It needs neither conductor
nor broker. Who may connect is a matter of the socket's mode and group.
"""

import contextlib
import grp
import http.server
import json
import logging
import os
import pathlib
import queue
import re
import socketserver
import stat
import threading
import typing
import urllib.parse

from diffcache_openstack.agent.images import contents
from diffcache_openstack.common import exceptions
from diffcache_openstack import objects

LOG = logging.getLogger(__name__)

# Signs of life while an image is made, seconds.
BEAT_SECONDS = 1.0
# A client that takes nothing, or sends nothing, for so many seconds is gone.
CLIENT_TIMEOUT = 120.0
SOCKET_MODE = 0o660
# How soon the server notices that it is to stop.
_POLL_SECONDS = 0.1
# The kernel's limit on the name of a unix socket, with its terminator.
_LONGEST_PATH = 107
_MOST_JSON = 64 << 10
_PIECE = 1 << 20
_DIGITS = re.compile(r'[0-9]{1,19}')
_RANGE = re.compile(r'bytes=(?P<first>\d{0,19})-(?P<last>\d{0,19})')
_STATUS: list[tuple[type[exceptions.DiffCacheError], int]] = [
    (exceptions.NotFound, 404),
    (exceptions.InvalidInput, 400),
    (exceptions.Conflict, 409),
    (exceptions.PeerRefused, 403),
    (exceptions.NoSpace, 507),
    (exceptions.RetryableError, 503),
    (exceptions.DiffCacheError, 500),
]


class Reader(typing.Protocol):
    """A file that can be read at any place."""

    size: int

    def read(self, offset: int, length: int) -> bytes:
        """So many bytes.

        :raises DiffCacheError: they cannot be had, or are damaged
        """


class Worker(typing.Protocol):
    """What answers; see :mod:`diffcache_openstack.agent.local.worker`."""

    def status(self) -> dict:
        """What is going on."""

    def image(self, image_id: str) -> dict:
        """What is known of an image, and what it costs here."""

    def images(self) -> list[dict]:
        """The same of all."""

    def content(self, image_id: str, output: str, mode: str | None,
                watch: contents.Watch) -> objects.Request:
        """Write an image's raw content to a path."""

    def file(self, image_id: str, site_only: bool
             ) -> contextlib.AbstractContextManager[Reader]:
        """The file that Glance has."""

    def expecting(self, image_id: str
                  ) -> contextlib.AbstractContextManager[None]:
        """An image's file is on its way, from elsewhere."""

    def give_file(self, image_id: str, source: typing.BinaryIO,
                  length: int) -> None:
        """Take an image's file."""

    def drop(self, image_id: str) -> None:
        """Forget what clients have of an image."""

    def queue(self) -> list[str]:
        """Images to be cached."""

    def enqueue(self, image_id: str) -> bool:
        """Queue an image; whether it was not queued or cached before."""

    def dequeue(self, image_id: str) -> bool:
        """Take an image out of the queue; whether it was in it."""

    def fallback(self, service: str, reason: str, count: int) -> None:
        """Count what a service did without the agent."""

    def save_server(self, server_id: str, wish: dict[str, typing.Any],
                    watch: contents.Watch) -> dict[str, typing.Any]:
        """Save a server that is about to go, if its policy says so."""


class RangeError(exceptions.InvalidInput):
    """The range asked for is none of the file."""


class _LengthError(exceptions.InvalidInput):
    """Nobody knows where the body of a request ends."""


def parse_range(text: str | None, size: int) -> tuple[int, int] | None:
    """First byte and the one after the last; None for the whole file.

    :raises RangeError: no byte of the file is asked for
    """
    match = _RANGE.fullmatch((text or '').strip())
    if not text or (match and match['first'] == match['last'] == ''):
        return None
    if match is None:
        raise RangeError(f'Range {text!r} cannot be used; ask for one range'
                         f' of bytes.')
    if match['first'] == '':
        start, end = max(0, size - int(match['last'])), size
    else:
        start = int(match['first'])
        end = min(size, int(match['last']) + 1) if match['last'] else size
    if start >= end:
        raise RangeError(f'Range {text!r} has no byte of the {size} there'
                         f' are.')
    return start, end


class LocalApi:
    """The server.

    :param path: of the socket
    :param group: name of the group that may connect; None for the agent's
    :param worker: answers
    """

    def __init__(self, path: pathlib.Path, group: str | None,
                 worker: Worker) -> None:
        self._path = path
        self._group = group
        self._server = _Server(worker)

    def start(self) -> None:
        """Begin to answer.

        :raises InvalidInput: the socket cannot be made; the message names
            the option
        """
        if len(os.fsencode(self._path)) > _LONGEST_PATH:
            raise exceptions.InvalidInput(
                f'[agent] socket {self._path} is longer than the'
                f' {_LONGEST_PATH} bytes a socket\'s name may have; name a'
                f' shorter path.')
        try:
            self._server.listen(self._path, _gid_of(self._group))
        except OSError as error:
            self._server.server_close()
            raise exceptions.InvalidInput(
                f'[agent] socket {self._path} cannot be made:'
                f' {error.strerror}; name a path in a directory that the'
                f' agent may write to.') from error
        threading.Thread(target=self._server.serve_forever, daemon=True,
                         args=(_POLL_SECONDS,), name='local-api').start()

    def stop(self) -> None:
        """Take no more requests."""
        self._server.shutdown()
        self._server.server_close()
        self._path.unlink(missing_ok=True)


def _gid_of(group: str | None) -> int:
    """The number of a group; -1, which changes nothing, for none.

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


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, worker: Worker) -> None:
        super().__init__('', _Handler, bind_and_activate=False)
        self.worker = worker

    def listen(self, path: pathlib.Path, gid: int) -> None:
        """Listen under a name that shows up with its mode and group."""
        temporary = path.with_name(f'.{path.name[:20]}.{os.getpid()}')
        # What lies there is a socket that nobody listens at any more: the
        # state directory's lock keeps other agents out.
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISSOCK(path.lstat().st_mode):
                raise FileExistsError(0, 'a file of that name exists')
        temporary.unlink(missing_ok=True)
        self.socket.bind(str(temporary))
        try:
            os.chown(temporary, -1, gid)
            os.chmod(temporary, SOCKET_MODE)
            self.server_activate()
            os.replace(temporary, path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise

    def handle_error(self, request: typing.Any,
                     client_address: typing.Any) -> None:
        """A connection that ends early is nobody's fault here."""
        LOG.debug('A local connection ended', exc_info=True)


class _Handler(http.server.BaseHTTPRequestHandler):

    protocol_version = 'HTTP/1.1'
    timeout = CLIENT_TIMEOUT
    server: _Server

    def do_GET(self) -> None:
        """Answer, by path."""
        self._answer(_GET)

    def do_POST(self) -> None:
        """Answer, by path."""
        self._answer(_POST)

    def do_PUT(self) -> None:
        """Answer, by path."""
        self._answer(_PUT)

    def do_DELETE(self) -> None:
        """Answer, by path."""
        self._answer(_DELETE)

    def address_string(self) -> str:
        """For the log: unix sockets have no address."""
        return 'local'

    def log_message(self, format: str, *args: typing.Any) -> None:
        """One line for each request."""
        LOG.debug(format, *args)

    # -- routing

    def _answer(self, routes):
        self._head_sent = False
        self._unread = 0
        try:
            self._unread = _length(self.headers.get('Content-Length'))
            self._route(routes)
        except exceptions.DiffCacheError as error:
            self._refuse(error)
        except (ConnectionError, TimeoutError):
            # The client has gone; there is nobody to tell.
            self.close_connection = True
        except Exception as error:
            LOG.exception('%s %s', self.command, self.path)
            self._refuse(exceptions.ServiceUnavailable(
                f'The agent failed with {type(error).__name__}; its log has'
                f' the details.'))
        if self._unread:
            # What is left of a body is not the next request.
            self.close_connection = True

    def _route(self, routes):
        url = urllib.parse.urlsplit(self.path)
        for pattern, answer in routes:
            match = pattern.fullmatch(url.path)
            if match is not None:
                self._query = urllib.parse.parse_qs(url.query)
                answer(self, *map(urllib.parse.unquote, match.groups()))
                return
        raise exceptions.NotFound(
            f'There is nothing at {self.command} {url.path}; the service that'
            f' asks may be newer than this agent.')

    def _refuse(self, error):
        if self._head_sent or self._unread or isinstance(error, _LengthError):
            self.close_connection = True
        if self._head_sent:
            return
        status = (416 if isinstance(error, RangeError) else
                  next(code for kind, code in _STATUS
                       if isinstance(error, kind)))
        with contextlib.suppress(OSError):
            self._send_json(_error(error), status)

    def _read_json(self) -> dict:
        if self._unread > _MOST_JSON:
            raise exceptions.InvalidInput(
                f'The body has {self._unread} bytes; {_MOST_JSON} are enough'
                f' for what is asked here.')
        data, self._unread = self.rfile.read(self._unread), 0
        try:
            found = json.loads(data)
        except ValueError as error:
            raise exceptions.InvalidInput(
                f'The body is no JSON: {error}.') from error
        if not isinstance(found, dict):
            raise exceptions.InvalidInput('The body is no JSON object.')
        return found

    def _send_json(self, document, status=200):
        data = json.dumps(document).encode()
        self._send_head(status, {'Content-Type': 'application/json',
                                 'Content-Length': str(len(data))})
        self.wfile.write(data)

    def _send_head(self, status, headers):
        self._head_sent = True
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header('Connection', 'close')
        self.end_headers()

    def _send_nothing(self):
        self._send_head(204, {})

    # -- answers

    def _status(self):
        self._send_json(self.server.worker.status())

    def _image(self, image_id):
        self._send_json(self.server.worker.image(image_id))

    def _images(self):
        self._send_json({'images': self.server.worker.images()})

    def _drop(self, image_id):
        self.server.worker.drop(image_id)
        self._send_nothing()

    def _queue(self):
        self._send_json({'images': self.server.worker.queue()})

    def _enqueue(self, image_id):
        self._send_json({'queued': self.server.worker.enqueue(image_id)})

    def _dequeue(self, image_id):
        self._send_json({'queued': self.server.worker.dequeue(image_id)})

    def _fallback(self):
        body = self._read_json()
        service, reason = body.get('service'), body.get('reason')
        count = body.get('count', 1)
        if not (isinstance(service, str) and isinstance(reason, str)
                and isinstance(count, int) and count > 0):
            raise exceptions.InvalidInput(
                'A fallback has a service, a reason and a count of at least'
                ' one.')
        LOG.warning('%s did without the agent %d times (%s), image %s',
                    service, count, reason, body.get('image_id'))
        self.server.worker.fallback(service, reason, count)
        self._send_nothing()

    def _file(self, image_id):
        site_only = self._query.get('site_only', ['0'])[-1] == '1'
        with self.server.worker.file(image_id, site_only) as reader:
            wanted = parse_range(self.headers.get('Range'), reader.size)
            start, end = wanted or (0, reader.size)
            # Before the head: what cannot be read is an error yet.
            data = reader.read(start, min(_PIECE, end - start))
            headers = {'Content-Type': 'application/octet-stream',
                       'Content-Length': str(end - start),
                       'Accept-Ranges': 'bytes'}
            if wanted:
                headers['Content-Range'] = (
                    f'bytes {start}-{end - 1}/{reader.size}')
            self._send_head(206 if wanted else 200, headers)
            while data:
                self.wfile.write(data)
                start += len(data)
                data = reader.read(start, min(_PIECE, end - start))

    def _expect(self, image_id):
        with self.server.worker.expecting(image_id):
            self._send_head(200, {'Content-Type': 'application/x-ndjson',
                                  'Transfer-Encoding': 'chunked'})
            self._await_end()

    def _await_end(self):
        """Until the client closes the connection, or dies."""
        self.close_connection = True
        self.connection.settimeout(None)
        while self.rfile.read1(1):
            pass

    def _give_file(self, image_id):
        if self.headers.get('Content-Length') is None:
            raise exceptions.InvalidInput(
                'The length of the file is missing; send Content-Length.')
        length, self.close_connection = self._unread, True
        self.server.worker.give_file(
            image_id, typing.cast(typing.BinaryIO, self.rfile), length)
        self._unread = 0
        self._send_nothing()

    def _content(self, image_id):
        body = self._read_json()
        output, mode = body.get('output'), body.get('mode')
        if not isinstance(output, str) or not isinstance(
                mode, (str, type(None))):
            raise exceptions.InvalidInput(
                'The content of an image needs an output, a path, and may'
                ' have a mode.')
        self._stream(f'content-{image_id[:8]}', lambda watch: {
            'request': _plain(self.server.worker.content(
                image_id, output, mode, watch))})

    def _save_server(self, server_id):
        wish = self._read_json()
        self._stream(f'save-{server_id[:8]}', lambda watch: {
            'saved': self.server.worker.save_server(server_id, wish, watch)})

    def _stream(self, name, work):
        """Do long work in a thread, and tell how far it is meanwhile."""
        watch, ended = contents.Watch(), queue.SimpleQueue()
        threading.Thread(target=self._work, args=(name, work, watch, ended),
                         daemon=True, name=name).start()
        self._send_head(200, {'Content-Type': 'application/x-ndjson',
                              'Transfer-Encoding': 'chunked'})
        try:
            self._report(watch, ended)
        except OSError:
            watch.gone.set()
            raise

    @staticmethod
    def _work(name, work, watch, ended):
        try:
            ended.put(work(watch))
        except exceptions.DiffCacheError as error:
            ended.put(_error(error))
        except Exception as error:
            LOG.exception('%s', name)
            ended.put(_error(exceptions.ServiceUnavailable(
                f'The agent failed with {type(error).__name__}; its log has'
                f' the details.')))

    def _report(self, watch, ended):
        while True:
            try:
                event = ended.get(timeout=BEAT_SECONDS)
            except queue.Empty:
                self._send_line({'progress': {'done': watch.done,
                                              'total': watch.total}})
                continue
            self._send_line(event)
            self.wfile.write(b'0\r\n\r\n')
            return

    def _send_line(self, event):
        line = json.dumps(event).encode() + b'\n'
        self.wfile.write(b'%x\r\n%s\r\n' % (len(line), line))


def _length(text: str | None) -> int:
    """Bytes of a body, as its header tells."""
    if text and not _DIGITS.fullmatch(text.strip()):
        raise _LengthError(f'Content-Length {text!r} is no number of bytes.')
    return int(text or 0)


def _plain(request: objects.Request) -> dict:
    """A request's values, as JSON knows them."""
    return {name: request.fields[name].to_primitive(
        request, name, getattr(request, name))
        for name in request.fields if request.obj_attr_is_set(name)}


def _error(error: exceptions.DiffCacheError) -> dict:
    kind = next(cls for cls in type(error).__mro__
                if getattr(exceptions, cls.__name__, None) is cls)
    return {'error': {
        'type': kind.__name__, 'message': str(error),
        'retryable': isinstance(error, exceptions.RetryableError)}}


_ID = '([^/]+)'
_GET = [(re.compile('/v1/status'), _Handler._status),
        (re.compile('/v1/images'), _Handler._images),
        (re.compile(f'/v1/images/{_ID}'), _Handler._image),
        (re.compile(f'/v1/images/{_ID}/file'), _Handler._file),
        (re.compile('/v1/queue'), _Handler._queue)]
_POST = [(re.compile(f'/v1/servers/{_ID}/versions'), _Handler._save_server),
         (re.compile(f'/v1/images/{_ID}/content'), _Handler._content),
         (re.compile(f'/v1/images/{_ID}/expected'), _Handler._expect),
         (re.compile('/v1/fallbacks'), _Handler._fallback)]
_PUT = [(re.compile(f'/v1/images/{_ID}/file'), _Handler._give_file),
        (re.compile(f'/v1/queue/{_ID}'), _Handler._enqueue)]
_DELETE = [(re.compile(f'/v1/images/{_ID}'), _Handler._drop),
           (re.compile(f'/v1/queue/{_ID}'), _Handler._dequeue)]
