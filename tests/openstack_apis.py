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
"""OpenStack's APIs on a loopback address, for tests of what calls them.

Keystone answers as itself; every other answer is what a test says.
"""

import collections
import http.server
import json
import threading
import typing
import urllib.parse

import fixtures
from keystoneauth1 import fixture as ksa_fixture
from oslo_context import context as oslo_context

#: In place of an answer: the connection is closed, or nothing is sent.
DROP = object()
HANG = object()
TOKEN = 'a-token-of-the-service'
OPTIONS = '''
[{group}]
auth_type = password
auth_url = {url}/identity/v3
username = diffcache
password = secret
project_name = service
user_domain_name = Default
project_domain_name = Default
connect_retry_delay = 0.01
status_code_retry_delay = 0.01
'''
_IMAGE_PROPERTIES = {
    **{name: {'type': ['null', 'string']} for name in (
        'id', 'name', 'status', 'owner', 'visibility', 'disk_format',
        'container_format', 'os_hash_algo', 'os_hash_value')},
    **{name: {'type': ['null', 'integer']} for name in (
        'size', 'virtual_size', 'min_disk')}}
#: What Glance says of its resources, by name.
SCHEMAS = {
    'image': {'name': 'image', 'properties': _IMAGE_PROPERTIES,
              'additionalProperties': {'type': 'string'}},
    'member': {'name': 'member', 'properties': {
        'member_id': {'type': 'string'}, 'image_id': {'type': 'string'}}}}


class Request(typing.NamedTuple):
    """A request that came in."""

    method: str
    path: str
    headers: typing.Any
    body: bytes

    @property
    def query(self) -> dict[str, str]:
        """The parameters of the path."""
        return dict(urllib.parse.parse_qsl(self.path.partition('?')[2]))


NO_LENGTH = -1


class Answer(typing.NamedTuple):
    """An answer; ``document`` is sent as JSON unless it is bytes.

    :param length: of the body, as the header says; its own if None. With
        NO_LENGTH there is no header, and the body ends with the connection
    """

    status: int = 200
    document: typing.Any = None
    headers: dict[str, str] = {}
    length: int | None = None


class Context(fixtures.Fixture):
    """The context of a request, as this thread's."""

    def _setUp(self) -> None:
        self.context = oslo_context.RequestContext(overwrite=False)
        self.context.update_store()
        self.addCleanup(delattr, oslo_context._request_store, 'context')


class Cloud(fixtures.Fixture):
    """Keystone, and paths below ``/compute/v2.1`` and ``/image``."""

    def __init__(self) -> None:
        #: What came in, without what is Keystone's and Glance's schemas.
        self.requests: list[Request] = []
        self.logins = 0
        self._answers: dict[tuple[str, str], collections.deque] = {}
        self._released = threading.Event()

    def _setUp(self) -> None:
        server = http.server.ThreadingHTTPServer(
            ('127.0.0.1', 0), self._handler())
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        self.url = f'http://127.0.0.1:{server.server_address[1]}'
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.addCleanup(self._released.set)

    def options(self, group: str) -> str:
        """Text of a configuration file that reaches this cloud."""
        return OPTIONS.format(group=group, url=self.url)

    def answer(self, method: str, path: str, *answers: typing.Any) -> None:
        """Say what requests get; the last answer is given from then on.

        :param path: without the query, below the address
        :param answers: each an Answer, DROP or HANG, or what returns one
            for a request
        """
        self._answers[method, path] = collections.deque(answers)

    def sent(self, method: str) -> list[str]:
        """Paths of the requests with a method."""
        return [request.path for request in self.requests
                if request.method == method]

    def find(self, request: Request) -> typing.Any:
        """Return what a request gets."""
        path = urllib.parse.urlsplit(request.path).path
        if path.startswith('/identity'):
            return self._identity(request)
        if path.startswith('/image/v2/schemas/'):
            return Answer(document=SCHEMAS[path.rpartition('/')[2]])
        self.requests.append(request)
        waiting = self._answers.get((request.method, path))
        if waiting is None:
            return Answer(404, {'itemNotFound': {
                'code': 404, 'message': 'No such thing.'}})
        found = waiting.popleft() if len(waiting) > 1 else waiting[0]
        return found(request) if callable(found) else found

    def _identity(self, request: Request) -> Answer:
        if request.method == 'GET':
            return Answer(document={'version': ksa_fixture.V3Discovery(
                f'{self.url}/identity/v3')})
        self.logins += 1
        token = ksa_fixture.V3Token()
        for kind, path in (('compute', 'compute/v2.1'), ('image', 'image'),
                           ('block-storage', 'volume/v3')):
            token.add_service(kind).add_standard_endpoints(
                internal=f'{self.url}/{path}')
        return Answer(201, token, {'X-Subject-Token': TOKEN})

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        cloud = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = 'HTTP/1.1'

            def handle_any(self) -> None:
                found = cloud.find(Request(self.command, self.path,
                                           self.headers, self._body()))
                if found is HANG:
                    cloud._released.wait()
                if found in (HANG, DROP):
                    self.close_connection = True
                    return
                self._send(found)

            do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = handle_any

            def _body(self) -> bytes:
                if self.headers.get('Transfer-Encoding') != 'chunked':
                    return self.rfile.read(
                        int(self.headers.get('Content-Length', 0)))
                pieces = []
                while size := int(self.rfile.readline(), 16):
                    pieces.append(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
                return b''.join(pieces)

            def _send(self, answer: Answer) -> None:
                body, kind = answer.document, 'application/octet-stream'
                if not isinstance(body, bytes):
                    body, kind = json.dumps(body).encode(), 'application/json'
                self.send_response(answer.status)
                length = len(body) if answer.length is None else answer.length
                headers = {'Content-Length': str(length)} \
                    if length != NO_LENGTH else {'Connection': 'close'}
                for name, value in {'Content-Type': kind, **headers,
                                    **answer.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)
                if answer.length is not None:
                    self.close_connection = True

            def log_message(self, format: str, *args: typing.Any) -> None:
                pass

        return Handler
