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
"""An HTTP server of one image, which may fail in several ways."""

import contextlib
import http.server
import re
import threading


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves ranges of the server's ``content``; ``mode`` makes it fail."""

    protocol_version = 'HTTP/1.1'

    def do_GET(self):
        content, mode = self.server.content, self.server.mode
        self.server.requests.append(self.headers['Range'])
        first, last = map(int, re.fullmatch(
            r'bytes=(\d+)-(\d+)', self.headers['Range']).groups())
        body = content[first:last + 1]
        status = 206
        if isinstance(mode, int):
            status, body = mode, content if mode == 200 else b''
        elif mode == 'wrong':
            body = bytes(byte ^ 1 for byte in body)
        elif mode == 'short':
            body = body[:-1]
        elif mode == 'other range':
            first += 1
        self.send_response(status)
        if status == 206:
            self.send_header('Content-Range',
                             f'bytes {first}-{last}/{len(content)}')
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        if mode == 'cut':
            body, self.close_connection = body[:1000], True
        elif mode == 'slow':
            self.wfile.write(body[:1000])
            self.server.is_fast.wait()
            body = body[1000:]
        # The client leaves when it did not ask for what comes.
        with contextlib.suppress(ConnectionError):
            self.wfile.write(body)

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    """Serves content until ``stop`` is closed.

    :ivar mode: how answers fail, or None; ``slow`` sends the rest of each once
        ``is_fast`` is set
    :ivar requests: the header Range of each
    :ivar headers: of answers, besides those that they need
    """

    def __init__(self, content, port):
        super().__init__(('127.0.0.1', port), Handler)
        self.content, self.mode, self.requests = content, None, []
        self.headers, self.is_fast = {}, threading.Event()
        self.url = f'http://127.0.0.1:{self.server_port}/image'

    def handle_error(self, request, client_address):
        """Clients may leave at any time."""


def start(test, content, port=0):
    """Serve content until a test has ended, or ``stop`` is closed.

    :returns: the server
    """
    server = Server(content, port)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    server.stop = contextlib.ExitStack()
    server.stop.callback(server.server_close)
    server.stop.callback(thread.join)
    server.stop.callback(server.shutdown)
    server.stop.callback(server.is_fast.set)
    test.addCleanup(server.stop.close)
    return server
