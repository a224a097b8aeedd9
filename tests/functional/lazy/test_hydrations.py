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
"""Hydrations of images that a real diffcached serves."""

import time

from diffcache_openstack.agent.lazy import diffcached
from diffcache_openstack.agent.lazy import lazy_hydrations
from diffcache_openstack.agent.lazy import lazy_servers
from tests.functional.lazy import services


class HydrationsTest(services.LazyServicesTest):

    def setUp(self):
        super().setUp()
        self.image = self.make_image('image', 1)
        repository = self.plane('repository', self.image)
        self.start_service(self.folder)
        served = diffcached.Diffcached(f'{self.folder}/socket')
        served.add(self.image, {
            'manifest': str(self.manifest(self.image)), 'wait': 30,
            'sources': [{'peer': repository.url, 'wan': True}]})
        users = lazy_servers.Servers(self.directory / 'servers.json')
        users.follow(self.image)
        users.add(self.image, lazy_servers.LazyServer('s1', 'p1', 't1'))
        self.hydrations = lazy_hydrations.Hydrations(
            served, users, self.directory / 'hydrations.json')

    def only(self):
        [found] = self.hydrations.collect()
        return found

    def wait_for(self, **wanted):
        """Wait for a worker that does what it is to do."""
        self.wait_until(lambda: all(
            getattr(self.only(), name) == value
            for name, value in wanted.items()))

    def change(self, generation, **settings):
        self.hydrations.change('s1', generation, settings)

    def test_it_is_paused_and_becomes_whole_when_it_is_resumed(self):
        self.change(0, deadline=3600, rate=1000)
        self.wait_for(mode='deadline', rate=1000, paused=False)
        found = self.only()
        self.assertAlmostEqual(3600, found.deadline_at.timestamp()
                               - time.time(), delta=60)
        self.change(1, paused=True)
        self.wait_for(paused=True, mode='deadline', rate=1000)
        self.assertEqual('arriving', self.only().state)
        self.change(2, paused=False, deadline=None, rate=None)
        self.wait_for(state='complete')
        found = self.only()
        self.assertEqual((found.chunks, 0, 3),
                         (found.present, found.remaining_bytes,
                          found.generation))
        self.assertLessEqual(found.expected_at.timestamp(),
                             time.time() + 1)
