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
"""A running server whose base image is replaced, with QEMU and libvirt."""

import json
import os
import pathlib
import subprocess
import unittest
import uuid

from diffcache_openstack.common import qemu_monitor
from diffcache_openstack.nova import base_nodes
from tests import base
from tests.functional.fixtures import libvirt as libvirts

MIB = 1 << 20
# query-named-block-nodes, and two times add, use and delete.
COMMANDS = 7


class Cut(Exception):
    """The caller was killed."""


class CutMonitor:
    """A monitor whose caller is killed after some commands."""

    def __init__(self, monitor, commands):
        self._monitor = monitor
        self._left = commands

    def command(self, name, /, **arguments):
        if not self._left:
            raise Cut()
        self._left -= 1
        return self._monitor.command(name, **arguments)


@unittest.skipUnless(libvirts.is_there(), libvirts.NEEDS)
class TestOpenAnew(base.TestCase):

    def setUp(self):
        super().setUp()
        import libvirt
        import libvirt_qemu
        self.libvirt = self.useFixture(libvirts.Libvirt())
        self.base = self.directory / 'base'
        self.replace()
        disk = self.directory / 'disk'
        subprocess.run(['qemu-img', 'create', '-q', '-f', 'qcow2', '-F',
                        'raw', '-b', self.base, disk], check=True)
        self.domain = self.libvirt.define(str(uuid.uuid4()), disk)
        self.domain.create()
        self.monitor = qemu_monitor.Monitor(libvirt, libvirt_qemu,
                                            self.domain)
        [self.overlay] = base_nodes.overlays(self.domain.XMLDesc(0))

    def replace(self):
        """Put another file with the same bytes in the base's place."""
        fresh = self.directory / 'fresh'
        fresh.write_bytes(b'\1' * MIB)
        fresh.rename(self.base)

    def opened_by_qemu(self):
        """Numbers of the files that QEMU has had from the base's path."""
        name = self.domain.name()
        [process] = [
            each for each in pathlib.Path('/proc').glob('[0-9]*')
            if _command(each).startswith('qemu-system')
            and f'guest={name},' in _command(each)]
        # Where this system is below another one's root, and QEMU in a mount
        # namespace of its own, names begin with that directory.
        return {each.stat().st_ino for each in (process / 'fd').iterdir()
                if os.readlink(each).split(' ')[0].endswith(str(self.base))}

    def nodes(self):
        return {node['node-name']: node for node in self.monitor.command(
            'query-named-block-nodes', flat=True)
            if not node['node-name'].startswith('#')}

    def test_cut_off_after_each_step_and_called_again(self):
        described, nodes = self.domain.XMLDesc(0), self.nodes()
        for commands in range(COMMANDS + 1):
            self.replace()
            try:
                base_nodes.open_anew(CutMonitor(self.monitor, commands),
                                     self.overlay)
                cut = False
            except Cut:
                cut = True
            self.assertEqual(commands < COMMANDS, cut)
            base_nodes.open_anew(self.monitor, self.overlay)
            self.assertEqual({self.base.stat().st_ino}, self.opened_by_qemu())
        # Nothing that libvirt knows has changed.
        self.assertEqual(described, self.domain.XMLDesc(0))
        self.assertEqual(json.dumps(nodes, sort_keys=True),
                         json.dumps(self.nodes(), sort_keys=True))


def _command(process: pathlib.Path) -> str:
    try:
        return (process / 'cmdline').read_bytes().replace(
            b'\0', b' ').decode(errors='replace').rpartition('/usr/bin/')[2]
    except OSError:
        return ''
