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
"""The next build of an image boots with the profile of the one before."""

import os
import random
import signal

from diffcache_openstack.agent.lazy import diffcached
from diffcache_openstack.agent_client import local_client
from diffcache_openstack.common import exceptions
from diffcache_openstack.db import engine
from diffcache_openstack.db import listing
from diffcache_openstack.db.views import profile_views
from diffcache_openstack.prefetch import profiles
from diffcache_openstack.rpc import agent_api
from tests.functional.fixtures import deployment
from tests.functional.lazy import services
from tests import waiting

_CHUNK = profiles.CHUNK
_CHUNKS = 48
_BOOT = (3, 11, 20, 29, 38, 44)
# The build has new content in front: chunks move by three, and a bit more.
_MOVED = 3
_SHIFT = _MOVED * _CHUNK + 10 * 4096
_PROJECT = '4cbe8c81a3b54c6fb3b2d3cdd44f2e0c'
_EVERYBODY = listing.Viewer(None, True)
_PAGE = listing.Page(100)


class CarriedProfilesTest(services.LazyServicesTest):
    """A conductor, a repository and a host, on a broker and a database."""

    def setUp(self):
        super().setUp()
        old = random.Random(7).randbytes(_CHUNKS * _CHUNK)
        (self.folder / 'old.raw').write_bytes(old)
        (self.folder / 'new.raw').write_bytes(
            random.Random(8).randbytes(_SHIFT) + old)
        self.deployment = self.useFixture(deployment.Deployment(
            options={'conductor': {'rpc_timeout': 5}}))
        self.agents = agent_api.AgentAPI(self.deployment.bus,
                                         self.deployment.conf)
        self.database = engine.Database(self.deployment.conf)
        self.addCleanup(self.database.close)
        self.start_service(self.folder / 'h1')
        self.daemon = diffcached.Diffcached(f'{self.folder}/h1/socket')
        self.conductor_process = self.deployment.start_conductor()
        self.hub = self.start_agent('hub', role='repository')
        self.start_agent('h1', socket=f'{self.folder}/agent.sock')
        self.local = local_client.LocalClient(f'{self.folder}/agent.sock',
                                              timeout=waiting.SECONDS)

    def start_agent(self, name, **agent):
        process = self.deployment.start(
            'diffcache-agent', name,
            agent={'host': name, 'site': 'edge', 'heartbeat_interval': 1,
                   'state_dir': self.folder / name / 'agent',
                   'sync_outputs': False, **agent},
            data_plane={'listen': '127.0.0.1:0',
                        'key_file': self.folder / 'key'},
            # Only what wakes it has the repository look for work.
            repository={'image_directories': self.folder,
                        'scan_interval': 3600},
            lazy={'hydrate': 'none', 'worth_seconds': 0, **(
                      {'socket': f'{self.folder}/{name}/socket'}
                      if 'socket' in agent else {})})
        process.wait_for(f'Agent {name} serves')
        return process

    def wait(self, ready, what):
        """Return what a function returns as soon as that is something."""
        # Something may be being started.
        return waiting.until(ready, what, exceptions.RetryableError,
                             seen=self.deployment.printed)

    def register(self, name):
        """Register an image; returns its content ID."""
        content = self.wait(lambda: self.agents.register_image(
            self.deployment.context, 'hub', str(self.folder / f'{name}.raw'),
            name, name), 'the repository').content_id
        self.wait(lambda: any(each['id'] == name
                              for each in self.local.images()),
                  f'{name} on the map')
        return content

    def boot(self, name, label='m1.small', times=1):
        """Begin to boot servers; returns the descriptors of their bases."""
        path = self.wait(lambda: self.local.open_lazy(name)['path'],
                         f'{name} to be served')
        found = []
        for number in range(times):
            self.local.add_lazy_server(f'{name}-{number}', {
                'project_id': _PROJECT, 'image_id': name, 'label': label})
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
            self.addCleanup(os.close, descriptor)
            found.append(descriptor)
        return found

    @staticmethod
    def read(descriptor, moved_by=0):
        """Read what a boot reads."""
        for chunk in _BOOT:
            os.pread(descriptor, 4096, chunk * _CHUNK + moved_by)

    def check_prefetched(self, content, descriptor):
        """Check that the first of the reads of the new build alone misses.

        Nothing is prefetched before something is read.
        """
        os.pread(descriptor, 4096, _BOOT[0] * _CHUNK + _SHIFT)
        # A part of a chunk can be read before the chunk counts as prefetched.
        self.wait(lambda: all(self.has(content, chunk + _MOVED)
                              for chunk in _BOOT)
                  and self.fetched(content) >= len(_BOOT),
                  'the chunks of the profile')
        self.read(descriptor, _SHIFT)
        found = self.status(content)
        self.assertLessEqual(found['misses'], 1)
        self.assertGreater(found['prefetched'], 0)
        self.assertEqual(found['prefetched'], found['prefetched_used'])

    def fetched(self, content):
        """Return how many chunks were read before, or prefetched."""
        found = self.status(content)
        return found['misses'] + found['prefetched']

    def has(self, content, chunk):
        """Return whether a chunk is in the file of the host."""
        with open(self.status(content)['data_path'], 'rb') as file:
            file.seek((chunk + 1) * _CHUNK - 4096)
            return any(file.read(4096))

    def profiles(self, image):
        return self.database.read(
            profile_views.list_profiles, _EVERYBODY, {'image_id': image},
            _PAGE).entries

    def profile(self, image, **wanted):
        """Return an image's profile, once it is as wanted."""
        def find():
            return next((each for each in self.profiles(image)
                         if wanted.items() <= each.items()), None)

        return self.wait(find, f'a profile of {image} with {wanted}')

    def status(self, content):
        return self.answered(self.daemon, content)


class TestCarriedProfiles(CarriedProfilesTest):

    def test_the_first_boot_of_the_next_build_prefetches(self):
        self.register('old')
        self.read(*self.boot('old'))
        self.profile('old', chunks=len(_BOOT), carried_from=None)
        new = self.register('new')
        carried = self.profile('new', carried_from='old')
        self.assertEqual((0, len(_BOOT)), (carried['instances'],
                                           carried['chunks']))
        [descriptor] = self.boot('new')
        self.check_prefetched(new, descriptor)
        # Its own counts come in.
        mixed = self.profile('new', instances=1)
        self.assertEqual('old', mixed['carried_from'])
        for other in self.boot('new', times=4):
            self.read(other, _SHIFT)
        self.profile('new', carried_from=None, chunks=len(_BOOT))
        [shown] = self.profiles('new')
        self.assertLessEqual(4, shown['instances'])

    def test_a_repository_that_was_away_carries_when_it_is_back(self):
        self.register('old')
        new = self.register('new')
        self.wait(lambda: 'Created patch' in self.hub.printed(),
                  'a patch between the images')
        # What is read is reported when there is no repository.
        self.conductor_process.stop()
        self.read(*self.boot('old'))
        [descriptor] = self.boot('new')
        self.hub.stop(signal.SIGKILL)
        self.deployment.start_conductor('another')
        self.profile('old', chunks=len(_BOOT))
        self.assertEqual([], self.profiles('new'))
        self.hub = self.start_agent('hub', role='repository')
        self.profile('new', carried_from='old', chunks=len(_BOOT))
        self.check_prefetched(new, descriptor)
