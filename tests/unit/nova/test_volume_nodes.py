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
"""The steps by which QEMU sees a new size of a cached volume."""

from diffcache_openstack.common import exceptions
from diffcache_openstack.nova import guest_disks
from diffcache_openstack.nova import volume_nodes
from tests import base
from tests.unit.nova import test_base_nodes

VOLUME = '7a1dbe2a-5c3f-4c0a-9df6-30a1b3f5a1aa'
DOCUMENT = f'''
<domain><devices>
<disk type='file' device='disk'><driver name='qemu' type='qcow2'/>
 <source file='/instances/a/disk' index='1'/><target dev='vda' bus='virtio'/>
 </disk>
<disk type='network'><source protocol='rbd' name='v' index='3'/>
 <target dev='vdc'/><serial>{VOLUME}</serial></disk>
<disk type='network' device='disk'>
 <driver name='qemu' type='raw' cache='none' discard='unmap'
  detect_zeroes='on'/>
 <source protocol='nbd' name='0123' index='2'>
  <host transport='unix' socket='/run/nbd'/></source>
 <target dev='vdb' bus='virtio'/><serial>{VOLUME}</serial></disk>
</devices></domain>'''
WAITS = DOCUMENT.replace("socket='/run/nbd'/>",
                         "socket='/run/nbd'/><reconnect delay='60'/>")
SIZE = 2 << 30


class Qemu(test_base_nodes.Qemu):
    """As of a base image, with exports and their sizes."""

    def __init__(self, size=SIZE):
        super().__init__()
        self.files = {'libvirt-2-storage': SIZE >> 1}
        self.content = size
        self.seen = None
        self.reopened = []

    def blockdev_reopen(self, arguments):
        [options] = arguments['options']
        assert options['file'] in self.files
        self.used = options['file']
        self.reopened.append(options)

    def query_named_block_nodes(self, arguments):
        return [{**node, 'image': {}} for node in
                super().query_named_block_nodes(arguments)]

    def block_resize(self, arguments):
        assert arguments['node-name'] == 'libvirt-2-format'
        if self.files[self.used] < arguments['size']:
            raise exceptions.PermanentError('Cannot grow NBD nodes')
        self.seen = arguments['size']


class WaitingQemu:
    """A disk that waits for the cache when its connection ends.

    :ivar served: the size that the cache has
    :ivar connected: the one that QEMU has read
    :ivar seen: what the guest sees
    :ivar cut: commands until the caller is killed; None for never
    """

    def __init__(self, top='libvirt-2-storage', header=0):
        self.served, self.connected = SIZE, SIZE >> 1
        self.nodes = {'#block1': {}, 'libvirt-2-storage': {}}
        self.nodes[top] = {'format-specific': {
            'type': 'luks', 'data': {'payload-offset': header}
        }} if header else {}
        self.top, self.header = top, header
        self.seen = self.connected - header
        self.is_connected = True
        self.commands, self.cut = 0, None

    def command(self, name, /, **arguments):
        if self.commands == self.cut:
            raise test_base_nodes.Cut()
        self.commands += 1
        return getattr(self, name.replace('-', '_'))(arguments)

    def disconnect(self):
        self.is_connected = False

    def query_named_block_nodes(self, _arguments):
        return [{'node-name': name, 'image': image}
                for name, image in self.nodes.items()]

    def human_monitor_command(self, arguments):
        assert arguments == {
            'command-line': f'qemu-io {self.top} "read 0 512"'}
        if not self.is_connected:
            self.is_connected, self.connected = True, self.served
        return ''

    def block_resize(self, arguments):
        assert arguments['node-name'] == self.top
        if self.connected < arguments['size'] + self.header:
            raise exceptions.PermanentError('Cannot grow NBD nodes')
        self.seen = arguments['size']


class TestFind(base.TestCase):

    def test_only_disks_of_the_cache(self):
        for document, waits in ((DOCUMENT, False), (WAITS, True)):
            found = volume_nodes.of(guest_disks.find(document, VOLUME))
            self.assertEqual(('vdb', '2', waits), (
                found.device, found.layer.number, found.waits))
        self.assertIsNone(guest_disks.find(DOCUMENT, 'other'))


class TestShowSizeByAnotherNode(base.TestCase):

    def setUp(self):
        super().setUp()
        self.qemu = Qemu()
        self.disk = volume_nodes.of(guest_disks.find(DOCUMENT, VOLUME))

    def show(self):
        volume_nodes.show_size(self.qemu, self.disk, SIZE, self.fail)

    def test_the_nodes_are_as_libvirt_made_them(self):
        self.show()
        self.assertEqual(SIZE, self.qemu.seen)
        self.assertEqual({'libvirt-2-storage': SIZE}, self.qemu.files)
        self.assertEqual('libvirt-2-storage', self.qemu.used)
        cache = test_base_nodes.CACHE
        self.assertEqual({
            'driver': 'nbd', 'node-name': 'libvirt-2-storage',
            'server': {'type': 'unix', 'path': '/run/nbd'}, 'export': '0123',
            'discard': 'unmap',
            'auto-read-only': True, 'cache': cache}, self.qemu.added[-1])
        self.assertEqual({
            'driver': 'raw', 'node-name': 'libvirt-2-format',
            'read-only': False, 'discard': 'unmap', 'detect-zeroes': 'on',
            'cache': cache, 'file': 'libvirt-2-storage'},
            self.qemu.reopened[-1])

    def test_cut_off_after_each_step_and_called_again(self):
        self.show()
        for cut in range(self.qemu.commands):
            self.qemu = Qemu()
            self.qemu.cut = cut
            self.assertRaises(test_base_nodes.Cut, self.show)
            self.assertIn(self.qemu.used, self.qemu.files)
            self.qemu.cut = None
            self.show()
            self.assertEqual(({'libvirt-2-storage': SIZE}, SIZE),
                             (self.qemu.files, self.qemu.seen))

    def test_a_cache_that_has_the_old_size(self):
        self.qemu.content = SIZE >> 1
        self.assertRaises(exceptions.PermanentError, self.show)
        self.assertIsNone(self.qemu.seen)


class TestShowSize(base.TestCase):

    def show(self, qemu):
        volume_nodes.show_size(qemu, volume_nodes.of(
            guest_disks.find(WAITS, VOLUME)), SIZE,
                               qemu.disconnect)

    def test_raw_disks_with_and_without_a_node_of_the_format(self):
        for top in ('libvirt-2-storage', 'libvirt-2-format'):
            qemu = WaitingQemu(top)
            self.show(qemu)
            self.assertEqual(SIZE, qemu.seen)

    def test_an_encrypted_volume_is_larger_than_its_disk(self):
        qemu = WaitingQemu('libvirt-2-format', 2 << 20)
        self.show(qemu)
        self.assertEqual(SIZE - (2 << 20), qemu.seen)

    def test_cut_off_after_each_step_and_called_again(self):
        for cut in range(3):
            qemu = WaitingQemu()
            qemu.cut = cut
            self.assertRaises(test_base_nodes.Cut, self.show, qemu)
            qemu.cut = None
            self.show(qemu)
            self.assertEqual(SIZE, qemu.seen)

    def test_a_cache_that_has_the_old_size(self):
        qemu = WaitingQemu()
        qemu.served = SIZE >> 1
        self.assertRaises(exceptions.PermanentError, self.show, qemu)
        self.assertEqual(SIZE >> 1, qemu.seen)

    def test_a_disk_that_qemu_does_not_have(self):
        qemu = WaitingQemu()
        del qemu.nodes['libvirt-2-storage']
        error = self.assertRaises(exceptions.PermanentError, self.show, qemu)
        self.assertIn('libvirt-2-storage of disk vdb', str(error))
