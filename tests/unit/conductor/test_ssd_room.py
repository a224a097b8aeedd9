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
"""What the scheduler is told of the room in SSD caches."""

import sqlalchemy as sa

from diffcache_openstack.cloud import servers
from diffcache_openstack.db import models
from diffcache_openstack.db import volume_caches
from diffcache_openstack.remote_calls import conductor_costs_api
from tests.unit.conductor.endpoints import test_agents
from tests.unit.conductor import fakes
from tests.unit.db import database
from tests.unit import volume_reports as reports

ANSWER_SECONDS = 60
HOSTS = ('h1', 'h2', 'h3', 'elsewhere')
# Of the curve of each reported volume.
WORKING_SET = 120


class TestRoom(test_agents.ConductorTest):
    """A server on h1, another one on h2; h3 has no SSD cache."""

    def prepare(self):
        self.nova = fakes.Nova('p', 'q')
        self.nova.volumes = {reports.VOLUME: 'running',
                             reports.OTHER_VOLUME: 'foreign'}
        self.patch(servers, 'Servers', lambda conf: self.nova)

    def setUp(self):
        super().setUp()
        for name in HOSTS[:3]:
            self.api.register_host(self.ctxt, database.host(name))
        self.costs = conductor_costs_api.CostsAPI(self.bus, ANSWER_SECONDS)

    def report(self, host, capacity, *volumes, **values):
        self.api.report_volume_caches(
            self.ctxt, host, reports.cache(capacity=capacity, **values),
            volumes)

    def room(self, server_id='running', hosts=HOSTS):
        return self.costs.ssd_room(self.ctxt, server_id, hosts)

    def test_room_beside_the_volumes_that_are_there(self):
        self.report('h1', WORKING_SET, reports.volume())
        self.report('h2', WORKING_SET, reports.volume(reports.OTHER_VOLUME))
        self.assertEqual({'h1': 1.0, 'h2': 0.5}, self.room())
        self.assertEqual({'h1': 0.5, 'h2': 1.0}, self.room('foreign'))
        self.assertEqual({'h2': 0.5}, self.room(hosts=['h2']))
        self.report('h2', 2 * WORKING_SET,
                    reports.volume(reports.OTHER_VOLUME))
        self.assertEqual({'h1': 1.0, 'h2': 1.0}, self.room())

    def test_volumes_of_no_known_server_take_room(self):
        self.report('h1', WORKING_SET, reports.volume())
        self.report('h2', WORKING_SET, reports.volume('by-hand'))
        self.assertEqual(0.5, self.room()['h2'])

    def test_bounds_modes_and_volumes_without_a_curve(self):
        self.report('h2', 60)
        for values, blocks in (({'max': 100}, 100), ({'min': 240}, 240),
                               ({'curve': None}, 90),
                               ({'curve': None, 'max': None}, 90)):
            self.report('h1', 1000, reports.volume(**values))
            self.assertEqual(60 / blocks, self.room()['h2'], values)
        self.report('h1', 1000, reports.volume(mode='pass-through', min=9))
        self.assertEqual({}, self.room())

    def test_changes_count_at_once(self):
        self.report('h1', WORKING_SET, reports.volume())
        self.report('h2', 60)
        self.conductor._database.write(
            volume_caches.update_volume, 'h1', reports.volume(max=60))
        self.assertEqual(1.0, self.room()['h2'])

    def test_caches_that_do_not_work(self):
        self.report('h1', WORKING_SET, reports.volume())
        self.report('h2', 0, state='failed')
        self.assertEqual({'h1': 1.0}, self.room())

    def test_dead_hosts_are_no_candidates_but_their_servers_are_known(self):
        self.report('h1', WORKING_SET, reports.volume())
        self.report('h2', 60)
        self.conductor._database.write(lambda session: session.execute(
            sa.update(models.Host).where(models.Host.name == 'h1')
            .values(alive=False)))
        self.assertEqual({'h2': 0.5}, self.room())

    def test_servers_without_cached_volumes(self):
        self.report('h2', 60)
        self.assertEqual({}, self.room())
        self.assertEqual({}, self.room('unknown'))
