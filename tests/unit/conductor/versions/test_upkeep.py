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
"""Schedules, retention and the store's upkeep, round by round."""

import datetime
import json
import uuid

from diffcache_openstack.conductor.versions import service
from diffcache_openstack.conductor.versions import upkeep
from diffcache_openstack.db import models
from diffcache_openstack.db.versions import policies as version_policies
from diffcache_openstack.db.versions import tasks as version_tasks
from diffcache_openstack.db.versions import versions as db
from diffcache_openstack import objects
from diffcache_openstack.objects import base as objects_base
from diffcache_openstack.objects import versions
from tests.unit.conductor import fakes
from tests.unit.db import database

PROJECT = 'p'
HOUR = datetime.timedelta(hours=1)


class Dispatcher:
    """Sends nothing."""

    def wake(self):
        pass


class RoundTest(database.DatabaseTest):

    def setUp(self):
        super().setUp()
        self.nova = fakes.Nova(PROJECT, 'q')
        worker = service.VersionService(
            self.conf, self.database, Dispatcher(), self.nova)
        self.upkeep = upkeep.Upkeep(
            self.conf, self.database, worker, self.nova, 'me')

    def policy(self, **values):
        self.write(version_policies.put, objects.VersionPolicy(
            id=str(uuid.uuid4()), project_id=PROJECT, **values),
            objects_base.now())

    def saved(self, ago, server='running', **values):
        """A version that was saved so long ago."""
        when = objects_base.now() - ago
        new = objects.NewVersion(
            id=str(uuid.uuid4()), server_id=server, project_id=PROJECT,
            **values)
        self.write(db.create, new, when)
        self.write(db.saved, new.id, 'h1', fakes.saved(), when)
        return new.id

    def tasks(self, kind):
        return [entry.task for entry in self.read(version_tasks.open_tasks)
                if entry.task.kind == kind]

    def round(self):
        """The servers that are to be saved after a round."""
        self.upkeep.round()
        return sorted(task.server_id for task in self.tasks(versions.SAVE))


class TestSchedules(RoundTest):

    def test_project_and_what_has_its_own(self):
        self.policy(every=3600)
        self.policy(server_id='stopped', every=7200)
        self.saved(1.5 * HOUR, 'stopped')
        self.assertEqual(['running'], self.round())
        self.assertEqual(['running'], self.round())

    def test_due_again(self):
        self.policy(server_id='running', every=3600)
        self.saved(0.9 * HOUR)
        self.assertEqual([], self.round())
        self.saved(1.1 * HOUR, 'stopped')
        self.policy(server_id='stopped', every=3600, alpha='auto')
        self.assertEqual(['stopped'], self.round())
        [task] = self.tasks(versions.SAVE)
        self.assertEqual(('auto', 't1'), (task.alpha, task.base_image))

    def test_nova_is_not_asked_each_round(self):
        asked = []
        self.nova.of_project = lambda project: asked.append(project) or []
        self.policy(every=3600)
        for _round in range(3):
            self.upkeep.round()
        self.assertEqual([PROJECT], asked)

    def test_server_that_is_no_more(self):
        self.policy(server_id='gone', every=3600)
        self.assertEqual([], self.round())

    def test_server_without_a_disk(self):
        self.nova.change('running', status='SHELVED_OFFLOADED', host=None)
        self.policy(server_id='running', every=3600)
        self.assertEqual([], self.round())


class TestRetention(RoundTest):

    def forgotten(self):
        self.upkeep.round()
        return {task.version_id for task in self.tasks(versions.FORGET)}

    def test_last_ones_stay(self):
        old = [self.saved(hours * HOUR) for hours in (4, 3)]
        for hours in (2, 1):
            self.saved(hours * HOUR)
        self.policy(keep_last=2)
        self.assertEqual(set(old), self.forgotten())
        self.assertEqual(set(old), self.forgotten())

    def test_protected_and_unfinished_stay(self):
        self.saved(4 * HOUR, protected=True)
        old = self.saved(3 * HOUR)
        self.saved(1 * HOUR)
        self.policy(keep_last=1)
        self.assertEqual({old}, self.forgotten())

    def test_own_policy_counts(self):
        for hours in (3, 2, 1):
            self.saved(hours * HOUR)
        self.policy(keep_last=1)
        self.policy(server_id='running', keep_last=5)
        self.assertEqual(set(), self.forgotten())

    def test_policy_that_keeps_nothing_keeps_all(self):
        for hours in (3, 2, 1):
            self.saved(hours * HOUR)
        self.policy(on_delete=True)
        self.assertEqual(set(), self.forgotten())


class TestStore(RoundTest):

    def age(self, kind, ago):
        """A task of a kind that ended so long ago."""
        task = objects.VersionTask(id=str(uuid.uuid4()), kind=kind,
                                   project_id=PROJECT)
        self.write(version_tasks.create, task, objects_base.now() - ago)
        self.write(_end, task.id)

    def test_space_is_given_back_once_after_deletions(self):
        self.upkeep.round()
        self.assertEqual([], self.tasks(versions.PRUNE))
        self.age(versions.FORGET, 25 * HOUR)
        self.upkeep.round()
        self.assertEqual(1, len(self.tasks(versions.PRUNE)))
        self.upkeep.round()
        self.assertEqual(1, len(self.tasks(versions.PRUNE)))

    def test_not_too_often(self):
        self.age(versions.PRUNE, 2 * HOUR)
        self.age(versions.FORGET, 1 * HOUR)
        self.upkeep.round()
        self.assertEqual([], self.tasks(versions.PRUNE))

    def test_everything_is_verified_from_time_to_time(self):
        self.saved(24 * HOUR)
        self.upkeep.round()
        self.assertEqual([], self.tasks(versions.VERIFY))
        self.saved(8 * 24 * HOUR)
        for _round in range(2):
            self.upkeep.round()
            self.assertEqual(1, len(self.tasks(versions.VERIFY)))

    def test_a_rewrite_continues_until_nothing_is_left(self):
        self.upkeep.round()
        self.assertEqual([], self.tasks(versions.REKEY))
        for left, queued in ((2, 1), (1, 1), (0, 0)):
            for task in self.tasks(versions.REKEY) or [self.rotation()]:
                self.write(version_tasks.report, objects.TaskReport(
                    task_id=task.id, state=versions.DONE,
                    result=json.dumps({'packs_left': left})),
                    objects_base.now())
            for _round in range(2):
                self.upkeep.round()
                self.assertEqual(queued, len(self.tasks(versions.REKEY)))
            # Those do not replace the key again.
            self.assertEqual([''] * queued, [
                task.name for task in self.tasks(versions.REKEY)])

    def test_a_rewrite_that_failed_waits_for_an_operator(self):
        self.write(version_tasks.report, objects.TaskReport(
            task_id=self.rotation().id, state=versions.FAILED, error='no'),
            objects_base.now())
        self.upkeep.round()
        self.assertEqual([], self.tasks(versions.REKEY))

    def rotation(self):
        task = objects.VersionTask(
            id=str(uuid.uuid4()), kind=versions.REKEY, project_id=PROJECT,
            name=versions.ROTATE)
        self.write(version_tasks.create, task, objects_base.now())
        return task

    def test_old_tasks_are_forgotten(self):
        self.age(versions.FORGET, 0 * HOUR)
        self.conf.set_override('task_lifetime', 60, 'versions')
        self.upkeep.tidy()
        self.assertEqual({PROJECT}, set(self.read(
            version_tasks.last_of_kind, versions.FORGET)))
        self.write(_age)
        self.upkeep.tidy()
        self.assertEqual({}, self.read(version_tasks.last_of_kind,
                                       versions.FORGET))


def _end(session, task_id):
    session.get(models.VersionTask, task_id).state = versions.DONE


def _age(session):
    for row in session.query(models.VersionTask):
        row.updated_at = row.updated_at.replace(year=2020)
