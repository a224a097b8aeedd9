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
from unittest import mock

import sqlalchemy as sa

from diffcache_openstack.cloud import servers
from diffcache_openstack.common import exceptions
from diffcache_openstack.conductor import volume_caches
from diffcache_openstack.db import models
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack.db import volume_caches as db
from tests.unit.conductor.endpoints import test_agents
from tests.unit.conductor import fakes
from tests.unit.db import database
from tests.unit import volume_reports as reports


class TestEvacuations(test_agents.ConductorTest):
    """A volume that comes from a host which does not answer."""

    def prepare(self):
        nova = fakes.Nova('p', 'q')
        nova.volumes = {reports.VOLUME: 'foreign'}
        self.patch(servers, 'Servers', lambda conf: nova)

    def setUp(self):
        super().setUp()
        for name in ('h1', 'h2'):
            self.api.register_host(self.ctxt, database.host(name))

    def report(self, host, mode):
        self.api.report_volume_caches(
            self.ctxt, host, reports.cache(), [reports.volume(mode=mode)])

    def end(self, host):
        self.database.write(lambda session: session.execute(
            sa.update(models.Host).where(models.Host.name == host)
            .values(alive=False)))

    def test_what_a_dead_host_had_in_write_back_is_lost(self):
        self.report('h1', 'write-back')
        self.end('h1')
        with self.assertLogs(volume_caches.LOG.logger, 'ERROR') as logs:
            self.report('h2', 'write-back')
        [line] = logs.output
        for text in (reports.VOLUME, 'host h2', 'host h1'):
            self.assertIn(text, line)
        # Once.
        with self.assertNoLogs(volume_caches.LOG.logger, 'ERROR'):
            self.report('h2', 'write-back')

    def test_nothing_is_lost(self):
        for mode, is_dead in (('write-through', True), ('write-back', False)):
            self.report('h1', mode)
            if is_dead:
                self.end('h1')
            with self.assertNoLogs(volume_caches.LOG.logger, 'ERROR'):
                self.report('h2', mode)
            self.api.register_host(self.ctxt, database.host('h1'))


class TestAnswers(database.DatabaseTest):
    """A volume on each of two hosts, and a change of the first one."""

    def setUp(self):
        super().setUp()
        self.agents = mock.Mock()
        self.volumes = volume_caches.VolumeCaches(self.database, mock.Mock(),
                                                  self.agents)
        for host, volume in (('h1', reports.VOLUME),
                             ('h2', reports.OTHER_VOLUME)):
            self.write(host_rows.put_host, database.host(host),
                       database.at(0))
            self.write(db.put_volumes, host, [reports.volume(volume)], {})

    def flush(self, answer):
        self.agents.flush_volume.return_value = answer
        self.volumes.flush_volume(None, reports.VOLUME)

    def row(self, volume_id):
        return self.read(lambda session: session.execute(
            sa.select(models.Host.name, models.VolumeCache.mode)
            .join(models.VolumeCache,
                  models.VolumeCache.host_id == models.Host.id)
            .where(models.VolumeCache.id == volume_id)).one())

    def test_noted_for_the_volume(self):
        self.flush(reports.volume(mode='write-back'))
        self.assertEqual(('h1', 'write-back'), self.row(reports.VOLUME))

    def test_for_the_volume_of_another_host(self):
        error = self.assertRaises(
            exceptions.ServiceUnavailable, self.flush,
            reports.volume(reports.OTHER_VOLUME, mode='write-back'))
        self.assertIn('h1', str(error))
        for host, volume in (('h1', reports.VOLUME),
                             ('h2', reports.OTHER_VOLUME)):
            self.assertEqual((host, 'write-through'), self.row(volume))
