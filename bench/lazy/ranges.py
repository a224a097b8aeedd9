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
"""Serve a folder over HTTP by ranges: ``ranges.py FOLDER ADDRESS PORT``."""

import http.server
import os
import sys
import time

# The round trip before each answer, since not every kernel can delay packets.
RTT_SECONDS = 0.02


class Ranges(http.server.SimpleHTTPRequestHandler):
    """Serves files by ranges."""

    protocol_version = 'HTTP/1.1'
    disable_nagle_algorithm = True

    def log_message(self, format, *args):
        """Log nothing."""

    def do_HEAD(self):
        """Answer without a body."""
        self._answer(body=False)

    def do_GET(self):
        """Answer with a file, or a range of it."""
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        time.sleep(RTT_SECONDS)
        with open(self.translate_path(self.path), 'rb') as file:
            size = os.fstat(file.fileno()).st_size
            first, last = 0, size - 1
            wanted = self.headers.get('Range')
            if wanted:
                start, _, end = wanted.removeprefix('bytes=').partition('-')
                first, last = int(start), min(int(end or last), last)
            self.send_response(206 if wanted else 200)
            self.send_header('Accept-Ranges', 'bytes')
            self.send_header('Content-Length', str(last - first + 1))
            if wanted:
                self.send_header('Content-Range',
                                 f'bytes {first}-{last}/{size}')
            self.end_headers()
            while body and first <= last:
                first += os.sendfile(self.wfile.fileno(), file.fileno(),
                                     first, last - first + 1)


if __name__ == '__main__':
    os.chdir(sys.argv[1])
    http.server.ThreadingHTTPServer(
        (sys.argv[2], int(sys.argv[3])), Ranges).serve_forever()
