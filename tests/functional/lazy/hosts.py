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
"""A host of a site, for tests without agents and conductors."""

import contextlib
import os
import pathlib
import signal

from diffcache_openstack.agent.lazy import diffcached
from diffcache_openstack.sites import views


class Host:
    """A host of the site: its data plane, and its diffcached."""

    def __init__(self, test, name):
        self.test = test
        self.name = name
        self.folder = test.folder / f'{name}-lazy'
        self.plane = test.plane(name)
        self.process = test.start_service(self.folder)
        self.daemon = diffcached.Diffcached(f'{self.folder}/socket')

    @property
    def url(self):
        return self.plane.url

    def serve(self, sources, homes, own=None, **more):
        """Serve the image; homes are names and URLs of hosts."""
        test = self.test
        status = self.daemon.add(test.image, {
            'manifest': str(test.manifest(test.image)),
            'sources': [{'peer': url, 'wan': wan} for url, wan in sources],
            'homes': {'own': own or self.name, 'hosts': [
                {'name': name, 'url': url} for name, url in homes]},
            'wait': 60, 'prefetch': False, **more})
        self.plane.attach(views.Key(views.IMAGES, test.image),
                          pathlib.Path(status['data_path']).parent)
        self.path = status['path']

    def status(self):
        return self.test.answered(self.daemon)

    def read(self, offset=0, length=None):
        # The kernel reads nothing ahead.
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECT)
        try:
            size = os.fstat(descriptor).st_size
            end = size if length is None else min(size, offset + length)
            found = b''
            while offset + len(found) < end:
                at = offset + len(found)
                found += os.pread(descriptor, min(65536, end - at), at)
            return found
        finally:
            os.close(descriptor)

    def kill(self):
        """End the host as a power cut does: nothing of it answers."""
        status = self.status()
        self.process.kill()
        for each in (status['pid'], status['worker_pid']):
            # A worker ends by itself when its keeper has.
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        self.plane.close()
