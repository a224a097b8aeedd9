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
"""Volumes of Cinder in write-back, whose newest blocks are on one host alone.

They need an OpenStack that was brought up with ``--volumes``.
"""

import os
import pathlib
import signal
import uuid

from openstack import exceptions

from tests.functional.openstack import test_volumes

SECONDS = test_volumes.SECONDS
WRITE_BACK = {'diffcache:ssd_cache': 'write-back'}
BOOT_ID = '/proc/sys/kernel/random/boot_id'


class WriteBackTest(test_volumes.VolumeTest):
    """What trials of write-back do, and see of a volume."""

    def wait_until_dirty(self, volume):
        self.wait_until(lambda: self.cached()[volume]['dirty'],
                        'blocks are dirty')

    def snapshot(self, volume):
        """Make a snapshot of a volume in use; return its ID."""
        made = self.storage.create_snapshot(volume_id=volume, force=True)
        self.addCleanup(self._delete_snapshot, made)
        return self.storage.wait_for_status(made, 'available').id

    def _delete_snapshot(self, made):
        self.storage.delete_snapshot(made)
        self.storage.wait_for_delete(made)


class TestWriteBack(WriteBackTest):
    """The modes of a volume in use, its live migration and its detach."""

    def set_mode(self, volume, mode):
        self.type(f'volume cache set {volume} --mode {mode}')
        self.assertEqual(mode, self.cached()[volume]['mode'])

    def migrate(self, server, host):
        self.compute.live_migrate_server(server, host=host,
                                         block_migration='auto')

    def assert_stays(self, server):
        """Nova refuses a live migration before it begins."""
        self.assertRaises(exceptions.BadRequestException, self.migrate,
                          server, self.trial.hosts[1])
        found = self.compute.get_server(server)
        self.assertEqual((self.host, 'ACTIVE'),
                         (found.compute_host, found.status))

    def test_a_snapshot_a_live_migration_and_a_detach(self):
        kind = self.volume_type(test_volumes.TYPE)
        volume = self.volume(kind)
        server = self.worker(test_volumes.NOT_GROWN)
        self.attach(server, volume)
        self.guest_said(server, 'round=10')
        # Changed while it is written.
        self.type(f'volume type set {kind} --ssd-cache write-back')
        self.assertEqual('write-back', self.cached()[volume]['mode'])
        self.wait_until_dirty(volume)
        self.snapshot(volume)
        # It was held meanwhile.
        self.wait_until_dirty(volume)
        # Nothing can say that it was written back.
        with self.trial.stopped(f'{self.host}-agent'):
            self.assert_stays(server)
        self.wait_until_dirty(volume)
        before, self.host = self.local, self.trial.hosts[1]
        self.migrate(server, self.host)
        self.wait_until(
            lambda: self.compute.get_server(server).compute_host == self.host,
            'it runs on the other host', SECONDS)
        self.wait_for_status(server, 'ACTIVE')
        self.assertNotIn(volume, before.ssd_cache()['volumes'])
        self.local = self.agent(self.host)
        self.assertEqual('write-back', self.cached()[volume]['mode'])
        self.wait_until_dirty(volume)
        self.set_mode(volume, 'write-through')
        self.assertEqual(0, self.cached()[volume]['dirty'])
        self.set_mode(volume, 'write-back')
        self.storage.extend_volume(volume, 2)
        done = self.guest_said(server, 'done')
        self.assertEqual('0', done['wrong'])
        self.detach(server, volume)
        self.assertNotIn(volume, self.cached())
        self.assertEqual(done['left'], self.sum(volume))

    def test_a_detach_while_the_agent_does_not_answer(self):
        volume = self.volume(self.volume_type(WRITE_BACK))
        server = self.worker()
        self.attach(server, volume)
        done = self.guest_said(server, 'done')
        with self.trial.stopped(f'{self.host}-agent'):
            self.trial.admin.compute.delete_volume_attachment(server, volume)
            self.guest_said(server, 'gone')
            # It is free for no one else.
            self.storage.wait_for_status(
                self.storage.get_volume(volume), 'in-use',
                failures=['available', 'error'], wait=SECONDS)
        self.assertIn(volume, self.cached())
        self.detach(server, volume)
        self.assertNotIn(volume, self.cached())
        self.assertEqual(done['left'], self.sum(volume))

    def test_a_kill_and_a_server_that_is_deleted(self):
        volume = self.volume(self.volume_type(WRITE_BACK))
        server = self.worker()
        self.attach(server, volume)
        self.guest_said(server, 'round=10')
        self.wait_until_dirty(volume)
        self.trial.kill_ssd_cache(self.host)
        done = self.guest_said(server, 'done')
        self.assertEqual('0', done['wrong'])
        self.assertGreater(self.cached()[volume]['dirty'], 0)
        self.assertNotEqual(done['left'], self.sum(volume))
        # What is left of it is written back before others may have it.
        with self.trial.stopped(f'{self.host}-agent'):
            self.compute.delete_server(server)
            self.wait_for_status(server, 'ERROR')
            self.assertEqual('in-use',
                             self.storage.get_volume(volume).status)
        self.compute.delete_server(server)
        self.storage.wait_for_status(self.storage.get_volume(volume),
                                     'available', wait=SECONDS)
        self.assertNotIn(volume, self.cached())
        self.assertEqual(done['left'], self.sum(volume))


class OperationTest(WriteBackTest):
    """A server with dirty blocks.

    The guest writes its blocks once in each boot, and leaves them dirty.
    """

    def setUp(self):
        super().setUp()
        kind = self.volume_type(WRITE_BACK)
        # Deleted after the volume, which may be of this type by then.
        self.twin = self.volume_type_like(kind)
        self.volume_id = self.volume(kind)
        self.server_id = self.worker()
        self.attach(self.server_id, self.volume_id)

    def volume_type_like(self, kind):
        """Make another volume type with the same QoS specs; return its name.

        Cinder has to move the data of a volume that is to be of this type.
        """
        [specs] = [each.id for each in self.storage.qos_specs()
                   if each.name == kind]
        made = self.storage.create_type(
            name=f'{kind}-twin', extra_specs={'volume_backend_name': 'files'})
        self.addCleanup(self.storage.delete_type, made)
        self.storage.get(
            f'/qos-specs/{specs}/associate?vol_type_id={made.id}')
        return made.name

    def origin(self, volume):
        """The file that a volume is, also after Cinder has migrated it."""
        found = self.storage.get_volume(volume)
        return super().origin(found.migration_id or volume)

    def use_host(self, host):
        """Look at another host from now on."""
        self.host, self.local = host, self.agent(host)

    def written(self, boot=1):
        """Wait until the guest has written; return the checksum.

        The volume lacks a part of it.
        """
        done = self.guest_said(self.server_id, 'done', boot)
        self.assertEqual('0', done['wrong'])
        self.assertGreater(self.cached()[self.volume_id]['dirty'], 0)
        self.assertNotEqual(done['left'], self.sum(self.volume_id))
        return done['left']

    def assert_finds(self, left, boot):
        """The guest has found in a boot what it left before."""
        self.assertEqual(left, self.guest_said(
            self.server_id, 'found=', boot)['found'])

    def assert_written_back(self, left):
        """The volume has everything, and no host has anything of it."""
        self.assertEqual(left, self.sum(self.volume_id))
        for host in self.trial.hosts:
            self.assertNotIn(self.volume_id,
                             self.agent(host).ssd_cache()['volumes'])


class TestOneHost(OperationTest):
    """Operations of Nova and Cinder that leave the server on its host."""

    def test_a_hard_reboot_and_a_stop(self):
        left = self.written()
        self.compute.reboot_server(self.server_id, 'HARD')
        self.assert_finds(left, boot=2)
        left = self.written(boot=2)
        self.compute.stop_server(self.server_id)
        self.wait_for_status(self.server_id, 'SHUTOFF')
        self.compute.start_server(self.server_id)
        self.assert_finds(left, boot=3)
        left = self.written(boot=3)
        self.detach(self.server_id, self.volume_id)
        self.assert_written_back(left)

    def test_a_snapshot_after_a_flush(self):
        left = self.written()
        self.type(f'volume cache flush {self.volume_id}')
        copy = self.storage.create_volume(
            size=1, snapshot_id=self.snapshot(self.volume_id))
        self.addCleanup(self._delete_volume, copy.id)
        self.storage.wait_for_status(copy, 'available')
        self.assertEqual(left, self.sum(copy.id))
        self.detach(self.server_id, self.volume_id)

    def test_a_volume_that_cinder_migrates(self):
        left = self.written()
        self.storage.retype_volume(self.volume_id, self.twin, 'on-demand')
        self.wait_until(self.is_retyped, 'Cinder has migrated it', SECONDS)
        self.assertEqual(left, self.sum(self.volume_id))
        self.assert_one_is_attached('write-through')
        # It has the mode of its type when it is attached again.
        self.compute.reboot_server(self.server_id, 'HARD')
        self.assert_finds(left, boot=2)
        left = self.written(boot=2)
        self.assert_one_is_attached('write-back')
        self.detach(self.server_id, self.volume_id)
        self.assertEqual({}, self.cached())
        self.assert_written_back(left)

    def is_retyped(self):
        found = self.storage.get_volume(self.volume_id)
        self.assertNotEqual('error', found.migration_status)
        return (found.volume_type, found.status) == (self.twin, 'in-use')

    def assert_one_is_attached(self, mode):
        """The cache has the volume once, whatever its name is there."""
        [found] = self.cached().values()
        self.assertEqual(mode, found['mode'])


class TestMoves(OperationTest):
    """Operations of Nova after which the server may be on another host."""

    def moved(self):
        """Wait until the server is on the host that it was moved to."""
        self.use_host(self.wait_for_status(
            self.server_id, 'VERIFY_RESIZE').compute_host)

    def test_a_cold_migration_and_a_resize_that_are_reverted(self):
        left = self.written()
        self.compute.migrate_server(self.server_id, host=self.trial.hosts[1])
        self.moved()
        self.assertEqual(self.trial.hosts[1], self.host)
        self.assert_finds(left, boot=2)
        left = self.written(boot=2)
        self.compute.revert_server_resize(self.server_id)
        self.wait_for_status(self.server_id, 'ACTIVE')
        self.use_host(self.trial.hosts[0])
        # The server's own disk is that of its first boot.
        self.assert_finds(left, boot=2)
        left = self.written(boot=2)
        self.compute.resize_server(self.server_id,
                                   self.trial.flavor('small'))
        self.moved()
        self.assert_finds(left, boot=3)
        left = self.written(boot=3)
        self.compute.revert_server_resize(self.server_id)
        self.wait_for_status(self.server_id, 'ACTIVE')
        self.use_host(self.trial.hosts[0])
        self.assert_finds(left, boot=3)
        left = self.written(boot=3)
        self.detach(self.server_id, self.volume_id)
        self.assert_written_back(left)

    def test_a_server_that_is_shelved(self):
        left = self.written()
        self.compute.shelve_server(self.server_id)
        found = self.wait_for_status(self.server_id, 'SHELVED',
                                     'SHELVED_OFFLOADED')
        if found.status == 'SHELVED':
            self.compute.shelve_offload_server(self.server_id)
            self.wait_for_status(self.server_id, 'SHELVED_OFFLOADED')
        self.assert_written_back(left)
        self.compute.unshelve_server(self.server_id)
        self.use_host(self.wait_for_status(self.server_id,
                                           'ACTIVE').compute_host)
        self.assert_finds(left, boot=2)
        left = self.written(boot=2)
        self.detach(self.server_id, self.volume_id)
        self.assert_written_back(left)


class TestCrash(OperationTest):
    """A host that is started again after a power cut."""

    def setUp(self):
        self.has_crashed = False
        # Called last, when no volume is attached any more.
        self.addCleanup(self.end_crashes)
        super().setUp()

    def end_crashes(self):
        """Start the cache with the machine's own boot ID again."""
        if self.has_crashed:
            self.restore_boot_id()
            self.trial.kill_ssd_cache(self.host)

    def restore_boot_id(self):
        self.trial.run(*self.trial.processes.enter(self.host), 'umount',
                       BOOT_ID)

    def crash(self):
        """End the host without warning, and start it again."""
        guest = int(self.trial.inside(self.host, pathlib.Path(
            '/run/libvirt/qemu', self.compute.get_server(
                self.server_id).instance_name).with_suffix('.pid')
        ).read_text())
        boot = self.write_file(uuid.uuid4().hex, f'{uuid.uuid4()}\n'.encode())
        enter = self.trial.processes.enter(self.host)
        with self.trial.stopped(
                *(f'{self.host}-{name}' for name
                  in ('nova', 'agent', 'ssd-cache')), number=signal.SIGKILL):
            os.kill(guest, signal.SIGKILL)
            if self.has_crashed:
                self.restore_boot_id()
            self.trial.run(*enter, 'mount', '--bind', boot, BOOT_ID)
            self.has_crashed = True

    def assert_held(self, left):
        """Nothing is written before Nova has connected the volume."""
        found = self.cached()[self.volume_id]
        self.assertEqual('held', found['state'])
        self.assertGreater(found['dirty'], 0)
        self.assertNotEqual(left, self.sum(self.volume_id))

    def recover(self):
        """Write the dirty blocks back by hand."""
        device = self.trial.run(
            'losetup', '--noheadings', '--output', 'NAME', '--associated',
            self.origin(self.volume_id)).strip()
        self.trial.run(
            *self.trial.processes.enter(self.host),
            self.trial.where.suite_program('diffcache'), 'ssdcache', 'recover',
            '--control', self.trial.where.host / 'ssd-cache/control.sock',
            self.volume_id, device)

    def test_a_server_that_is_started_and_a_recovery_by_hand(self):
        left = self.written()
        self.crash()
        self.assert_held(left)
        self.compute.reboot_server(self.server_id, 'HARD')
        self.assert_finds(left, boot=2)
        left = self.written(boot=2)
        self.crash()
        self.assert_held(left)
        self.recover()
        self.assertEqual(left, self.sum(self.volume_id))
        self.compute.reboot_server(self.server_id, 'HARD')
        self.assert_finds(left, boot=3)
        left = self.written(boot=3)
        self.detach(self.server_id, self.volume_id)
        self.assert_written_back(left)
