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
"""What monitoring reads of a conductor."""

import datetime
from unittest import mock

from oslo_db import exception as db_errors
import prometheus_client

from diffcache_openstack.conductor import metrics
from diffcache_openstack.conductor import service
from diffcache_openstack.db import catalogue
from diffcache_openstack.db import listing
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack.db.versions import stores
from diffcache_openstack.objects import versioned
from testing import server
from tests.unit.db import database


class DatabaseCollectorTest(database.DatabaseTest):

    def setUp(self):
        super().setUp()
        self.registry = prometheus_client.CollectorRegistry()
        self.collector = metrics.DatabaseCollector(self.database)
        self.registry.register(self.collector)

    def value(self, name, **labels):
        return self.registry.get_sample_value(f'diffcache_{name}', labels)

    def test_an_empty_database(self):
        self.assertEqual(1, self.value('database_up'))
        self.assertEqual(0, self.value('patches'))

    def test_hosts_and_catalogue(self):
        self.write(host_rows.put_host, database.host('h1'), database.at(60))
        self.write(catalogue.put_image, database.image(1),
                   versioned.now())
        self.write(catalogue.put_image, database.image(2),
                   versioned.now())
        self.write(catalogue.put_patch, database.patch(1, 2), versioned.now())
        labels = {'host': 'h1', 'site': database.SITE, 'role': 'compute'}
        self.assertEqual(1, self.value('host_alive', **labels))
        self.assertEqual(database.at(60).timestamp(),
                         self.value('host_seen_timestamp_seconds', **labels))
        self.assertEqual(2, self.value('images', status='active'))
        self.assertEqual(1, self.value('patches'))
        self.assertEqual(1000, self.value('site_capacity_bytes',
                                          site=database.SITE))

    def test_how_far_copies_of_stores_are_behind(self):
        self.assertIsNone(self.value('version_copy_lag_versions'))
        when = versioned.now()
        with mock.patch.object(stores, 'lag', return_value={
                'versions': 2, 'bytes': 7, 'oldest': listing.instant(
                    when - datetime.timedelta(seconds=90))}):
            self.assertEqual((2, 7), tuple(
                self.value(f'version_copy_lag_{each}')
                for each in ('versions', 'bytes')))
            self.assertLessEqual(90, self.value('version_copy_lag_seconds'))

    def test_dead_hosts(self):
        self.write(host_rows.put_host, database.host('h1'), database.at(0))
        self.write(host_rows.expire_hosts, versioned.now())
        self.assertEqual(0, self.value('host_alive', host='h1', role='compute',
                                       site=database.SITE))

    def test_a_database_that_is_down(self):
        self.assertEqual([], self.collector.problems())
        with mock.patch.object(self.database, 'look',
                               side_effect=db_errors.DBError('gone')):
            self.assertEqual(0, self.value('database_up'))
            self.assertIsNone(self.value('patches'))
            problem, = self.collector.problems()
        self.assertIn('gone', problem)


class ServiceTest(database.DatabaseTest):

    def test_none_without_an_address(self):
        conductor = service.ConductorService(self.conf)
        conductor._database = self.database
        conductor._start_metrics()
        self.assertIsNone(conductor.metrics)

    def test_workers_share_the_address(self):
        address = f'{server.LOOPBACK}:{server.free_port()}'
        self.conf.set_override('listen', address, 'metrics')
        self.conf.set_override('workers', 2, 'conductor')
        conductor = service.ConductorService(self.conf)
        conductor._database = self.database
        conductor._start_metrics()
        self.addCleanup(conductor.metrics.stop)
        self.assertTrue(conductor.metrics._shared)
