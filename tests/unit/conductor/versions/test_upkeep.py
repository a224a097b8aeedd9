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
from unittest import mock
import uuid

import fixtures

from diffcache_openstack.cloud import volumes
from diffcache_openstack.common import exceptions
from diffcache_openstack.conductor.versions import policy_servers
from diffcache_openstack.conductor.versions import service
from diffcache_openstack.conductor.versions import transactions
from diffcache_openstack.conductor.versions import upkeep
from diffcache_openstack.db import models
from diffcache_openstack.db.planning import plans
from diffcache_openstack.db.versions import policies as version_policies
from diffcache_openstack.db.versions import server_versions as db
from diffcache_openstack.db.versions import stores as db_stores
from diffcache_openstack.db.versions import tasks as version_tasks
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from diffcache_openstack.objects import versions
from tests.unit.conductor import fakes
from tests.unit.db import database

PROJECT = 'p'
V1, V2 = (f'00000000-0000-4000-8000-{number:012d}' for number in (1, 2))
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
            self.conf, self.database, Dispatcher(), self.nova, None)
        self.cinder = fakes.Cinder()
        self.upkeep = upkeep.Upkeep(
            self.conf, self.database, worker,
            policy_servers.PolicyServers(self.nova, self.cinder), 'me')

    def policy(self, **values):
        self.write(version_policies.put, objects.VersionPolicy(
            id=str(uuid.uuid4()), project_id=PROJECT, **values),
            versioned.now())

    def saved(self, ago, server='running', **values):
        """A version that was saved this long ago."""
        when = versioned.now() - ago
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

    def test_one_that_waits_for_its_host_is_not_saved_once_more(self):
        self.policy(server_id='running', every=3600)
        self.assertEqual(['running'], self.round())
        self.write(_saved_long_ago, versioned.now() - 5 * HOUR)
        self.upkeep._looked.clear()
        self.assertEqual(['running'], self.round())

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


class TestVolumes(RoundTest):

    def volume(self, volume_id, project_id=PROJECT, encrypted=False):
        self.cinder.volumes[volume_id] = volumes.Volume(
            volume_id, encrypted, False, project_id)

    def saved_volumes(self, **values):
        self.nova.change('running', volumes=(V1, V2))
        self.policy(server_id='running', every=3600, **values)
        self.upkeep.round()
        [task] = self.tasks(versions.SAVE)
        return task.volumes

    def test_schedule_saves_volumes(self):
        """A version without the data of its server protects nothing."""
        self.volume(V1)
        self.volume(V2)
        self.assertEqual([V1, V2], self.saved_volumes())

    def test_policy_without_volumes(self):
        self.assertEqual([], self.saved_volumes(volumes=False))

    def test_volumes_that_cannot_be_saved_are_left_out_and_named(self):
        log = self.useFixture(fixtures.FakeLogger())
        self.volume(V2, encrypted=True)
        self.assertEqual([], self.saved_volumes())
        self.assertIn(f'volume {V1} (no volume {V1}), volume {V2} (encrypted)',
                      log.output)

    def test_volume_of_another_project(self):
        self.volume(V1, 'q')
        self.volume(V2)
        self.assertEqual([V2], self.saved_volumes())

    def test_suspended_server_is_saved_without(self):
        self.volume(V1)
        self.nova.change('running', status='SUSPENDED')
        self.assertEqual([], self.saved_volumes())

    def test_save_waits_for_cinder(self):
        self.cinder.volumes = None
        self.nova.change('running', volumes=(V1,))
        self.policy(every=3600)
        self.assertEqual(['stopped'], self.round())
        self.cinder.volumes = {}
        self.volume(V1)
        self.upkeep._looked.clear()
        self.assertEqual(['running', 'stopped'], self.round())


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

    def test_those_of_images_are_no_backups(self):
        self.saved(4 * HOUR)
        self.saved(3 * HOUR, trigger=versions.IMAGE)
        self.policy(keep_last=1)
        self.assertEqual(set(), self.forgotten())

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

    def looked_at(self):
        """The servers whose versions a round reads."""
        found, prunable = [], db.prunable

        def look(session, server):
            found.append(server)
            return prunable(session, server)

        with mock.patch.object(db, 'prunable', look):
            self.upkeep.round()
        return sorted(found)

    def test_only_what_changed_is_looked_at(self):
        for server in ('running', 'stopped', 'other'):
            self.saved(30 * HOUR, server)
        self.policy(keep_last=1)
        self.policy(server_id='other', keep_last=1)
        self.assertEqual(['other', 'running', 'stopped'], self.looked_at())
        for _round in range(2):
            self.assertEqual([], self.looked_at())
        old = self.saved(20 * HOUR, 'stopped')
        self.saved(datetime.timedelta(), 'stopped')
        self.assertEqual(['stopped'], self.looked_at())
        self.assertIn(old, self.forgotten())

    def test_a_policy_that_changed_is_looked_at(self):
        old = self.saved(30 * HOUR)
        self.saved(29 * HOUR)
        self.policy(keep_last=2)
        self.assertEqual(set(), self.forgotten())
        [policy] = self.read(version_policies.all_policies)
        policy.keep_last = 1
        self.write(version_policies.put, policy, versioned.now())
        self.assertEqual({old}, self.forgotten())

    def test_servers_that_lose_their_own_policy_follow_the_projects(self):
        old = self.saved(30 * HOUR)
        self.saved(29 * HOUR)
        self.policy(keep_last=1)
        self.policy(server_id='running', keep_last=2)
        self.assertEqual(set(), self.forgotten())
        [own] = [each for each in self.read(version_policies.all_policies)
                 if each.server_id]
        self.write(version_policies.remove, own.id)
        self.assertEqual({old}, self.forgotten())

    def test_what_could_not_be_deleted_is_looked_at_again(self):
        old = self.saved(30 * HOUR)
        self.saved(29 * HOUR)
        self.policy(keep_last=1)
        lease = transactions.read_lease(old)
        now = versioned.now()
        self.write(plans.take_lease, lease, 'h1', now, now + HOUR)
        self.assertEqual(set(), self.forgotten())
        self.write(plans.drop_lease, lease, 'h1')
        self.assertEqual({old}, self.forgotten())
        self.assertEqual([], self.looked_at())

    def test_a_round_that_failed_is_no_round(self):
        self.saved(30 * HOUR)
        self.policy(keep_last=1)
        self.upkeep.round()
        old = self.saved(10 * HOUR)
        self.saved(datetime.timedelta())
        with mock.patch.object(db, 'prunable', side_effect=ValueError):
            self.assertRaises(ValueError, self.upkeep.round)
        self.assertIn(old, self.forgotten())

    def test_policy_that_keeps_nothing_keeps_all(self):
        for hours in (3, 2, 1):
            self.saved(hours * HOUR)
        self.policy(on_delete=True)
        self.assertEqual(set(), self.forgotten())


class TestStore(RoundTest):

    def ended(self, kind, ago, state=versions.DONE, **values):
        """A task of a kind that was created and ended this long ago."""
        when = versioned.now() - ago
        task = objects.VersionTask(id=str(uuid.uuid4()), kind=kind,
                                   project_id=PROJECT, **values)
        self.write(version_tasks.create, task, when)
        self.write(version_tasks.sent, task.id, 'h1', when)
        self.write(version_tasks.report, objects.TaskReport(
            task_id=task.id, state=state), when)
        return task

    def deleted(self, ago):
        self.ended(versions.FORGET, ago, version_id=str(uuid.uuid4()))

    def queued(self, kind):
        """How many of a kind are queued after two rounds."""
        for _round in range(2):
            self.upkeep.round()
        return len(self.tasks(kind))

    def test_space_is_given_back_once_after_deletions(self):
        self.assertEqual(0, self.queued(versions.PRUNE))
        self.deleted(25 * HOUR)
        self.assertEqual(1, self.queued(versions.PRUNE))

    def test_deletions_of_each_hour_do_not_postpone_a_prune(self):
        for hours in range(24, -1, -1):
            self.deleted(hours * HOUR)
        self.assertEqual(1, self.queued(versions.PRUNE))

    def test_not_too_often(self):
        self.deleted(26 * HOUR)
        self.ended(versions.PRUNE, 2 * HOUR)
        self.deleted(1 * HOUR)
        self.assertEqual(0, self.queued(versions.PRUNE))

    def test_deleted_while_a_prune_was_queued_or_running_counts(self):
        self.deleted(50 * HOUR)
        task = objects.VersionTask(id=str(uuid.uuid4()), kind=versions.PRUNE,
                                   project_id=PROJECT)
        self.write(version_tasks.create, task,
                   versioned.now() - 30 * HOUR)
        self.deleted(26 * HOUR)
        self.write(version_tasks.report, objects.TaskReport(
            task_id=task.id, state=versions.DONE),
            versioned.now() - 25 * HOUR)
        self.assertEqual(1, self.queued(versions.PRUNE))

    def test_a_prune_that_failed_is_repeated_an_hour_later(self):
        self.deleted(25 * HOUR)
        for ago, queued in ((0, 0), (1.1, 1)):
            self.upkeep.round()
            for task in self.tasks(versions.PRUNE):
                self.write(version_tasks.report, objects.TaskReport(
                    task_id=task.id, state=versions.FAILED, error='no'),
                    versioned.now())
            self.write(_prune_tried, versioned.now() - ago * HOUR)
            self.assertEqual(queued, self.queued(versions.PRUNE))

    def test_tasks_that_are_forgotten_hide_no_longer_interval(self):
        self.conf.set_override('prune_interval', 30 * 24 * 3600, 'versions')
        self.conf.set_override('verify_interval', 30 * 24 * 3600, 'versions')
        self.saved(0 * HOUR)
        self.deleted(29 * 24 * HOUR)
        self.upkeep.tidy()
        self.assertEqual([], self.read(_tasks))
        self.assertEqual(0, self.queued(versions.PRUNE))
        self.assertEqual(0, self.queued(versions.VERIFY))
        self.write(_unpruned_since, versioned.now() - 31 * 24 * HOUR)
        self.assertEqual(1, self.queued(versions.PRUNE))
        self.write(_known_since, versioned.now() - 31 * 24 * HOUR)
        self.assertEqual(1, self.queued(versions.VERIFY))

    def test_everything_is_verified_from_time_to_time(self):
        self.ended(versions.PRUNE, 8 * 24 * HOUR)
        self.assertEqual(0, self.queued(versions.VERIFY))  # Nothing is there.
        # Retention keeps only young ones: the store's age counts.
        self.saved(1 * HOUR)
        self.assertEqual(1, self.queued(versions.VERIFY))
        [task] = self.tasks(versions.VERIFY)
        self.write(version_tasks.report, objects.TaskReport(
            task_id=task.id, state=versions.DONE,
            result=json.dumps({'disks_damaged': []})), versioned.now())
        self.assertEqual(0, self.queued(versions.VERIFY))

    def test_stores_with_versions_are_copied_from_time_to_time(self):
        self.deleted(9 * HOUR)
        self.saved(9 * HOUR)
        self.assertEqual(0, self.queued(versions.REPLICATE))
        self.conf.set_override('copy_interval', 3600, 'versions')
        self.assertEqual(1, self.queued(versions.REPLICATE))
        [task] = self.tasks(versions.REPLICATE)
        self.assertIsNone(self.read(db_stores.lag))
        self.saved(0 * HOUR)
        self.write(version_tasks.report, objects.TaskReport(
            task_id=task.id, state=versions.DONE), versioned.now())
        self.assertEqual(0, self.queued(versions.REPLICATE))
        # What was saved meanwhile may not be there.
        found = self.read(db_stores.lag, PROJECT)
        self.assertEqual(1, found['versions'])
        self.ended(versions.REPLICATE, -1 * HOUR)
        self.assertEqual((0, 0, None), tuple(
            self.read(db_stores.lag).values()))
        self.ended(versions.REPLICATE, 2 * HOUR)
        self.write(_copy_tried, versioned.now() - 2 * HOUR)
        self.assertEqual(1, self.queued(versions.REPLICATE))

    def test_a_rewrite_continues_until_nothing_is_left(self):
        self.upkeep.round()
        self.assertEqual([], self.tasks(versions.REKEY))
        for left, queued in ((2, 1), (1, 1), (0, 0)):
            for task in self.tasks(versions.REKEY) or [self.rotation()]:
                self.write(version_tasks.report, objects.TaskReport(
                    task_id=task.id, state=versions.DONE,
                    result=json.dumps({'packs_left': left})),
                    versioned.now())
            for _round in range(2):
                self.upkeep.round()
                self.assertEqual(queued, len(self.tasks(versions.REKEY)))
            # Those do not replace the key again.
            self.assertEqual([''] * queued, [
                task.name for task in self.tasks(versions.REKEY)])

    def test_a_rewrite_that_failed_waits_for_an_operator(self):
        self.write(version_tasks.report, objects.TaskReport(
            task_id=self.rotation().id, state=versions.FAILED, error='no'),
            versioned.now())
        self.upkeep.round()
        self.assertEqual([], self.tasks(versions.REKEY))

    def rotation(self):
        task = objects.VersionTask(
            id=str(uuid.uuid4()), kind=versions.REKEY, project_id=PROJECT,
            name=versions.ROTATE)
        self.write(version_tasks.create, task, versioned.now())
        return task

    def test_old_tasks_are_forgotten(self):
        self.deleted(0 * HOUR)
        self.conf.set_override('task_lifetime', 60, 'versions')
        self.upkeep.tidy()
        self.assertEqual(1, len(self.read(_tasks)))
        self.deleted(1 * HOUR)
        self.upkeep.tidy()
        self.assertEqual(1, len(self.read(_tasks)))

    def test_what_no_host_could_do_for_long_fails(self):
        self.policy(server_id='running', every=3600)
        self.assertEqual(['running'], self.round())
        [task] = self.tasks(versions.SAVE)
        self.upkeep.tidy()
        self.assertEqual(1, len(self.tasks(versions.SAVE)))
        self.write(_created, versioned.now() - 8 * 24 * HOUR)
        self.upkeep.tidy()
        self.assertEqual([], self.tasks(versions.SAVE))
        self.assertEqual(versions.ERROR,
                         self.read(db.need, task.version_id).state)

    def test_what_was_not_saved_is_forgotten_with_its_task(self):
        new = objects.NewVersion(id=str(uuid.uuid4()), server_id='running',
                                 project_id=PROJECT)
        for ago, left in ((1 * HOUR, 1), (8 * 24 * HOUR, 0)):
            when = versioned.now() - ago
            self.write(db.create, new, when)
            self.write(db.failed, new.id, db.Failure('no', 'no_space'), when)
            self.upkeep.tidy()
            self.assertEqual(left, len(self.read(db.servers_of, PROJECT)))

    def test_leases_that_ended_are_forgotten(self):
        now = versioned.now()
        for name, until in (('old', now - HOUR), ('new', now + HOUR)):
            self.write(plans.take_lease, name, 'h1', now, until)
        self.upkeep.tidy()
        self.assertEqual(['new'], self.read(_leases))


class TestDeletions(RoundTest):

    def forget(self, state):
        """End the deletion of a version."""
        [task] = self.tasks(versions.FORGET)
        self.write(version_tasks.report, objects.TaskReport(
            task_id=task.id, state=state, error='no', error_code='internal'),
            versioned.now())

    def setUp(self):
        super().setUp()
        self.version = self.saved(1 * HOUR)
        self.write(transactions.forget, self.version, versioned.now())

    def row(self):
        return self.read(db.need, self.version)

    def test_one_that_failed_is_repeated_an_hour_later(self):
        self.forget(versions.FAILED)
        self.assertEqual((versions.DELETING, 'no'),
                         (self.row().state, self.row().error))
        self.upkeep.round()
        self.assertEqual([], self.tasks(versions.FORGET))
        self.write(_updated, versioned.now() - 1.1 * HOUR)
        for _round in range(2):
            self.upkeep.round()
            self.assertEqual(1, len(self.tasks(versions.FORGET)))
        self.forget(versions.DONE)
        self.assertRaises(exceptions.NotFound, self.row)

    def test_one_that_failed_is_repeated_on_request(self):
        self.forget(versions.FAILED)
        for _request in range(2):
            self.write(transactions.forget, self.version, versioned.now())
            self.assertEqual(1, len(self.tasks(versions.FORGET)))

    def test_one_that_is_cancelled_leaves_the_version(self):
        [task] = self.tasks(versions.FORGET)
        self.write(version_tasks.cancel, task.id, versioned.now())
        self.assertEqual((versions.AVAILABLE, None),
                         (self.row().state, self.row().error))


def _tasks(session):
    return [row.id for row in session.query(models.VersionTask)]


def _leases(session):
    return [row.name for row in session.query(models.Lease)]


def _unpruned_since(session, when):
    session.get(models.VersionStore, PROJECT).unpruned_since = when


def _prune_tried(session, when):
    session.get(models.VersionStore, PROJECT).prune_tried_at = when


def _copy_tried(session, when):
    session.get(models.VersionStore, PROJECT).copy_tried_at = when


def _known_since(session, when):
    session.get(models.VersionStore, PROJECT).created_at = when


def _created(session, when):
    for row in session.query(models.VersionTask):
        row.created_at = when


def _updated(session, when):
    for row in session.query(models.ServerVersion):
        row.updated_at = when


def _saved_long_ago(session, when):
    for row in session.query(models.ServerVersion):
        row.created_at = when
