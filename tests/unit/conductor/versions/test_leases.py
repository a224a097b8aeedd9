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
"""What becomes of tasks whose hosts do not report them any more."""

import json
import types
import uuid

from diffcache_openstack.common import exceptions
from diffcache_openstack.conductor.versions import dispatch
from diffcache_openstack.conductor.versions import service
from diffcache_openstack.conductor.versions import transactions
from diffcache_openstack.db import models
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack.db.versions import heads as version_heads
from diffcache_openstack.db.versions import policies
from diffcache_openstack.db.versions import server_versions as db
from diffcache_openstack.db.versions import tasks as version_tasks
from diffcache_openstack import objects
from diffcache_openstack.objects import versions
from tests.unit.conductor import clock
from tests.unit.conductor import fakes
from tests.unit.db import database

PROJECT = 'p'
CHECK = 50


class Agents:
    """Notes what hosts are sent."""

    def __init__(self):
        self.sent = []

    def perform(self, _ctxt, host, task):
        """A task goes to a host."""
        self.sent.append((host, task.kind, task.id))

    def cancel(self, _ctxt, host, task_id):
        """A host is down: nothing arrives there."""


class LeaseTest(database.DatabaseTest):

    def setUp(self):
        super().setUp()
        self.clock = clock.Clock(self)
        self.nova = fakes.Nova(PROJECT, 'q')
        self.agents = Agents()
        self.dispatcher = dispatch.Dispatcher(
            self.conf, self.database, self.agents, self.nova, 'me')
        self.addCleanup(self.dispatcher.stop)
        self.dispatcher.wake = lambda: None
        self.service = service.VersionService(
            self.conf, self.database, self.dispatcher, self.nova,
            self.agents)
        self.alive = {'h1', 'h2', 'hub'}
        self.beat()

    def beat(self):
        """Hosts that are alive say so."""
        for name in self.alive:
            self.write(host_rows.put_host, objects.Host(
                name=name, site='edge', url=f'http://{name}:1', capacity=1,
                role='repository' if name == 'hub' else 'compute'),
                self.clock.now)

    def kill(self, name):
        """A host is dead, and known to be."""
        self.alive.discard(name)
        self.write(_kill, name)

    def save(self, server='running'):
        """A save that its host begins."""
        new = objects.NewVersion(
            id=str(uuid.uuid4()), server_id=server, project_id=PROJECT,
            trigger=versions.REQUEST)
        self.service.create_version(None, new)
        self.dispatcher.look()
        return transactions.save_task(new)

    def wait(self, seconds, reporting=()):
        """Let time pass, with rounds of the conductor."""
        for _round in range(0, seconds, CHECK):
            self.clock.wait(seconds=CHECK)
            for task in reporting:
                self.report(task)
            self.dispatcher.look()

    def report(self, task, state=versions.RUNNING, host='h1', **values):
        return self.service.report_task(
            types.SimpleNamespace(bound_host=host), objects.TaskReport(
                task_id=task.id, state=state, **values))

    def row(self, task):
        return self.read(_row, task.id)

    def version(self, task):
        return self.read(db.need, task.version_id)


class TestLeases(LeaseTest):

    def test_a_save_of_a_dead_host_ends(self):
        task = self.save()
        self.assertEqual([('h1', versions.SAVE, task.id)], self.agents.sent)
        self.kill('h1')
        self.wait(versions.LEASE_SECONDS)
        self.assertEqual(versions.RUNNING, self.row(task).state)
        self.wait(CHECK)
        self.assertEqual((versions.FAILED, 'lease_lost'),
                         (self.row(task).state, self.row(task).error_code))
        self.assertEqual(versions.ERROR, self.version(task).state)
        # The host is back, and learns it.
        self.assertFalse(self.report(task))
        self.assertFalse(self.report(task, versions.CANCELLED))
        self.assertEqual(versions.FAILED, self.row(task).state)

    def test_one_that_is_reported_goes_on_for_as_long_as_it_takes(self):
        task = self.save()
        self.wait(5 * versions.LEASE_SECONDS, [task])
        self.assertEqual(versions.RUNNING, self.row(task).state)

    def test_a_restore_of_a_dead_host_ends(self):
        saved = self.save('stopped')
        self.report(saved, versions.DONE, saved=fakes.saved())
        task = objects.VersionTask(id=str(uuid.uuid4()),
                                   kind=versions.RESTORE)
        kept = str(uuid.uuid4())
        self.service.restore_version(None, saved.version_id, task.id, kept,
                                     False)
        self.dispatcher.look()
        self.kill('h1')
        self.wait(versions.LEASE_SECONDS + CHECK)
        self.assertEqual(versions.FAILED, self.row(task).state)
        self.assertEqual(versions.ERROR, self.read(db.need, kept).state)
        # The server may be restored again.
        self.service.restore_version(None, saved.version_id,
                                     str(uuid.uuid4()), None, False)

    def test_time_without_a_conductor_does_not_count(self):
        task = self.save()
        self.clock.wait(hours=3)
        self.dispatcher.look()
        self.wait(versions.LEASE_SECONDS - CHECK)
        self.assertEqual(versions.RUNNING, self.row(task).state)
        self.assertTrue(self.report(task))
        self.wait(versions.LEASE_SECONDS)
        self.assertEqual(versions.RUNNING, self.row(task).state)
        self.wait(CHECK)
        self.assertEqual(versions.FAILED, self.row(task).state)

    def test_a_task_of_any_host_is_done_by_another(self):
        self.report(self.save(), versions.DONE, saved=fakes.saved())
        task = objects.VersionTask(id=str(uuid.uuid4()),
                                   kind=versions.VERIFY, project_id=PROJECT)
        self.service.maintain_store(None, PROJECT, task.id, versions.VERIFY)
        self.dispatcher.look()
        self.assertEqual('hub', self.row(task).host)
        # It is alive, but does not perform it.
        self.wait(versions.LEASE_SECONDS + CHECK)
        self.assertEqual((versions.RUNNING, 'h1'),
                         (self.row(task).state, self.row(task).host))
        self.assertRaises(exceptions.Forbidden, self.report, task,
                          host='hub')

    def test_an_export_waits_for_a_repository(self):
        saved = self.save()
        self.report(saved, versions.DONE, saved=fakes.saved())
        self.kill('hub')
        task = objects.VersionTask(id=str(uuid.uuid4()),
                                   kind=versions.EXPORT)
        self.service.export_version(None, saved.version_id, task.id, '')
        self.dispatcher.look()
        self.assertEqual(versions.QUEUED, self.row(task).state)
        self.alive.add('hub')
        self.beat()
        self.dispatcher.look()
        self.assertEqual('hub', self.row(task).host)

    def test_a_cancelled_one_of_a_dead_host_is_cancelled(self):
        task = self.save()
        self.kill('h1')
        self.service.cancel_task(None, task.id)
        self.wait(versions.LEASE_SECONDS + CHECK)
        self.assertEqual(versions.CANCELLED, self.row(task).state)

    def test_a_host_that_missed_a_cancellation_learns_it(self):
        task = self.save()
        self.service.cancel_task(None, task.id)
        self.assertFalse(self.report(task))
        self.assertTrue(self.report(task, versions.CANCELLED))
        self.assertEqual(versions.CANCELLED, self.row(task).state)


class TestOthersOfTheProject(LeaseTest):

    def run_alone(self, host):
        """A task beside which no other changes the store."""
        task = objects.VersionTask(id=str(uuid.uuid4()), kind=versions.REKEY,
                                   project_id=PROJECT)
        self.write(version_tasks.create, task, self.clock.now)
        self.write(version_tasks.sent, task.id, host, self.clock.now)

    def test_a_dead_host_holds_no_other_writer_up(self):
        self.nova.change('stopped', host='h2')
        self.run_alone('h1')
        other = self.save('stopped')
        self.assertEqual(versions.QUEUED, self.row(other).state)
        self.kill('h1')
        self.dispatcher.look()
        self.assertEqual((versions.RUNNING, 'h2'),
                         (self.row(other).state, self.row(other).host))

    def test_a_catalogue_that_is_refused_is_decided_no_longer(self):
        """The version that it has may not be known yet."""
        self.conf.set_override('maintenance_hosts', ['hub'], 'versions')
        store = version_heads.ProjectStore(PROJECT, 'a' * 16)
        head = 1, 'd' * 64
        self.write(version_heads.move, store, None, head, 'h1',
                   self.clock.now)
        task = objects.VersionTask(id=str(uuid.uuid4()), kind=versions.ACCEPT,
                                   project_id=PROJECT)
        for host in ('h1', 'hub'):
            self.assertEqual(head, self.read(version_heads.read, store))
            self.write(version_tasks.create, task, self.clock.now)
            self.write(version_tasks.sent, task.id, host, self.clock.now)
            self.report(task, host=host, result=json.dumps(
                {'refused': [str(uuid.uuid4())], 'void': head}))
        self.assertIsNone(self.read(version_heads.read, store))

    def test_nor_nova_when_it_deletes_a_server(self):
        self.nova.change('stopped', host='h2', task='deleting')
        self.write(policies.put, objects.VersionPolicy(
            id=str(uuid.uuid4()), project_id=PROJECT, on_delete=True),
            self.clock.now)
        new = objects.NewVersion(
            id=str(uuid.uuid4()), server_id='stopped', project_id=PROJECT,
            trigger=versions.DELETE)
        self.run_alone('h1')
        self.assertRaises(exceptions.Busy, self.service.begin_local, None,
                          'h2', new)
        self.kill('h1')
        task, _required = self.service.begin_local(None, 'h2', new)
        self.assertEqual(versions.RUNNING, self.row(task).state)


class TestLateResults(LeaseTest):

    def lost(self):
        task = self.save()
        self.kill('h1')
        self.wait(versions.LEASE_SECONDS + CHECK)
        return task

    def test_a_version_that_was_saved_late_is_there(self):
        task = self.lost()
        self.report(task, versions.DONE, saved=fakes.saved())
        self.assertEqual(versions.DONE, self.row(task).state)
        self.assertEqual((versions.AVAILABLE, None), (
            self.version(task).state, self.version(task).error))

    def test_one_that_was_deleted_meanwhile_does_not_stay_in_the_store(self):
        task = self.lost()
        self.service.delete_version(None, task.version_id)
        for _report in range(2):
            self.report(task, versions.DONE, saved=fakes.saved())
        [forget] = [entry.task for entry in self.read(
            version_tasks.open_tasks)]
        self.assertEqual((versions.FORGET, fakes.saved().disks),
                         (forget.kind, forget.disks))

    def test_of_another_host_it_does_not_count(self):
        task = self.lost()
        self.assertRaises(exceptions.Forbidden, self.report, task,
                          versions.DONE, 'h2', saved=fakes.saved())

    def test_a_failure_of_another_kind_is_final(self):
        task = self.save()
        self.report(task, versions.FAILED, error='no', error_code='no_space')
        self.assertFalse(self.report(task, versions.DONE,
                                     saved=fakes.saved()))
        self.assertEqual(versions.ERROR, self.version(task).state)


class TestRemovedHosts(LeaseTest):

    def test_tasks_end_with_their_host(self):
        task = self.save()
        self.kill('h1')
        self.write(host_rows.remove_dead_host, 'h1')
        self.assertEqual((versions.FAILED, 'lease_lost'),
                         (self.row(task).state, self.row(task).error_code))
        self.assertEqual(versions.ERROR, self.version(task).state)

    def test_what_others_can_do_is_done_by_them(self):
        self.report(self.save(), versions.DONE, saved=fakes.saved())
        task = objects.VersionTask(id=str(uuid.uuid4()),
                                   kind=versions.VERIFY, project_id=PROJECT)
        self.service.maintain_store(None, PROJECT, task.id, versions.VERIFY)
        self.dispatcher.look()
        self.write(host_rows.remove_host, 'hub')
        self.assertEqual(versions.QUEUED, self.row(task).state)
        self.dispatcher.look()
        self.assertEqual('h1', self.row(task).host)


class TestReports(LeaseTest):

    def test_a_crash_loses_no_task_that_a_report_asks_for(self):
        self.conf.set_override('maintenance_hosts', ['hub'], 'versions')
        task = self.save()
        self.patch(version_tasks, 'create', _crash)
        self.assertRaises(ZeroDivisionError, self.report, task,
                          versions.DONE, saved=fakes.saved())
        self.assertEqual(versions.RUNNING, self.row(task).state)
        self.patch(version_tasks, 'create', _CREATE)
        self.report(task, versions.DONE, saved=fakes.saved())
        self.assertEqual([versions.ACCEPT], [
            entry.task.kind for entry in self.read(version_tasks.open_tasks)])

    def test_a_host_reports_no_disk_of_another_version(self):
        # Regression: the disks of the other version were deleted with either.
        self.report(self.save(), versions.DONE, saved=fakes.saved())
        second = self.save()
        self.assertRaises(exceptions.Forbidden, self.report, second,
                          versions.DONE, saved=fakes.saved())
        self.assertEqual([], db.disks(self.read(db.need, second.version_id)))
        self.report(second, versions.DONE, saved=fakes.saved(2))

    def test_a_host_reports_no_disk_of_another_version_as_one_that_is_gone(
            self):
        # Regression: a host could have any disk of the project deleted.
        self.report(self.save(), versions.DONE, saved=fakes.saved())
        second = self.save()
        self.write(db.remove, second.version_id)
        self.assertRaises(exceptions.Forbidden, self.report, second,
                          versions.DONE, saved=fakes.saved())

    def test_a_task_that_keeps_nothing_has_kept_nothing(self):
        task = self.save()
        self.assertRaises(exceptions.Forbidden, self.report, task,
                          versions.RUNNING, kept=fakes.saved())


_CREATE = version_tasks.create


def _crash(*_arguments):
    raise ZeroDivisionError


def _kill(session, name):
    session.query(models.Host).filter_by(name=name).one().alive = False


def _row(session, task_id):
    return session.get(models.VersionTask, task_id)
