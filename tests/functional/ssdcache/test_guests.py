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
import unittest
import uuid

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import qemu_monitor
from diffcache_openstack.nova import volume_nodes
from diffcache_openstack.ssdcache import control
from tests.functional.fixtures import libvirt as libvirts
from tests.functional.lazy import test_guests
from tests.functional.ssdcache import test_attach

GROWN = 2 * test_attach.SIZE
DOMAIN = '''
<domain type="qemu">
  <name>{name}</name><uuid>{name}</uuid>
  <memory unit="MiB">64</memory><vcpu>1</vcpu>
  <os><type arch="x86_64">hvm</type></os>
  <devices><disk type="network" device="disk">
    <driver name="qemu" type="raw" cache="none" discard="unmap"
      error_policy="stop" rerror_policy="stop"/>
    <source protocol="nbd" name="{export}">
      <host transport="unix" socket="{socket}"/></source>
    <target dev="vda" bus="virtio"/><serial>a</serial>
  </disk></devices>
</domain>
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
            name=uuid.uuid4(), export=export,
            socket=self.directory / 'nbd'))
        self.domain.create()
        self.monitor = qemu_monitor.Monitor(libvirt, libvirt_qemu,
                                            self.domain)
        self.disk = volume_nodes.find(self.domain.XMLDesc(0), 'a')

    def grow(self):
        os.truncate(self.origins['a'], GROWN)
        control.send(self.control, 'resize', volume='a')

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
        volume_nodes.show_size(self.monitor, self.disk, GROWN)
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
        # query-named-block-nodes, two times add, use and delete, and the size
        for commands in range(8):
            cut = test_guests.CutMonitor(self.monitor, commands)
            self.assertRaises(test_guests.Cut, volume_nodes.show_size, cut,
                              self.disk, GROWN)
            self.libvirt.guest_writes(self.domain, 'write -P 3 0 64k')
            volume_nodes.show_size(self.monitor, self.disk, GROWN)
            self.assertEqual(GROWN, self.size())

    def test_a_volume_that_did_not_grow(self):
        error = self.assertRaises(exceptions.PermanentError,
                                  volume_nodes.show_size, self.monitor,
                                  self.disk, GROWN)
        self.assertIn('grow', str(error))
        self.assertEqual(test_attach.SIZE, self.size())
        self.libvirt.guest_writes(self.domain, 'write -P 1 0 64k')
