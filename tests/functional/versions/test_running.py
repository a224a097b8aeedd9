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
"""Versions of disks whose guests run, in a real QEMU."""

import pathlib
import shutil
import unittest

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.guests import snapshots
from diffcache_openstack.versions.restore import rollback
from diffcache_openstack.versions.save import save_request
from diffcache_openstack.versions.save import saving
from tests.functional.fixtures import qemu
from tests.unit.versions import fixture


@unittest.skipUnless(shutil.which(qemu.PROGRAM) and fixture.has_qemu(),
                     f'needs {qemu.PROGRAM} and {fixture.NEEDS_QEMU}')
class TestRunning(fixture.VersionsTestCase):
    """The guest has no system; QEMU itself writes as it would."""

    def setUp(self):
        super().setUp()
        self.base_image = self.write_file('base', self.blocks_of(512))
        self.disks = [self.directory / f'disk-{i}.qcow2' for i in range(2)]
        for disk in self.disks:
            fixture.make_qcow2(disk, 64 << 20, self.base_image)
        self.socket = self.directory / 'qmp'
        drives = []
        for i, disk in enumerate(self.disks):
            drives += ['-blockdev', (
                f'driver=qcow2,node-name=libvirt-{i}-format,file.driver=file,'
                f'file.filename={disk},discard=unmap'),
                '-device',
                f'virtio-blk-pci,id=disk{i},drive=libvirt-{i}-format']
        self.process = self.useFixture(
            qemu.Qemu(self.socket, *drives)).process

    def guest_writes(self, number: int, *commands: str) -> None:
        """Let QEMU write to a disk as its guest would."""
        with snapshots.Monitor(self.socket) as monitor:
            for command in commands:
                answer = monitor.command(
                    'human-monitor-command', **{'command-line': (
                        f'qemu-io -d /machine/peripheral/disk{number}/'
                        f'virtio-backend "{command}"')})
                self.assertEqual('', answer)

    def request(self, number: int) -> save_request.SaveRequest:
        disk = self.disks[number]
        return save_request.SaveRequest(
            disk, f'vm-{number}', base=self.base_image, disk_format='qcow2',
            snapshotter=snapshots.RunningSnapshotter(self.socket, [disk]))

    def patterns(self, version) -> bytes:
        """The first byte of each MiB of a version."""
        return self.content(version, self.base_image)[::1 << 20]

    def test_versions_of_a_running_guest(self):
        self.guest_writes(0, 'write -P 1 10M 1M', 'write -P 2 20M 4k')
        first = saving.save(self.access, self.request(0))
        self.guest_writes(0, 'write -P 3 20M 4k', 'write -P 4 30M 64k')
        second = saving.save(self.access, self.request(0))
        self.guest_writes(0, 'write -P 5 10M 1M')
        self.assertEqual((256 + 1, 17), (first.blocks_changed,
                                         second.blocks_changed))
        # Two clusters, and tables.
        self.assertLess(second.bytes_read, 512 << 10)
        self.assertEqual(b'\1\2\0', self.patterns(first)[10:31:10])
        self.assertEqual(b'\1\3\4', self.patterns(second)[10:31:10])
        self.assertGreater(second.pause_ms, 0)

    def test_only_the_newest_snapshot_stays_in_the_disk(self):
        saving.save(self.access, self.request(0))
        version = saving.save(self.access, self.request(0))
        with snapshots.Monitor(self.socket) as monitor:
            nodes = monitor.command('query-named-block-nodes')
        names = [each['name'] for node in nodes if node['drv'] == 'qcow2'
                 for each in node['image'].get('snapshots', ())]
        self.assertEqual([version.snapshots[0].name], names)

    def test_all_disks_of_a_guest_in_one_transaction(self):
        both = snapshots.RunningSnapshotter(self.socket, self.disks)
        both.create('together')
        requests = [
            save_request.SaveRequest(disk, f'vm-{i}', base=self.base_image,
                                     disk_format='qcow2',
                                     snapshot='together')
            for i, disk in enumerate(self.disks)]
        self.guest_writes(1, 'write -P 9 0 4k')
        versions = saving.save_disks(self.access, requests)
        for version in versions:
            self.assertEqual(self.base_image.read_bytes(),
                             self.content(version,
                                          self.base_image)[:512 * 4096])
        both.delete('together')

    def test_a_disk_that_the_guest_does_not_have_is_not_found(self):
        other = self.directory / 'other.qcow2'
        fixture.make_qcow2(other, 1 << 20)
        self.assertRaises(exceptions.NotFound, snapshots.RunningSnapshotter(
            self.socket, [other]).create, 'x')

    def test_a_running_guests_disk_is_not_rolled_back(self):
        version = saving.save(self.access, self.request(0))
        request = save_request.SaveRequest(
            self.disks[0], 'vm-0', base=self.base_image, disk_format='qcow2',
            snapshotter=snapshots.OfflineSnapshotter(self.disks[0]))
        self.guest_writes(0, 'write -P 1 0 4k')
        self.assertRaises(exceptions.Busy, rollback.roll_back, self.access,
                          version.id, request, keep=False)

    def test_a_dead_monitor_is_unavailable(self):
        self.process.kill()
        self.process.wait()
        self.assertRaises(
            exceptions.ServiceUnavailable,
            snapshots.RunningSnapshotter(
                pathlib.Path(self.socket), self.disks).create, 'x')
