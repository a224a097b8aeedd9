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
"""Hydrations as a site's services report and change them."""

import os
import random
import types

import fixtures

from diffcache_openstack.agent.lazy import diffcached
from diffcache_openstack.agent.lazy import lazy_servers
from diffcache_openstack.cloud import servers as nova_servers
from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common.signing import host_keys
from diffcache_openstack.db import engine
from diffcache_openstack.db import listing
from diffcache_openstack.db.views import hydration_views
from diffcache_openstack.embedded import sites
from diffcache_openstack.prefetch import profiles
from diffcache_openstack.rpc import buses
from diffcache_openstack.rpc import conductor_lazy_api
from tests.functional.lazy import services
from tests import waiting

_CHUNK = profiles.CHUNK
_CHUNKS = 48
_PROJECT = '4cbe8c81a3b54c6fb3b2d3cdd44f2e0c'
_SERVER = 's1'
# Bytes per second, at which the image takes hours.
_RATE = 1000


class SiteHydrationsTest(services.LazyServicesTest):
    """A host with its agent and diffcached, a conductor and a database.

    Nova is not here: what names the servers of the host stands in for it.
    """

    def setUp(self):
        super().setUp()
        self.image = self.folder / 'image.raw'
        self.image.write_bytes(random.Random(7).randbytes(_CHUNKS * _CHUNK))
        folder = self.folder / 'h1'
        self.start_service(folder)
        self.daemon = diffcached.Diffcached(f'{folder}/socket')
        listed = nova_servers.Server(_SERVER, _PROJECT, 'ACTIVE', 'h1')
        self.useFixture(fixtures.MockPatchObject(
            nova_servers, 'Servers', lambda conf: types.SimpleNamespace(
                on=lambda host: [listed])))
        self.site = sites.Site(
            self.folder / 'site', [sites.HostSpec('h1', 10 ** 9)],
            sites.LinkSpec(1e4, 1e4, 1e5), self.folder / 'repository', {
                ('data_plane', 'key_file'): f'{self.folder}/key',
                ('agent', 'heartbeat_interval'): 1,
                ('agent', 'sync_outputs'): False,
                ('conductor', 'rpc_timeout'): 10,
                # Else it could be whole before anything is asked for.
                ('lazy', 'hydrate'): 'none',
                ('lazy', 'worth_seconds'): 0.0})
        self.agent = self.site.hosts['h1']
        self.agent.conf.set_override('socket', f'{folder}/socket', 'lazy')
        self.site.start()
        self.addCleanup(self.site.stop)
        self.site.register(self.image, 'image', 'An image')
        self.site.wait_catalogue(0)
        # As the REST API has them.
        conf = self.site._conf(
            self.site._keys.of(host_keys.CONTROLLER, 'api'))
        bus = buses.open_bus(conf, host_keys.CONTROLLER)
        self.addCleanup(bus.close)
        self.lazy = conductor_lazy_api.LazyAPI(bus, conf)
        self.database = engine.Database(conf)
        self.descriptor = self.boot()

    def boot(self):
        """Boot a server that asks for a rate; its base stays open."""
        path = self.agent._lazy.open('image')['path']
        self.agent._lazy.add_server(
            lazy_servers.LazyServer(_SERVER, _PROJECT, 'image', ''),
            lazy_servers.Wish(rate=_RATE))
        descriptor = os.open(path, os.O_RDONLY)
        self.addCleanup(os.close, descriptor)
        return descriptor

    def shown(self):
        """What the server's owner sees; None if there is none."""
        try:
            return self.database.read(
                hydration_views.get_hydration,
                listing.Viewer(_PROJECT, False), _SERVER)
        except exceptions.NotFound:
            return None

    def wait_for(self, **wanted):
        """Wait until a report has some values; returns it."""
        waiting.until(
            lambda: wanted.items() <= (self.shown() or {}).items(),
            f'a report of {wanted}')
        return self.shown()

    def change(self, seen, **settings):
        self.lazy.change_hydration(
            contexts.RequestContext.for_service('test'), _SERVER,
            seen['generation'], settings)
        return self.shown()

    def mode(self):
        """When the daemon fetches what nothing reads."""
        [status] = self.daemon.images()
        return status['hydration']['mode']

    def test_the_owner_pauses_resumes_and_sets_a_deadline(self):
        seen = self.wait_for(state='arriving', rate=_RATE, mode='none')
        self.assertEqual((_PROJECT, 'image', False), (
            seen['project_id'], seen['image_id'], seen['paused']))
        seen = self.change(seen, deadline=None)
        self.assertEqual(('idle', _RATE), (seen['mode'], seen['rate']))
        paused = self.change(seen, paused=True)
        self.assertEqual((True, 'idle', _RATE), (
            paused['paused'], paused['mode'], paused['rate']))
        self.assertEqual('none', self.mode())
        # What was seen before is not what holds.
        self.assertRaises(exceptions.Busy, self.change, seen, paused=False)
        resumed = self.change(paused, paused=False)
        self.assertEqual((False, 'idle'), (resumed['paused'],
                                           resumed['mode']))
        # At this rate it takes hours.
        late = self.change(resumed, deadline=60)
        self.assertEqual(('deadline', False), (late['mode'], late['kept']))
        self.assertLess(late['deadline_at'], late['expected_at'])
        self.assertEqual('arriving', late['state'])
        self.change(late, deadline=5, rate=None)
        self.wait_for(state='complete', percent=100.0, remaining_bytes=0)
        self.assertEqual(self.image.read_bytes(), os.pread(
            self.descriptor, _CHUNKS * _CHUNK + 1, 0))
