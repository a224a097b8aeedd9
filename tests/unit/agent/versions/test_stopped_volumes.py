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
"""Domains that open the volumes of stopped servers."""

import types
from unittest import mock
from xml.etree import ElementTree

from diffcache_openstack.agent.versions import stopped_volumes
from diffcache_openstack.common import exceptions
from tests import base

SERVER = '11111111-1111-4111-8111-111111111111'
VOLUME = '22222222-2222-4222-8222-222222222222'
_DOCUMENT = f'''
<domain type="kvm"><name>instance-1</name><uuid>{SERVER}</uuid>
  <os><type arch="x86_64" machine="pc-q35">hvm</type><boot dev="hd"/></os>
  <devices><emulator>/usr/bin/qemu-system-x86_64</emulator>
    <disk type="block" device="disk">
      <driver name="qemu" type="raw" cache="none" io="native" iothread="1"
              rerror_policy="stop"/>
      <source dev="/dev/sdb" index="2"/>
      <target dev="vdb" bus="scsi"/><serial>{VOLUME}</serial>
      <iotune><total_iops_sec>1</total_iops_sec></iotune>
      <alias name="scsi0-0-0-1"/><address type="drive" unit="1"/>
    </disk>
    <interface type="bridge"/>
  </devices>
</domain>
'''


class LibvirtError(Exception):

    def get_error_code(self):
        return self.args[1] if len(self.args) > 1 else 1


class TestDocument(base.TestCase):

    def setUp(self):
        super().setUp()
        server = ElementTree.fromstring(_DOCUMENT)
        self.found = ElementTree.fromstring(stopped_volumes.document(
            SERVER, server, server.findall('devices/disk')))

    def test_it_is_another_domain(self):
        self.assertEqual(
            ('kvm', f'diffcache-{SERVER}', stopped_volumes.uuid_of(SERVER)),
            (self.found.get('type'), self.found.findtext('name'),
             self.found.findtext('uuid')))
        self.assertNotEqual(SERVER, self.found.findtext('uuid'))
        self.assertEqual({'arch': 'x86_64'},
                         self.found.find('os/type').attrib)
        self.assertEqual(['emulator', 'disk'], [
            each.tag for each in self.found.find('devices')])

    def test_volumes_are_opened_as_the_server_has_them(self):
        [disk] = self.found.findall('devices/disk')
        self.assertEqual('block', disk.get('type'))
        self.assertEqual(
            [('driver', {'name': 'qemu', 'type': 'raw', 'cache': 'none',
                         'io': 'native'}),
             ('source', {'dev': '/dev/sdb'}), ('serial', {}),
             ('target', {'dev': 'vda', 'bus': 'virtio'}), ('shareable', {})],
            [(each.tag, each.attrib) for each in disk])


class TestStarted(base.TestCase):

    def setUp(self):
        super().setUp()
        self.connection = mock.Mock()
        self.connection.lookupByUUIDString.side_effect = LibvirtError('', 42)
        self.library = types.SimpleNamespace(
            open=lambda uri: self.connection, libvirtError=LibvirtError,
            VIR_DOMAIN_START_PAUSED=1, VIR_DOMAIN_START_AUTODESTROY=2,
            VIR_ERR_NO_DOMAIN=42, VIR_ERR_OPERATION_INVALID=55)

    def started(self):
        return stopped_volumes.started(self.library, 'test:///', SERVER,
                                       '<domain/>')

    def test_it_never_runs_and_ends_with_the_block(self):
        with self.started() as domain:
            self.connection.createXML.assert_called_once_with('<domain/>', 3)
            domain.destroy.assert_not_called()
        domain.destroy.assert_called_once_with()
        self.connection.close.assert_called_once_with()

    def test_what_a_killed_agent_left_is_ended(self):
        left = mock.Mock()
        self.connection.lookupByUUIDString.side_effect = None
        self.connection.lookupByUUIDString.return_value = left
        with self.started():
            left.destroy.assert_called_once_with()

    def test_volumes_that_are_in_use(self):
        for text, kind in (
                ('Failed to get "write" lock', exceptions.Busy),
                ('No such file', exceptions.ServiceUnavailable)):
            self.connection.createXML.side_effect = LibvirtError(text)
            error = self.assertRaises(kind, self.started().__enter__)
            self.assertIn(text, str(error))
            self.connection.close.assert_called_once_with()
            self.connection.close.reset_mock()
