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
"""What is behind the local interface, for tests of it."""

import contextlib
import threading
import uuid

from diffcache_openstack.agent.images.limits import pulses
from diffcache_openstack.agent.local import local_api
from diffcache_openstack.agent.local import local_server
from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common.telemetry import tracing
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned

IMAGE = 'c1b1a3f2-0000-4000-8000-000000000001'
DATA = bytes(range(256)) * 9000


class Reader:

    def __init__(self, data, damaged_at=None):
        self.size = len(data)
        self._data = data
        self._damaged_at = damaged_at

    def read(self, offset, length):
        if self._damaged_at is not None and offset + length > self._damaged_at:
            raise exceptions.IntegrityError('the disk is damaged')
        return self._data[offset:offset + length]


class Rooms:
    """All rooms behind the API: answer as told, note what they are asked."""

    def __init__(self):
        self.asked = []
        self.reader = Reader(DATA)
        self.error = None
        self.let_go = threading.Event()
        self.let_go.set()
        self.ended = threading.Event()
        self.queued = []
        self.pulse = pulses.Pulse()
        self.running, self.notices = 0, True
        self.requests = []

    def _fail_if_told(self):
        if self.error is not None:
            raise self.error

    def report(self):
        self._fail_if_told()
        return {'host': 'h1', 'data_plane': {'sent': 1}}

    def status(self):
        return {'files_used': 5}

    def fallbacks(self):
        return {}

    def describe(self, image_id):
        self._fail_if_told()
        self.requests.append(contexts.current_request_id())
        return {'id': image_id}

    def list(self):
        return [{'id': 'one'}, {'id': 'two'}]

    def deliver_image(self, image_id, output, mode, watch):
        self.asked.append((image_id, output, mode))
        watch.progress(3, 7)
        watch.pulse = self.pulse
        self.running += 1
        try:
            while not self.let_go.wait(0.01):
                if self.notices and watch.gone.is_set():
                    self.ended.set()
                    raise exceptions.Cancelled('gone')
        finally:
            self.running -= 1
        self._fail_if_told()
        with tracing.span('work'):
            pass
        return objects.Request(
            id=str(uuid.uuid4()), image_id=image_id, host='h1',
            way='build', seconds=1.5, started_at=versioned.now())

    @contextlib.contextmanager
    def file(self, image_id, site_only):
        self.asked.append((image_id, site_only))
        self._fail_if_told()
        yield self.reader

    def prefetch(self, image_id):
        self._fail_if_told()
        self.asked.append((image_id, 'prefetched'))

    @contextlib.contextmanager
    def expecting(self, image_id):
        self._fail_if_told()
        self.asked.append((image_id, 'expected'))
        yield
        self.ended.set()

    def give_file(self, image_id, source, length):
        self._fail_if_told()
        self.asked.append((image_id, source.read(length)))

    def drop(self, image_id):
        self.asked.append(image_id)

    def queue(self):
        return self.queued

    def enqueue(self, image_id):
        self.queued.append(image_id)
        return True

    def dequeue(self, image_id):
        return image_id in self.queued

    def fallback(self, service, reason, count):
        self.asked.append((service, reason, count))

    def open(self, image_id, rate):
        self._fail_if_told()
        if rate is not None:
            self.asked.append(('rate', rate))
        return {'path': f'/mount/{image_id}', 'reason': None}

    def describe_served(self):
        return [{'content_id': 'c'}]

    def release(self, content_id):
        self._fail_if_told()
        self.asked.append(('released', content_id))

    def add_server(self, server, wish):
        self.asked.append(('server', server, wish))

    def remove_server(self, server_id):
        self.asked.append(('left', server_id))

    def save_before(self, server_id, project_id, trigger, image_id, watch):
        self.requests.append(contexts.current_request_id())
        self.asked.append((server_id, project_id, trigger, image_id))
        return {'version': 'v', 'required': watch(1, 2), 'error': None}

    def open_version(self, version_id, project_id, image_id, rate):
        self._fail_if_told()
        self.asked.append((version_id, project_id, image_id, rate))
        return {'path': f'/mount/{version_id}', 'reason': None}

    def deliver(self, version_id, project_id, output, watch):
        self._fail_if_told()
        watch.progress(1, 2)
        self.asked.append((version_id, project_id, output))

    def write(self, new, watch):
        self._fail_if_told()
        watch.progress(1, 2)
        self.asked.append(new)
        return {'pause_ms': 1.5}

    def open_reader(self, content_id):
        self._fail_if_told()
        return self.reader


def new_server(path, group, rooms):
    """A server whose rooms are all one."""
    return local_server.LocalServer(path, local_server.Access('socket', group),
                                    local_api.LocalApi(
                                  *[rooms] * 4,
                                  local_api.Versions(*[rooms] * 4),
                                  rooms))
