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
"""Requests and answers of the local socket: bodies, ranges and errors."""

import collections.abc
import errno
import json
import logging
import queue
import re
import select
import socket
import typing

from werkzeug import wrappers

from diffcache_openstack.agent.images import contents
from diffcache_openstack.agent.local import local_server
from diffcache_openstack.agent_client import local_client
from diffcache_openstack.blocks.codecs import codec_base
from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack import objects

LOG = logging.getLogger(__name__)

# Characters of the names of services and of reasons.
LONGEST_NAME = 100
# Seconds between two lines of progress.
PROGRESS_SECONDS = 1.0
JSON_LINES = 'application/x-ndjson'
DIGITS = re.compile(r'[0-9]{1,19}')
PIECE = 1 << 20
_MOST_JSON = 64 << 10
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

Lines = collections.abc.Iterator[bytes]


class RangeError(exceptions.InvalidInput):
    """The range that was requested is none of the file."""


class LengthError(exceptions.InvalidInput):
    """The end of a request's body is unknown."""


def parse_range(text: str | None, size: int) -> tuple[int, int] | None:
    """Return the first byte and the one after the last; None for all.

    :raises RangeError: the range has no byte of the file
    """
    match = _RANGE.fullmatch((text or '').strip())
    if not text or (match and match['first'] == match['last'] == ''):
        return None
    if match is None:
        raise RangeError(f'Range {text!r} cannot be used; request one range'
                         f' of bytes.')
    if match['first'] == '':
        start, end = max(0, size - int(match['last'])), size
    else:
        start = int(match['first'])
        end = min(size, int(match['last']) + 1) if match['last'] else size
    if start >= end:
        raise RangeError(f'Range {text!r} has no byte of a file of {size}'
                         f' bytes.')
    return start, end


def context_of(request: wrappers.Request) -> contexts.RequestContext:
    """Return the context of what a client requests."""
    return contexts.RequestContext.for_request(
        request.headers.get(local_client.REQUEST_ID_HEADER))


def check_length(request: wrappers.Request) -> None:
    """Refuse a body whose end is unknown.

    :raises InvalidInput: Content-Length is no number of bytes
    """
    text = request.environ.get('CONTENT_LENGTH')
    if text and not DIGITS.fullmatch(text.strip()):
        raise LengthError(f'Content-Length {text!r} is no number of bytes.')


def is_name(value: typing.Any) -> typing.TypeGuard[str]:
    """Return whether a value can be a service's or a reason's name."""
    return (isinstance(value, str) and 0 < len(value) <= LONGEST_NAME
            and value.isprintable())


def read_strings(request: wrappers.Request, *names: str) -> dict[str, str]:
    """Return a body that has some texts.

    :raises InvalidInput: one is missing
    """
    body = read_json(request)
    if not all(isinstance(body.get(name), str) for name in names):
        raise exceptions.InvalidInput(
            f'The body needs {" and ".join(names)}, as texts.')
    return body


def read_json(request: wrappers.Request) -> dict:
    """Return a body that is a JSON object.

    :raises InvalidInput: it is none, or too long
    """
    length = int(request.headers.get('Content-Length') or 0)
    if length > _MOST_JSON:
        raise exceptions.InvalidInput(
            f'The body has {length} bytes; at most {_MOST_JSON} are read'
            f' here.')
    data = request.environ['wsgi.input'].read(length)
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise exceptions.InvalidInput(
            f'The body is no JSON: {error}.') from error
    if not isinstance(found, dict):
        raise exceptions.InvalidInput('The body is no JSON object.')
    return found


def answer(document: typing.Any, status: int = 200) -> wrappers.Response:
    """Return a document as JSON."""
    return wrappers.Response(json.dumps(document), status=status,
                             mimetype='application/json')


def refusal(request: wrappers.Request, error: exceptions.DiffCacheError
            ) -> wrappers.Response:
    """Return the answer to a request that failed."""
    unread = getattr(request.environ['wsgi.input'], 'remaining', 0)
    if unread > _MOST_JSON or isinstance(error, LengthError):
        # The rest of the body must not be taken for the next request.
        request.environ[local_server.REQUEST].close_connection = True
    status = (416 if isinstance(error, RangeError) else
              next(code for kind, code in _STATUS if isinstance(error, kind)))
    return answer(error_of(error), status)


def pieces(reader: codec_base.Reader, data: bytes, start: int, end: int
           ) -> Lines:
    """Yield a file's bytes, the first piece of which was read already."""
    while data:
        yield data
        start += len(data)
        try:
            data = reader.read(start, min(PIECE, end - start))
        except (exceptions.DiffCacheError, OSError) as error:
            LOG.error('Breaking off a file at byte %d of %d: %s', start, end,
                      error)
            raise ConnectionAbortedError(errno.ECONNABORTED,
                                         str(error)) from error


def until_closed(request: wrappers.Request) -> Lines:
    """Wait until the client closes the connection."""
    exchange = request.environ[local_server.REQUEST]
    exchange.close_connection = True
    # Something has to be sent for the head to be sent.
    yield b'{}\n'
    _has_closed(exchange.conn.socket, None)


def lines(watch: contents.Watch, ended: queue.SimpleQueue,
          connection: socket.socket) -> Lines:
    """Yield progress while there is some, and the result.

    A client that sees none for a while gives up, so none is made up.
    """
    try:
        while True:
            try:
                event = ended.get(timeout=PROGRESS_SECONDS)
            except queue.Empty:
                if watch.shows_life():
                    yield line({'progress': {'done': watch.done,
                                             'total': watch.total}})
                elif _has_closed(connection, 0):
                    return
                continue
            yield line(event)
            return
    finally:
        # Also where the client has closed the connection.
        watch.gone.set()


def _has_closed(connection: socket.socket, timeout: int | None) -> bool:
    """Wait until a client closes its connection; return whether it has.

    :param timeout: in milliseconds; None for no limit
    """
    waiting = select.poll()
    waiting.register(connection, select.POLLRDHUP | select.POLLHUP)
    return bool(waiting.poll(timeout))


def line(event: dict) -> bytes:
    """Return one line of a stream."""
    return json.dumps(event).encode() + b'\n'


def plain(request: objects.Request) -> dict:
    """Return a request's values as JSON knows them."""
    return {name: request.fields[name].to_primitive(
        request, name, getattr(request, name))
        for name in request.fields if request.obj_attr_is_set(name)}


def internal(error: Exception) -> exceptions.ServiceUnavailable:
    """Return the error that a client gets for a fault of this agent."""
    return exceptions.ServiceUnavailable(
        f'The agent failed with {type(error).__name__}; its log has the'
        f' details.')


def error_of(error: exceptions.DiffCacheError) -> dict:
    """Return an error as the client parses it."""
    kind = next(cls for cls in type(error).__mro__
                if getattr(exceptions, cls.__name__, None) is cls)
    return {'error': {
        'type': kind.__name__, 'message': str(error),
        'retryable': isinstance(error, exceptions.RetryableError)}}
