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
"""The steps by which QEMU opens a base image anew."""

from diffcache_openstack.common import exceptions
from diffcache_openstack.nova import base_nodes
from tests import base

DOCUMENT = '''
<domain><devices>
<disk type='file' device='disk'>
 <driver name='qemu' type='qcow2' cache='none' error_policy='stop'
  rerror_policy='stop' discard='unmap'/>
 <source file='/instances/a/disk' index='1'/>
 <backingStore type='file' index='2'><format type='raw'/>
  <source file='/instances/_base/b'/><backingStore/></backingStore>
 <target dev='vda' bus='virtio'/></disk>
<disk type='file' device='disk'>
 <driver name='qemu' type='qcow2' cache='none' io='native'
  discard='unmap' detect_zeroes='unmap' discard_no_unref='on'/>
 <source file='/instances/a/disk.eph0' index='3'/>
 <backingStore type='file' index='4'><format type='raw'/>
  <source file='/instances/_base/ephemeral_1'/></backingStore>
 <target dev='vdb' bus='virtio'/></disk>
<disk type='file' device='cdrom'><driver name='qemu' type='raw'/>
 <source file='/x' index='5'/><backingStore/><target dev='hda'/></disk>
<disk type='network'><source protocol='rbd'/><target dev='vdc'/></disk>
</devices></domain>'''
OVERLAY = base_nodes.Overlay('vda', '/instances/_base/b', '2', True,
                             (('discard', 'unmap'),), '1',
                             (('read-only', False),))
CACHE = {'direct': True, 'no-flush': False}


class Cut(Exception):
    """The caller was killed."""


class Qemu:
    """The block nodes below a server's disk.

    :ivar files: nodes of files, and the content that each has open
    :ivar used: the node that the guest reads
    :ivar content: what the path names now
    :ivar commands: so far
    :ivar cut: commands until the caller is killed; None for never
    """

    def __init__(self):
        self.files = {'libvirt-2-storage': 'old'}
        self.used = 'libvirt-2-storage'
        self.content = 'new'
        self.users = {'libvirt-2-format': 'raw', 'libvirt-1-format': 'qcow2'}
        self.commands = 0
        self.cut = None
        self.added = []

    def command(self, name, /, **arguments):
        if self.commands == self.cut:
            raise Cut()
        self.commands += 1
        return getattr(self, name.replace('-', '_'))(arguments)

    def query_named_block_nodes(self, arguments):
        cache = {**CACHE, 'writeback': True}
        nodes = self.users | dict.fromkeys(self.files, 'file')
        return [{'node-name': name, 'drv': drv, 'cache': cache}
                for name, drv in nodes.items()]

    def blockdev_add(self, arguments):
        name = arguments['node-name']
        if name in self.files:
            raise exceptions.PermanentError('duplicate node name')
        if self.content is None:
            raise exceptions.PermanentError('could not open it')
        self.files[name] = self.content
        self.added.append(arguments)

    def blockdev_reopen(self, arguments):
        [options] = arguments['options']
        used = options.pop(self.child())
        assert used in self.files
        assert options == self.options | {'cache': CACHE}
        self.used = used

    options = {'node-name': 'libvirt-2-format', 'driver': 'raw',
               'read-only': True}

    def child(self):
        return 'file'

    def blockdev_del(self, arguments):
        name = arguments['node-name']
        if name == self.used:
            raise exceptions.PermanentError('node is in use')
        del self.files[name]


class NewQemu(Qemu):
    """One to which libvirt has given no node of the base's format."""

    options = {'node-name': 'libvirt-1-format', 'driver': 'qcow2',
               'read-only': False, 'file': 'libvirt-1-storage'}

    def __init__(self):
        super().__init__()
        del self.users['libvirt-2-format']

    def child(self):
        return 'backing'


class TestOverlays(base.TestCase):

    def test_disks_with_a_base(self):
        self.assertEqual(
            [OVERLAY, base_nodes.Overlay(
                'vdb', '/instances/_base/ephemeral_1', '4', False,
                (('aio', 'native'), ('discard', 'unmap')), '3',
                (('read-only', False), ('detect-zeroes', 'unmap'),
                 ('discard', 'unmap'), ('discard-no-unref', True)))],
            list(base_nodes.overlays(DOCUMENT)))


class TestOpenAnew(base.TestCase):

    make = Qemu
    added = {'auto-read-only': True, 'discard': 'unmap'}

    def setUp(self):
        super().setUp()
        self.qemu = self.make()

    def open_anew(self):
        base_nodes.open_anew(self.qemu, OVERLAY)

    def assert_exchanged(self):
        self.assertEqual({'libvirt-2-storage': 'new'}, self.qemu.files)
        self.assertEqual('libvirt-2-storage', self.qemu.used)

    def test_the_nodes_are_called_as_before(self):
        self.open_anew()
        self.assert_exchanged()
        self.assertEqual({
            'driver': 'file', 'node-name': 'libvirt-2-storage',
            'filename': '/instances/_base/b', 'cache': CACHE, **self.added},
            self.qemu.added[-1])

    def test_cut_off_after_each_step_and_called_again(self):
        self.open_anew()
        for cut in range(self.qemu.commands):
            self.qemu = self.make()
            self.qemu.cut = cut
            self.assertRaises(Cut, self.open_anew)
            # The guest reads on meanwhile.
            self.assertIn(self.qemu.used, self.qemu.files)
            self.qemu.cut = None
            self.open_anew()
            self.assert_exchanged()

    def test_a_file_that_cannot_be_opened_changes_nothing(self):
        self.qemu.content = None
        self.assertRaises(exceptions.PermanentError, self.open_anew)
        self.assertEqual({'libvirt-2-storage': 'old'}, self.qemu.files)

    def test_other_layers_are_left_alone(self):
        self.qemu.users = dict.fromkeys(self.qemu.users, 'luks')
        error = self.assertRaises(exceptions.PermanentError, self.open_anew)
        self.assertIn('rebooted hard', str(error))
        self.assertEqual({'libvirt-2-storage': 'old'}, self.qemu.files)


class TestOpenAnewWithoutItsFormat(TestOpenAnew):
    """Newer libvirt has QEMU use the file of a raw base as it is."""

    make = NewQemu
    added = {'read-only': True}
