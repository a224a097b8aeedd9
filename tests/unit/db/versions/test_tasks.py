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
"""What becomes of the reports of hosts on tasks concerning versions."""

import json
import uuid

from diffcache_openstack.db import listing
from diffcache_openstack.db.versions import server_versions as db
from diffcache_openstack.db.versions import tasks as version_tasks
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from diffcache_openstack.objects import versions
from tests.unit.conductor import fakes
from tests.unit.db import database

EVERYBODY = listing.Viewer(None, True)


class TestVerified(database.DatabaseTest):

    def saved(self, number, project='p'):
        """A version whose disk the store calls by a number."""
        new = objects.NewVersion(id=str(uuid.uuid4()), server_id='s',
                                 project_id=project)
        self.write(db.create, new, versioned.now())
        self.write(db.saved, new.id, 'h1', fakes.saved(number),
                   versioned.now())
        return new.id

    def test_damage_names_the_versions_of_servers(self):
        self.saved(1)
        hit = [self.saved(2), self.saved(3)]
        self.saved(2, 'of-another')
        task = objects.VersionTask(id=str(uuid.uuid4()),
                                   kind=versions.VERIFY, project_id='p')
        self.write(version_tasks.create, task, versioned.now())
        names = [fakes.saved(number).disks[0].version for number in (2, 3)]
        self.write(version_tasks.report, objects.TaskReport(
            task_id=task.id, state=versions.DONE, result=json.dumps(
                {'intact': False, 'disks_damaged': names})),
            versioned.now())
        told = self.read(version_tasks.get_task, EVERYBODY, task.id)
        self.assertEqual({'intact': False, 'disks_damaged': names,
                          'versions_damaged': hit}, told['result'])
