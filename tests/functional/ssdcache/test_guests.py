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
"""A running server whose cached volume grows, with QEMU and libvirt."""

import json
import os
import shutil
import socket
import subprocess
import unittest
import uuid

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import qemu_monitor
from diffcache_openstack.nova import block_nodes
from diffcache_openstack.nova import guest_disks
from diffcache_openstack.nova import volume_nodes
from diffcache_openstack.ssdcache import control
from tests.functional.fixtures import libvirt as libvirts
from tests.functional.lazy import test_guests
from tests.functional.ssdcache import test_attach
from tests import waiting

GROWN = 2 * test_attach.SIZE
DOMAIN = '''
<domain type="qemu">
  <name>{name}</name><uuid>{name}</uuid>
  <memory unit="MiB">64</memory><vcpu>1</vcpu>
  <os><type arch="x86_64">hvm</type></os>
  <devices>{disk}</devices>
</domain>
'''
CACHED_DISK = '''
<disk type="network" device="disk">
  <driver name="qemu" type="raw" cache="none" discard="unmap"
    error_policy="stop" rerror_policy="stop"/>
  <source protocol="nbd" name="{export}">
    <host transport="unix" socket="{socket}"/></source>
  <target dev="vda" bus="virtio"/><serial>a</serial>
</disk>
'''


@unittest.skipUnless(libvirts.is_there(), libvirts.NEEDS)
class TestExtend(test_attach.AttachTest):

    def setUp(self):
        super().setUp()
        import libvirt
        import libvirt_qemu
        self.libvirt = self.useFixture(libvirts.Libvirt())
        self.attach('a')
        export = control.send(self.control, 'status')[
            'volumes']['a']['export']
        self.domain = self.libvirt.connection.defineXML(DOMAIN.format(
            name=uuid.uuid4(), disk=CACHED_DISK.format(
                export=export, socket=self.directory / 'nbd')))
        self.domain.create()
        self.monitor = qemu_monitor.Monitor(libvirt, libvirt_qemu,
                                            self.domain)
        self.disk = volume_nodes.of(
            guest_disks.find(self.domain.XMLDesc(0), 'a'))
        if 'libvirt-1-format' not in self.nodes():
            self.skipTest('needs libvirt before 11.3, whose raw disks have a'
                          ' node of a format')

    def grow(self, size=GROWN):
        os.truncate(self.origins['a'], size)
        control.send(self.control, 'resize', volume='a')

    def disconnect(self):
        control.send(self.control, 'disconnect', volume='a')

    def nodes(self):
        return {node['node-name']: {**node, 'image': None}
                for node in self.monitor.command(
                    'query-named-block-nodes', flat=True)
                if not node['node-name'].startswith('#')}

    def size(self):
        """What the guest's device has."""
        [device] = self.monitor.command('query-block')
        return device['inserted']['image']['virtual-size']

    def test_the_guest_writes_beyond_the_old_end(self):
        described, nodes = self.domain.XMLDesc(0), self.nodes()
        self.libvirt.guest_writes(self.domain, 'write -P 1 0 64k')
        self.grow()
        self.assertEqual(test_attach.SIZE, self.size())
        volume_nodes.show_size(self.monitor, self.disk, GROWN,
                               self.disconnect)
        self.assertEqual(GROWN, self.size())
        self.libvirt.guest_writes(
            self.domain, f'write -P 2 {GROWN - 65536} 64k', 'flush')
        with open(self.origins['a'], 'rb') as file:
            self.assertEqual(bytes([1]) * 65536, file.read(65536))
            file.seek(GROWN - 65536)
            self.assertEqual(bytes([2]) * 65536, file.read())
        # Nothing that libvirt knows has changed: it can detach the disk.
        self.assertEqual(described, self.domain.XMLDesc(0))
        self.assertEqual(json.dumps(nodes, sort_keys=True),
                         json.dumps(self.nodes(), sort_keys=True))

    def test_cut_off_after_each_step_and_called_again(self):
        self.grow()
        # The nodes, two times add, use and delete, the nodes, and the size
        for commands in range(9):
            cut = test_guests.CutMonitor(self.monitor, commands)
            self.assertRaises(test_guests.Cut, volume_nodes.show_size, cut,
                              self.disk, GROWN, self.disconnect)
            self.libvirt.guest_writes(self.domain, 'write -P 3 0 64k')
            volume_nodes.show_size(self.monitor, self.disk, GROWN,
                                   self.disconnect)
            self.assertEqual(GROWN, self.size())

    def test_a_volume_that_did_not_grow(self):
        error = self.assertRaises(exceptions.PermanentError,
                                  volume_nodes.show_size, self.monitor,
                                  self.disk, GROWN, self.disconnect)
        self.assertIn('grow', str(error))
        self.assertEqual(test_attach.SIZE, self.size())
        self.libvirt.guest_writes(self.domain, 'write -P 1 0 64k')


class PlainMonitor:
    """The monitor of a QEMU that no libvirt has started."""

    def __init__(self, path):
        self._socket = socket.socket(socket.AF_UNIX)
        # The same socket may be connected after attempts in vain.
        waiting.until(lambda: not self._socket.connect(str(path)), 'QEMU',
                      OSError)
        self._file = self._socket.makefile('rw')
        json.loads(self._file.readline())
        self.command('qmp_capabilities')

    def close(self):
        self._file.close()
        self._socket.close()

    def command(self, name, /, **arguments):
        self._file.write(json.dumps(
            {'execute': name, 'arguments': arguments}) + '\n')
        self._file.flush()
        while True:
            answer = json.loads(self._file.readline())
            if 'error' in answer:
                raise exceptions.PermanentError(answer['error']['desc'])
            if 'return' in answer:
                return answer['return']


@unittest.skipUnless(shutil.which('qemu-system-x86_64'), 'needs QEMU')
class TestExtendAnew(test_attach.AttachTest):
    """A disk as newer libvirt gives it to QEMU.

    The guest's device has the node of the storage, which waits for the cache
    when its connection ends.
    """

    NODE = 'libvirt-1-storage'

    def setUp(self):
        super().setUp()
        self.attach('a')
        export = control.send(self.control, 'status')[
            'volumes']['a']['export']
        socket_path = str(self.directory / 'nbd')
        path = self.directory / 'monitor'
        process = subprocess.Popen(
            ['qemu-system-x86_64', '-S', '-nodefaults', '-display', 'none',
             '-machine', 'q35,accel=tcg', '-m', '64',
             '-blockdev', json.dumps({
                 'driver': 'nbd', 'node-name': self.NODE, 'export': export,
                 'server': {'type': 'unix', 'path': socket_path},
                 'reconnect-delay': 60}),
             '-device', f'virtio-blk-pci,id=disk,drive={self.NODE}',
             '-qmp', f'unix:{path},server=on,wait=off'])
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.monitor = PlainMonitor(path)
        self.addCleanup(self.monitor.close)
        self.disk = volume_nodes.Nodes(
            'vda', block_nodes.Layer('volume a', '1', {}, {}), waits=True)

    def grow(self, size):
        os.truncate(self.origins['a'], size)
        control.send(self.control, 'resize', volume='a')
        volume_nodes.show_size(
            self.monitor, self.disk, size, lambda: control.send(
                self.control, 'disconnect', volume='a'))
        [device] = self.monitor.command('query-block')
        self.assertEqual(size, device['inserted']['image']['virtual-size'])

    def test_the_device_has_the_new_size(self):
        self.grow(GROWN)
        self.assertEqual('', self.monitor.command(
            'human-monitor-command', **{
                'command-line': f'qemu-io -d disk/virtio-backend'
                                f' "write -P 2 {GROWN - 65536} 64k"'}))
        self.monitor.command('human-monitor-command', **{
            'command-line': 'qemu-io -d disk/virtio-backend flush'})
        with open(self.origins['a'], 'rb') as file:
            file.seek(GROWN - 65536)
            self.assertEqual(bytes([2]) * 65536, file.read())

    def test_requests_under_way_are_repeated(self):
        # A backup reads the whole device for as long as it grows.
        self.monitor.command('blockdev-add', **{
            'driver': 'null-co', 'node-name': 'sink',
            'size': test_attach.SIZE})
        self.monitor.command('blockdev-backup', **{
            'job-id': 'copy', 'device': self.NODE, 'target': 'sink',
            'sync': 'full', 'speed': 1 << 20, 'auto-dismiss': False})
        for step in range(1, 4):
            control.send(self.control, 'disconnect', volume='a')
        self.monitor.command('block-job-set-speed', device='copy', speed=0)

        def concluded():
            [job] = self.monitor.command('query-jobs')
            return job['status'] == 'concluded' and job

        self.assertNotIn('error', waiting.until(concluded, 'the backup'))
