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
"""A host with a diffcached that serves nothing, for tests."""

import contextlib

from diffcache_openstack.agent.images import image_costs
from diffcache_openstack.agent.lazy import lazy_hydrations
from diffcache_openstack.agent.lazy import lazy_images
from diffcache_openstack.agent.lazy import lazy_servers
from diffcache_openstack.agent.lazy import version_reads
from diffcache_openstack.common import exceptions
from diffcache_openstack.conf import opts
from diffcache_openstack import objects
from tests import base
from tests.unit.agent import fakes
from tests.unit import arriving

CONTENT = b'content of an image'
KEY = fakes.key_of(CONTENT)
SIZE = fakes.SIZE
VERSION_CONTENT = 'e' * 64


def listed(source):
    """A source as diffcached lists it."""
    counts = dict.fromkeys(('patch_bytes', 'requests', 'bytes', 'failures'),
                           0)
    if 'base' in source:
        return {'url': 'base, patch', **counts, **source}
    if 'socket' in source:
        return {'url': source['name'], **counts}
    return {'url': source['peer'], **counts}


class FakeDaemon:
    """diffcached, of which a test has the state."""

    def __init__(self, folder):
        self.folder = folder
        self.served = {}
        self.busy = set()
        self.down = False
        self.changes = []

    def images(self):
        self._check()
        return list(self.served.values())

    def add(self, content_id, wanted):
        self._check()
        if content_id in self.served:
            return self.served[content_id]
        self.served[content_id] = {
            **arriving.status(content_id), 'path': f'/mount/{content_id}',
            'data_path': str(self.folder / content_id), 'size': SIZE,
            'complete': False, 'present': 4, 'chunk': 256 << 10,
            'wanted': wanted,
            'sources': [listed(each) for each in wanted['sources']],
            'homes': [{**each, 'own': False}
                      for each in wanted.get('homes', {'hosts': []})['hosts']]}
        return self.served[content_id]

    def image(self, content_id):
        self._check()
        if content_id not in self.served:
            raise exceptions.NotFound(content_id)
        return self.served[content_id]

    def change(self, content_id, changed):
        self.changes.append((content_id, changed))

    def remove(self, content_id):
        self._check()
        if content_id in self.busy:
            raise exceptions.Conflict('open')
        del self.served[content_id]

    def complete(self, content_id, content):
        (self.folder / content_id).write_bytes(content)
        self.served[content_id]['complete'] = True

    def _check(self):
        if self.down:
            raise exceptions.ServiceUnavailable('down')


class FakeVersions:
    """Versions in a store, of which one is served at a time."""

    def __init__(self, folder):
        self.folder = folder
        self.served = {}
        self.renewed = []
        self.closed = []
        self.has_manifest = True
        self.base_id = None

    def disk_of(self, version_id, project_id):
        return objects.VersionDisk(
            device='vda', version='322bde76-949e-4c77-a812-310ab1466fc5',
            size=SIZE, base_id=self.base_id)

    def prepare(self, version):
        if not self.has_manifest:
            return None
        self.served[VERSION_CONTENT] = version
        return version_reads.Prepared(
            VERSION_CONTENT, self.folder / 'manifest',
            [{'name': 'version', 'socket': '/s', 'path': '/p'}])

    def find(self, content_id):
        return self.served.get(content_id)

    def content_of(self, image_id):
        return next((content for content, version in self.served.items()
                     if image_id in version.image_ids), None)

    def content_of_version(self, version_id, project_id):
        return next((content for content, version in self.served.items()
                     if (version.id, version.project_id)
                     == (version_id, project_id)), None)

    def forget(self, content_id):
        self.served.pop(content_id, None)

    def content_ids(self):
        return list(self.served)

    def renew(self, content_id):
        self.renewed.append(content_id)

    def close(self, content_id):
        self.closed.append(content_id)


class LazyImagesCase(base.TestCase):
    """An image at a repository, and two hosts."""

    boot_sets = None

    def setUp(self):
        super().setUp()
        network = fakes.Network()
        self.repository, self.host, self.peer = (
            fakes.Host(self.directory, network, name, capacity)
            for name, capacity in (('repo', None), ('h1', 3 * SIZE),
                                   ('h2', 3 * SIZE)))
        self.repository.put(CONTENT)
        self.see()
        self.expected = []
        self.host.transfers.expecting = self.expecting
        self.daemon = FakeDaemon(self.directory)
        self.versions = FakeVersions(self.directory)
        self.lazy = self.new_lazy()

    def see(self):
        """Have the host see the site as it is."""
        self.host.view = fakes.site_view(
            [self.repository, self.host, self.peer], {'image': CONTENT}, [])

    @contextlib.contextmanager
    def expecting(self, key):
        self.expected.append(key)
        yield
        self.expected.remove(key)

    def new_lazy(self, **changes):
        conf = opts.new_config()
        for name, value in {'socket': '/none', **changes}.items():
            conf.set_override(name, value, 'lazy')
        host = self.host
        users = lazy_servers.Servers(self.directory / 'servers.json')
        self.hydrations = lazy_hydrations.Hydrations(
            self.daemon, users, self.directory / 'hydrations.json')
        made = lazy_images.LazyImages(
            conf.lazy, host.state, lazy_images.Supply(
                host.builder, host.transfers,
                image_costs.ImageCosts(host.sources, host.state, host.flights),
                host.new_throttle),
            lazy_images.Users(users, hydrations=self.hydrations,
                              boot_sets=self.boot_sets), self.versions)
        if made._daemon is not None:
            made._daemon = made._versions._daemon = self.daemon
            if made._sets is not None:
                made._sets._means = made._sets._means._replace(
                    daemon=self.daemon)
        self.addCleanup(made.stop)
        # The two threads' work, one after the other.
        made.only_look = made.look
        made.look = lambda: (made.only_look(), made.hold())
        return made

    def served(self):
        return self.daemon.served[KEY.id]
