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
"""Broker and database go away under running services, and come back."""

from diffcache_openstack.common import exceptions
from testing import mariadb
from testing import rabbitmq
from tests import base
from tests.functional.fixtures import deployment
from tests.functional.services import site
from tests import waiting

OPTIONS = {'conductor': {'rpc_timeout': 30},
           'oslo_messaging_rabbit': {'rabbit_retry_interval': 1,
                                     'rabbit_interval_max': 1,
                                     'kombu_reconnect_delay': 0.2}}


class OutageTest(base.TestCase):

    def own(self, server):
        """Start a server that is not shared, since it will be stopped."""
        self.addCleanup(server.stop)
        server.start()
        return server

    def deploy(self, **servers):
        self.site = self.useFixture(
            deployment.Deployment(options=OPTIONS, **servers))
        self.api, self.ctxt = self.site.conductor, self.site.context

    def assert_recovers(self):
        waiting.until(
            lambda: self.api.register_image(self.ctxt, site.image(2)),
            'the conductor to answer', exceptions.ServiceUnavailable)


class TestBroker(OutageTest):

    def setUp(self):
        super().setUp()
        self.broker = self.own(rabbitmq.RabbitMQ(virtual_hosts=1))
        self.deploy(broker=self.broker)

    def test_restart(self):
        self.site.start_conductor()
        self.api.register_host(self.ctxt, site.host('c1'))
        self.broker.halt()
        self.assertRaises(exceptions.ServiceUnavailable,
                          self.api.register_image, self.ctxt,
                          site.image(1))
        self.broker.start()
        self.assert_recovers()
        known = self.api.update_site_map(self.ctxt, site.SITE)
        self.assertEqual(['c1'], [host.name for host in known.hosts])

    def test_conductor_stops_while_it_waits(self):
        self.broker.halt()
        conductor = self.site.start('diffcache-conductor', 'conductor')
        conductor.wait_for('Connection failed')
        self.assertEqual(0, conductor.stop())

    def test_conductor_that_lost_it_stops(self):
        conductor = self.site.start_conductor()
        self.broker.halt()
        conductor.wait_for('is unreachable')
        self.assertEqual(0, conductor.stop())

    def test_conductor_is_first(self):
        self.broker.halt()
        conductor = self.site.start('diffcache-conductor', 'conductor')
        conductor.wait_for('Connection failed')
        error = self.assertRaises(
            exceptions.ServiceUnavailable, self.api.register_host, self.ctxt,
            site.host('c1'))
        self.assertIn('No message broker listens', str(error))
        self.broker.start()
        conductor.wait_for('is ready')
        self.api.register_host(self.ctxt, site.host('c1'))


class TestDatabase(OutageTest):

    def test_restart(self):
        server = self.own(mariadb.MariaDB())
        self.deploy(database=server)
        conductor = self.site.start_conductor()
        self.api.register_host(self.ctxt, site.host('c1'))
        server.halt()
        self.assertRaises(exceptions.ServiceUnavailable,
                          self.api.register_image, self.ctxt,
                          site.image(1))
        server.start()
        self.assert_recovers()
        known = self.api.update_site_map(self.ctxt, site.SITE)
        self.assertEqual(['c1'], [host.name for host in known.hosts])
        self.assertEqual(0, conductor.stop())
