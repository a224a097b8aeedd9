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
"""Backups of volumes: conductor, agent and its socket, without a broker."""

import contextlib
import os
import types
import uuid

from diffcache_openstack.agent.local import local_server
from diffcache_openstack.agent.local import volume_api
from diffcache_openstack.agent.versions import version_service
from diffcache_openstack.agent_client import volume_client
from diffcache_openstack.common import exceptions
from diffcache_openstack.conductor.versions import backups
from diffcache_openstack.conductor.versions import heads
from diffcache_openstack.conductor.versions import project_shares
from diffcache_openstack.conductor.versions import service
from diffcache_openstack.db import listing
from diffcache_openstack.db import quota_usage
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack.db.versions import server_versions as db
from diffcache_openstack.db.versions import tasks as db_tasks
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from diffcache_openstack.objects import versions
from tests.unit.conductor import fakes
from tests.unit.db import database

PROJECT, VOLUME = 'p', 'volume-1'
BLOCK = 4096
SIZE = 64 * BLOCK
AGENT = types.SimpleNamespace(bound_host='h1')


class Conductor:
    """What the agent calls."""

    def __init__(self, *endpoints):
        self._endpoints = endpoints
        self.reachable = True

    def __getattr__(self, name):
        found = next(getattr(each, name) for each in self._endpoints
                     if hasattr(each, name))

        def call(_context, *args):
            if not self.reachable:
                raise exceptions.ServiceUnavailable('no conductor')
            return found(AGENT, *args)
        return call


class Agents:
    """How the conductor reaches the agent."""

    def __init__(self):
        self.service = None

    def cancel(self, _context, _host, task_id):
        self.service.tasks.cancel(task_id)


class BackupsTest(database.DatabaseTest):

    def setUp(self):
        super().setUp()
        agents = Agents()
        self.dispatcher = types.SimpleNamespace(
            wake=lambda: None, alone=project_shares.ALONE)
        self.versions = service.VersionService(
            self.conf, self.database, self.dispatcher,
            fakes.Nova(PROJECT, 'q'), agents)
        self.backups = backups.Backups(self.database, self.dispatcher, agents)
        self.write(host_rows.put_host, objects.Host(
            name='h1', site='edge', url='http://h1:1', capacity=1,
            role='compute'), versioned.now())
        self.conf.set_override('state_dir', str(self.directory / 'agent'),
                               'agent')
        self.conf.set_override('store', f'file://{self.directory}/store',
                               'versions')
        self.conductor = Conductor(self.versions,
                                   heads.StoreHeads(self.database))
        self.agents = agents
        self.start_agent()
        self.volume = self.directory / 'volume'
        with self.volume.open('wb') as stream:
            stream.truncate(SIZE)
        self.fill(0, b'a' * BLOCK * 4)

    def start_agent(self):
        """Start an agent, with the state of the one before."""
        self.service = version_service.VersionService(
            self.conf, None, self.conductor, 'h1')
        self.agents.service = self.service
        self.service.start()
        self.addCleanup(self.service.stop)
        path = self.directory / 'cinder.sock'
        server = local_server.LocalServer(
            path, local_server.Access('cinder_socket'),
            volume_api.VolumeApi(self.service))
        server.start()
        self.addCleanup(server.stop)
        self.client = volume_client.VolumeClient(str(path))

    def fill(self, block, data):
        with self.volume.open('r+b') as stream:
            stream.seek(block * BLOCK)
            stream.write(data)

    def new(self, backup_id, project_id=PROJECT, volume_id=VOLUME):
        return objects.NewVersion(
            id=backup_id, project_id=project_id, volume_id=volume_id,
            volume_metadata='{"version": 2}')

    def begin(self, backup_id, **options):
        return self.backups.begin_backup(
            None, self.new(backup_id, **options), 'h1')

    @contextlib.contextmanager
    def opened(self, flags=os.O_RDONLY, path=None):
        descriptor = os.open(path or self.volume, flags)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def back_up(self, **options):
        """Back the volume up; return the id of the backup."""
        backup_id = str(uuid.uuid4())
        task_id = self.begin(backup_id, **options)
        with self.opened() as descriptor:
            self.saved = self.client.perform(task_id, descriptor)
        return backup_id

    def restore(self, backup_id, path=None):
        """Write a backup to a volume; return the figures and metadata."""
        task_id, metadata = self.backups.begin_restore(
            None, backup_id, PROJECT, 'another-volume', 'h1')
        with self.opened(os.O_RDWR, path) as descriptor:
            return self.client.perform(task_id, descriptor), metadata

    def delete(self, backup_id):
        """Delete a backup, and do what the conductor queues for that."""
        self.backups.delete_backup(None, backup_id, PROJECT)
        for entry in self.read(db_tasks.open_tasks):
            if entry.state == versions.QUEUED:
                self.write(db_tasks.sent, entry.task.id, 'h1',
                           versioned.now())
                self.assertTrue(
                    self.service.tasks.perform(entry.task).ended.wait(60))

    def stored(self):
        """Return the ids of versions in the store."""
        store = self.service.stores.open(PROJECT)
        return [version.id for version in store.versions()]

    def state(self, backup_id):
        return self.read(db.need, backup_id).state


class TestBackups(BackupsTest):

    def test_a_backup_costs_what_changed_and_is_restored_alone(self):
        first = self.back_up()
        self.assertEqual(4 * BLOCK, self.saved['bytes_changed'])
        before = self.volume.read_bytes()
        self.fill(9, b'b' * BLOCK)
        second = self.back_up()
        self.assertEqual(BLOCK, self.saved['bytes_changed'])
        after = self.volume.read_bytes()
        self.delete(first)
        self.assertEqual(1, len(self.stored()))
        self.volume.write_bytes(before)
        written, metadata = self.restore(second)
        self.assertEqual((BLOCK, '{"version": 2}'),
                         (written['bytes_written'], metadata))
        self.assertEqual(after, self.volume.read_bytes())

    def test_a_new_volume_that_is_larger_keeps_what_is_behind(self):
        backup = self.back_up()
        other = self.directory / 'other'
        other.write_bytes(b'x' * (SIZE + BLOCK))
        self.restore(backup, other)
        self.assertEqual(self.volume.read_bytes() + b'x' * BLOCK,
                         other.read_bytes())

    def test_an_empty_file_grows_and_stays_sparse(self):
        backup = self.back_up()
        other = self.directory / 'other'
        other.touch()
        written, _metadata = self.restore(backup, other)
        self.assertEqual(self.volume.read_bytes(), other.read_bytes())
        self.assertEqual(4 * BLOCK, written['bytes_written'])

    def test_beginning_again_is_the_same_until_it_is_saved(self):
        backup = str(uuid.uuid4())
        task_id = self.begin(backup)
        self.assertEqual(task_id, self.begin(backup))
        with self.opened() as descriptor:
            self.client.perform(task_id, descriptor)
            self.assertIsNone(self.begin(backup))
            # The task has ended.
            self.assertRaises(exceptions.PermanentError, self.client.perform,
                              task_id, descriptor)

    def test_one_of_a_project_saves_at_a_time(self):
        self.begin(str(uuid.uuid4()))
        self.assertRaises(exceptions.Busy, self.begin, str(uuid.uuid4()))
        self.assertIsNotNone(self.begin(str(uuid.uuid4()), project_id='q'))

    def test_the_id_is_of_one_project_and_volume(self):
        backup = self.back_up()
        for other in ({'project_id': 'q'}, {'volume_id': 'v2'}):
            self.assertRaises(exceptions.Conflict, self.begin, backup,
                              **other)
        for call in (self.backups.verify_backup,
                     lambda *args: self.backups.begin_restore(
                         *args, 'v', 'h1')):
            self.assertRaises(exceptions.NotFound, call, None, backup, 'q')
        self.backups.delete_backup(None, backup, 'q')
        self.assertEqual(versions.AVAILABLE, self.state(backup))

    def test_an_agent_that_stopped_is_called_again(self):
        """Its task ends, and the next one finds what was saved."""
        backup = str(uuid.uuid4())
        task_id = self.begin(backup)
        self.conductor.reachable = False
        task = self.read(db_tasks.find, task_id)[0]
        with self.opened() as descriptor, \
                self.service._volumes.lent(task_id, descriptor):
            # The conductor does not learn of it.
            running = self.service.tasks.perform_on_volume(task)
            running.ended.wait(0.5)
        self.service.stop()
        self.conductor.reachable = True
        self.start_agent()
        with self.opened() as descriptor:
            while (task_id := self.begin(backup)) is not None:
                with contextlib.suppress(exceptions.Cancelled,
                                         exceptions.Forbidden):
                    self.client.perform(task_id, descriptor)
        self.assertEqual(1, len(self.stored()))
        self.assertEqual(versions.AVAILABLE, self.state(backup))

    def test_a_deletion_cancels(self):
        backup = str(uuid.uuid4())
        task_id = self.begin(backup)
        self.delete(backup)
        self.assertRaises(exceptions.NotFound, self.state, backup)
        with self.opened() as descriptor:
            self.assertRaises(exceptions.DiffCacheError, self.client.perform,
                              task_id, descriptor)
        # Again is no error.
        self.delete(backup)

    def test_a_save_that_the_conductor_missed_is_deleted(self):
        backup = str(uuid.uuid4())
        task_id = self.begin(backup)
        store = self.service.stores.open_for_save(PROJECT, task_id)
        with self.opened() as descriptor:
            store.save_volume(descriptor, 'volume-x', token=backup)
        self.assertEqual(1, len(self.stored()))
        self.delete(backup)
        self.assertEqual([], self.stored())

    def test_a_client_that_goes_ends_the_task(self):
        backup = str(uuid.uuid4())
        task_id = self.begin(backup)
        real = self.service.tasks._work.perform

        def perform(running):
            running.cancel.wait(60)
            real(running)

        self.patch(self.service.tasks._work, 'perform', perform)

        def give_up(_done, _total):
            raise KeyboardInterrupt()

        with self.opened() as descriptor:
            self.assertRaises(KeyboardInterrupt, self.client.perform, task_id,
                              descriptor, progress=give_up)
        self.assertTrue(self.service.tasks._known[task_id].ended.wait(60))
        self.patch(self.service.tasks._work, 'perform', real)
        self.assertEqual(versions.ERROR, self.state(backup))
        # It goes when it is deleted in Cinder, and not before.
        self.write(db.forget_failed, versioned.now())
        self.assertEqual(versions.ERROR, self.state(backup))
        self.delete(backup)
        self.assertRaises(exceptions.NotFound, self.state, backup)

    def test_only_descriptors_of_volumes_are_taken(self):
        task_id = self.begin(str(uuid.uuid4()))
        reading, writing = os.pipe()
        self.addCleanup(os.close, reading)
        self.addCleanup(os.close, writing)
        self.assertRaises(exceptions.InvalidInput, self.client.perform,
                          task_id, reading)

    def test_tasks_of_others_are_refused(self):
        task_id = self.backups.begin_backup(
            None, self.new(str(uuid.uuid4())), 'h2')
        with self.opened() as descriptor:
            for each in (task_id, str(uuid.uuid4())):
                self.assertRaises(exceptions.PermanentError,
                                  self.client.perform, each, descriptor)

    def test_servers_versions_do_not_know_of_backups(self):
        backup = self.back_up()
        viewer = listing.Viewer(PROJECT, sees_all=True)
        self.assertRaises(exceptions.NotFound, self.read, db.get_version,
                          viewer, backup)
        self.assertEqual([], self.read(db.servers_of, PROJECT))
        self.assertTrue(self.read(db.has_any, PROJECT))
        self.assertEqual(0, self.read(quota_usage.versions, PROJECT))
        server = objects.NewVersion(id=str(uuid.uuid4()), server_id='s',
                                    project_id=PROJECT)
        self.write(db.create, server, versioned.now())
        self.assertRaises(exceptions.NotFound, self.backups.verify_backup,
                          None, server.id, PROJECT)
        self.assertRaises(exceptions.InvalidInput, self.backups.begin_backup,
                          None, server, 'h1')
