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
"""Each service of the suite starts before what it depends on."""

import os
import signal
import urllib.error
import urllib.request

from diffcache_openstack.cloud import servers
from diffcache_openstack.common import exceptions
from testing import mariadb
from testing import rabbitmq
from testing import server
from tests import base
from tests.functional.fixtures import cloud
from tests.functional.fixtures import deployment
from tests.functional.services import site

IMAGE = '1d3a4a3e-0000-4000-8000-3b5f6a1c9d21'
# A service whose database is late tries again after this many seconds.
DATABASE = {'retry_interval': 1}


class StartOrderTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.cloud = self.useFixture(cloud.Cloud())

    def deploy(self, **servers_of_its_own):
        self.site = self.useFixture(
            deployment.Deployment(**servers_of_its_own))

    def own(self, kind, **arguments):
        """A broker or database that is not shared, since it is stopped."""
        started = kind(**arguments)
        self.addCleanup(started.stop)
        started.start()
        return started


class TestDatabase(StartOrderTest):

    def setUp(self):
        super().setUp()
        self.database = self.own(mariadb.MariaDB)
        self.deploy(database=self.database)
        self.database.halt()

    def test_conductor_waits_for_it_by_name(self):
        conductor = self.site.start('diffcache-conductor', 'conductor',
                                    database=DATABASE)
        conductor.wait_for('Waiting for the database, next attempt in 1 s')
        self.assertIn(f'{server.LOOPBACK}:{self.database.port}',
                      conductor.printed())
        self.database.start()
        conductor.wait_for('is ready')
        self.site.conductor.register_host(self.site.context, site.host('c1'))

    def test_conductor_stops_while_it_waits(self):
        for workers in (1, 2):
            conductor = self.site.start(
                'diffcache-conductor', f'conductor-{workers}',
                database=DATABASE, conductor={'workers': workers})
            conductor.wait_for('Waiting for the database')
            self.assertEqual(0, conductor.stop(signal.SIGTERM))

    def test_api_waits_for_it_by_name(self):
        api = self.site.run_script('diffcache-api', 'api', database=DATABASE,
                                   api={'bind_port': server.free_port()})
        api.wait_for('Waiting for the database, next attempt in 1 s')
        self.assertNotIn('API is ready', api.printed())
        self.database.start()
        api.wait_for('API is ready')

    def test_wrong_password_is_not_waited_for(self):
        self.database.start()
        user, _, rest = self.site.connection.partition('@')
        conductor = self.site.start(
            'diffcache-conductor', 'conductor',
            database={**DATABASE, 'connection': f'{user}-not@{rest}'})
        self.assertEqual(1, conductor.wait())
        self.assertNotIn('Waiting', conductor.printed())
        self.assertIn('check [database] connection', conductor.printed())


class TestBroker(StartOrderTest):

    def setUp(self):
        super().setUp()
        self.broker = self.own(rabbitmq.RabbitMQ, virtual_hosts=1)
        self.deploy(broker=self.broker)
        self.address = f'listens at {server.LOOPBACK}:{self.broker.port}'

    def test_conductor_and_agent_wait_for_it_by_name(self):
        self.broker.halt()
        conductor = self.site.start('diffcache-conductor', 'conductor')
        agent = self.site.start(
            'diffcache-agent', 'c1',
            agent={'host': 'c1', 'site': 'edge', 'heartbeat_interval': 1,
                   'state_dir': self.directory / 'c1'},
            data_plane={'listen': '127.0.0.1:0'})
        for process in (conductor, agent):
            process.wait_for('Waiting for the message broker')
            self.assertIn(self.address, process.printed())
        self.broker.start()
        conductor.wait_for('is ready')
        agent.wait_for('Connected to the conductor')

    def test_conductor_leaves_no_queue_behind(self):
        def restart():
            conductor = self.site.start_conductor(
                oslo_messaging_rabbit={'rabbit_transient_queues_ttl': 1})
            self.site.conductor.register_host(self.site.context,
                                              site.host('c1'))
            self.assertEqual(0, conductor.stop())

        def kept():
            # Those that the broker removes by itself are another matter.
            return {name for name in self.broker.queues()
                    if 'fanout' not in name and 'reply' not in name}

        restart()
        queues = kept()
        self.assertIn('diffcache-conductor', queues)
        restart()
        self.assertEqual(queues, kept())


class TestKeystone(StartOrderTest):

    def setUp(self):
        super().setUp()
        self.deploy()

    def test_api_answers_503_until_it_is_there(self):
        port = server.free_port()
        api = self.site.run_script(
            'diffcache-api', 'api', api={'bind_port': port},
            keystone_authtoken={**self.cloud.login(),
                                'www_authenticate_uri': self.cloud.url})
        api.wait_for('API is ready')
        url = f'http://{server.LOOPBACK}:{port}/v1/images'
        self.assertEqual(503, self.status_of(url))
        self.cloud.start(cloud.KEYSTONE)
        self.assertEqual(200, self.status_of(url), api.printed())

    def status_of(self, url):
        request = urllib.request.Request(
            url, headers={'X-Auth-Token': cloud.TOKEN})
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code


class TestGlance(StartOrderTest):
    """The repository's agent takes images in as soon as it can."""

    def setUp(self):
        super().setUp()
        self.deploy()
        self.cloud.images[IMAGE] = os.urandom(1 << 20)
        self.hub = self.site.start(
            'diffcache-agent', 'hub',
            agent={'host': 'hub', 'site': 'centre', 'role': 'repository',
                   'state_dir': self.directory / 'hub'},
            data_plane={'listen': '127.0.0.1:0'},
            repository={'image_source': 'glance'},
            glance=self.cloud.login())
        self.hub.wait_for('Agent hub serves')

    def test_keystone_is_late(self):
        self.hub.wait_for('Waiting for the image service')
        self.assertNotIn('Added image', self.hub.printed())
        self.cloud.start(cloud.KEYSTONE, cloud.GLANCE)
        self.hub.wait_for(f'Added image {IMAGE} ({IMAGE}), 1048576 bytes')

    def test_glance_is_later_than_keystone(self):
        self.cloud.start(cloud.KEYSTONE)
        self.hub.wait_for('Waiting for the image service')
        self.assertNotIn('Added image', self.hub.printed())
        self.cloud.running.add(cloud.GLANCE)
        self.hub.wait_for(f'Added image {IMAGE} ({IMAGE}), 1048576 bytes')


class TestNova(StartOrderTest):

    def test_conductor_asks_it_anew_each_time(self):
        self.deploy()
        self.site.configuration('conductor', nova=self.cloud.login())
        nova = servers.Servers(self.site.new_conf('conductor'))
        error = self.assertRaises(exceptions.ServiceUnavailable, nova.get,
                                  IMAGE)
        self.assertIn('Nova', str(error))
        self.cloud.start(cloud.KEYSTONE)
        self.assertRaises(exceptions.ServiceUnavailable, nova.get, IMAGE)
        self.cloud.running.add(cloud.NOVA)
        self.assertEqual('ACTIVE', nova.get(IMAGE).status)
