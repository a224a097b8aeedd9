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
"""An agent's client that does what a test says."""

import pathlib

DIGEST = 'ab' * 64
# A disk that is nothing but data: no format's magic, some of it zeros.
CONTENT = b'\x01' * 65536 + b'\0' * 65536


class Client:
    """Stands for local_client.LocalClient, with one image.

    :ivar error: what each call raises, if set
    :ivar new_error: what a question about a new image raises, if set
    :ivar content_error: what only a delivery raises, if set
    :ivar content_bytes: what a delivery writes; None for no file
    :ivar lent: images, and the content of the file that was lent
    :ivar request: how a delivery is said to have been served
    """

    def __init__(self, image_id):
        self.asked = []
        self.lent = []
        self.servers = {}
        self.error = None
        self.new_error = None
        self.content_error = None
        self.content_bytes = CONTENT
        self.known = {'id': image_id, 'status': 'active',
                      'os_hash_algo': 'sha512', 'os_hash_value': DIGEST,
                      'data_size': 65536}
        self.version_answer = {'path': None, 'reason': 'no_manifest'}
        self.request = {'way': 'build', 'detail': 'base and patch',
                        'seconds': 0.5, 'wan_bytes': 77}

    def image(self, image_id):
        self._ask('image', image_id)
        return self.known

    def new_image(self, image_id, size):
        self.asked.append(('new_image', image_id, size))
        if self.new_error is not None:
            raise self.new_error
        return self.known

    def content(self, image_id, output, mode=None, stall_timeout=None,
                own_bytes=None):
        self._ask('content', image_id, output, mode, stall_timeout)
        self.own_bytes = own_bytes
        if self.content_error is not None:
            raise self.content_error
        if self.content_bytes is not None:
            pathlib.Path(output).write_bytes(self.content_bytes)
        return self.request

    def open_version(self, version_id, wanted, rate=None):
        self._ask('open_version', version_id, wanted, rate)
        return self.version_answer

    def version_content(self, version_id, wanted, stall_timeout=None):
        self._ask('version_content', version_id, wanted['project_id'])
        if self.content_error is not None:
            raise self.content_error
        pathlib.Path(wanted['output']).write_bytes(self.content_bytes)

    def lend(self, image_id, path):
        self.lent.append((image_id, pathlib.Path(path).read_bytes()))
        if self.error is not None:
            raise self.error
        return True

    def add_lazy_server(self, server_id, server):
        self.servers[server_id] = server

    def fallback(self, service, reason, count):
        self._ask('fallback', service, reason, count)

    def _ask(self, *question):
        self.asked.append(question)
        if self.error is not None:
            raise self.error
