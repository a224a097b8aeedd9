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
import uuid

from diffcache_openstack.conductor import service
from diffcache_openstack.db import engine
from diffcache_openstack.db.versions import heads as version_heads
from diffcache_openstack.db.versions import server_versions
from diffcache_openstack.db.versions import tasks as version_tasks
from diffcache_openstack import objects
from diffcache_openstack.objects import versions as states
from tests.unit.cmd.manage import base
from tests.unit.db import database


class TestVersionStores(base.FilledTest):

    def test_a_reset_forgets_the_heads_of_one_project(self):
        heads = engine.Database(self.conf)
        self.addCleanup(heads.close)
        stores = [version_heads.ProjectStore(project, 'a' * 16)
                  for project in ('p1', 'p2')]
        for store in stores:
            heads.write(version_heads.move, store, None, (1, 'a' * 64), 'h1',
                        database.at(0))
        self.assertEqual(
            0, self.run_words('version-store', 'reset', 'p1').code)
        self.assertEqual([None, (1, 'a' * 64)], [
            heads.read(version_heads.read, store) for store in stores])

    def test_a_rotation_is_a_task_of_the_conductor(self):
        with open(self.config, 'a', encoding='utf-8') as stream:
            # It answers, however busy the machine is.
            stream.write('[conductor]\nrpc_timeout = 60\n')
        conductor = service.ConductorService(self.conf)
        conductor.start()
        self.addCleanup(conductor.stop)
        self.assert_fails(1, 'no versions', 'version-key', 'rotate', 'p1')
        self.database.write(server_versions.create, objects.NewVersion(
            id=str(uuid.uuid4()), server_id='s', project_id='p1'),
            database.at(0))
        result = self.run_words('version-key', 'rotate', 'p1', '-f', 'json')
        self.assertEqual(0, result.code, result.err)
        [entry] = self.database.read(version_tasks.open_tasks)
        self.assertEqual((result.json['task'], states.REKEY, states.ROTATE),
                         (entry.task.id, entry.task.kind, entry.task.name))
