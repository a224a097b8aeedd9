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
"""Servers as libvirt describes them, without a libvirt."""

import sys
import types
from unittest import mock

import fixtures

from diffcache_openstack.agent.versions import guest_volumes
from diffcache_openstack.agent.versions import guests
from diffcache_openstack.common import exceptions
from tests import base
from tests.unit.versions import fixture

SERVER = '11111111-1111-4111-8111-111111111111'


class LibvirtError(Exception):

    def get_error_code(self):
        return self.args[0]


class Domain:
    """A domain; ``answer`` is what its monitor and its agent say."""

    def __init__(self, disks, active=True, channel=''):
        self.disks, self.active, self.channel = disks, active, channel
        self.answer = '{"return": 3}'
        self.asked = []

    def isActive(self):
        return self.active

    def UUIDString(self):
        return SERVER

    def XMLDesc(self, flags):
        self.flags = flags
        return f'<domain><devices>{self.disks}{self.channel}</devices>' \
               f'</domain>'


def element(path, kind='qcow2', device='disk', source='file', name='vda'):
    return (f'<disk type="{source}" device="{device}"><driver type="{kind}"/>'
            f'<source file="{path}"/><target dev="{name}"/></disk>')


class GuestsTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.instances = self.directory / 'instances'
        self.instances.mkdir()
        self.disk = self.write_file('instances/disk', bytes(4096))
        self.domain = None
        connection = types.SimpleNamespace(
            isAlive=lambda: True, lookupByUUIDString=self.look)
        library = types.SimpleNamespace(
            open=lambda uri: connection, libvirtError=LibvirtError,
            VIR_DOMAIN_XML_INACTIVE=2, VIR_ERR_NO_DOMAIN=42,
            VIR_ERR_INVALID_ARG=8,
            registerErrorHandler=lambda handler, data: None)
        qemu = types.SimpleNamespace(
            qemuMonitorCommand=self.answer, qemuAgentCommand=self.answer)
        patcher = mock.patch.dict(
            sys.modules, {'libvirt': library, 'libvirt_qemu': qemu})
        patcher.start()
        self.addCleanup(patcher.stop)
        self.guests = guests.Guests('test:///', [self.instances])

    def look(self, server_id):
        if self.domain is None:
            raise LibvirtError(42)
        return self.domain

    def answer(self, domain, request, *_more):
        domain.asked.append(request)
        if isinstance(domain.answer, Exception):
            raise domain.answer
        return domain.answer


class TestFinding(GuestsTest):

    def test_running_and_stopped(self):
        self.domain = Domain(element(self.disk, 'raw'))
        guest = self.guests.find(SERVER)
        self.assertEqual(
            ((guests.Disk('vda', self.disk, 'raw'),), True, None),
            (guest.disks, guest.running, guest.agent))
        self.domain.active = False
        self.assertFalse(self.guests.find(SERVER).running)
        self.assertEqual(2, self.domain.flags)

    def test_disks_by_their_paths(self):
        other = self.write_file('instances/other', bytes(4096))
        link = self.instances / 'link'
        link.symlink_to(self.disk)
        self.domain = Domain(element(self.disk, 'raw')
                             + element(other, 'raw', name='sda'))
        for path, device in ((self.disk, 'vda'), (other, 'sda'),
                             (link, 'vda')):
            self.assertEqual(device, self.guests.device_of(SERVER, str(path)))
        self.assertRaises(exceptions.InvalidInput, self.guests.device_of,
                          SERVER, str(self.instances / 'none'))

    def test_only_disks_that_are_files(self):
        self.domain = Domain(
            element(self.disk, 'raw') + element('/dev/x', source='block')
            + element(self.disk, 'raw', device='cdrom', name='hda')
            + element(self.disk, 'vmdk', name='vdb'))
        self.assertEqual(['vda'], [disk.device for disk
                                   in self.guests.find(SERVER).disks])

    def test_server_that_is_elsewhere(self):
        self.assertRaises(exceptions.NotFound, self.guests.find, SERVER)

    def test_server_without_such_disks(self):
        for disks in ('', element('/dev/vg/disk', 'raw', source='block')):
            self.domain = Domain(disks)
            error = self.assertRaises(exceptions.NotFound, self.guests.find,
                                      SERVER)
            for word in ('no volume', 'images_type = rbd', '(lvm)'):
                self.assertIn(word, str(error))

    def test_disk_elsewhere_is_not_opened(self):
        outside = self.write_file('secret', bytes(4096))
        (self.instances / 'link').symlink_to(outside)
        for path in (outside, self.instances / 'link',
                     self.instances / '..' / 'secret'):
            self.domain = Domain(element(path, 'raw'))
            error = self.assertRaises(exceptions.InvalidInput,
                                      self.guests.find, SERVER)
            self.assertIn('[versions] directories', str(error))

    def test_base_elsewhere_is_not_opened(self):
        if not fixture.has_qemu():
            self.skipTest(fixture.NEEDS_QEMU)
        outside = self.write_file('secret', bytes(65536))
        disk = self.instances / 'overlay'
        fixture.make_qcow2(disk, 65536, outside)
        self.domain = Domain(element(disk))
        self.assertRaises(exceptions.InvalidInput, self.guests.find, SERVER)
        inside = self.write_file('instances/base', bytes(65536))
        fixture.make_qcow2(disk, 65536, inside)
        self.assertEqual(inside, self.guests.find(SERVER).disks[0].base)

    def test_agent_of_the_guest(self):
        channel = ('<channel><target name="org.qemu.guest_agent.0"'
                   ' state="{}"/></channel>')
        for state in ('connected', 'disconnected'):
            self.domain = Domain(element(self.disk, 'raw'),
                                 channel=channel.format(state))
            self.assertEqual(state == 'connected',
                             self.guests.find(SERVER).agent is not None)


class TestTalking(GuestsTest):

    def setUp(self):
        super().setUp()
        self.domain = Domain(
            element(self.disk, 'raw'),
            channel='<channel><target name="org.qemu.guest_agent.0"'
                    ' state="connected"/></channel>')
        self.guest = self.guests.find(SERVER)

    def test_monitor(self):
        self.assertEqual(3, self.guest.monitor.command('x', device='d'))
        self.assertEqual(['{"execute": "x", "arguments": {"device": "d"}}'],
                         self.domain.asked)
        self.domain.answer = '{"error": {"desc": "no such node"}}'
        error = self.assertRaises(exceptions.PermanentError,
                                  self.guest.monitor.command, 'x')
        self.assertIn('no such node', str(error))
        self.domain.answer = LibvirtError(1)
        self.assertRaises(exceptions.ServiceUnavailable,
                          self.guest.monitor.command, 'x')

    def test_agent(self):
        self.assertEqual(3, self.guest.agent.count('guest-fsfreeze-freeze'))
        for answer, error in (
                ('{"return": "many"}', exceptions.PermanentError),
                ('[]', exceptions.PermanentError),
                ('nonsense', exceptions.ServiceUnavailable),
                ('[' * 100_000, exceptions.ServiceUnavailable),
                (LibvirtError(1, 'unable to execute QEMU agent command'),
                 exceptions.PermanentError),
                (LibvirtError(1, 'something else'),
                 exceptions.ServiceUnavailable),
                (LibvirtError(86), exceptions.ServiceUnavailable)):
            self.domain.answer = answer
            self.assertRaises(error, self.guest.agent.count, 'x')


VOLUME = '22222222-2222-4222-8222-222222222222'


def volume(name='vdb', source='network', more=''):
    return (f'<disk type="{source}" device="disk"><driver type="raw"/>'
            f'<source protocol="nbd" name="x">{more}</source>'
            f'<target dev="{name}"/><serial>{VOLUME}</serial>'
            f'<alias name="virtio-disk1"/></disk>')


class TestVolumes(GuestsTest):

    def found(self, element):
        self.domain = Domain(element)
        return self.guests.find(SERVER)

    def test_a_volume_is_no_disk(self):
        for source in ('network', 'block', 'file'):
            found = self.found(volume(source=source))
            self.assertEqual(((), (guests.Volume(
                VOLUME, 'vdb', 'virtio-disk1'),)),
                (found.disks, found.volumes))

    def test_what_qemu_keeps_no_moment_of(self):
        for element, reason in (
                (volume(source='vhostuser'), 'vhost-user'),
                (volume(more='<encryption format="luks"/>'), 'encrypted'),
                (volume().replace('<alias', '<shareable/><alias'),
                 'multiattach')):
            [each] = self.found(element).volumes
            self.assertIn(reason, each.refused)
            error = self.assertRaises(
                exceptions.Conflict, guest_volumes.chosen,
                self.guests.find(SERVER), [VOLUME])
            self.assertIn(f'--exclude-volume {VOLUME}', str(error))

    def test_one_that_bypasses_qemu_has_no_serial_number(self):
        """Regression: it was no volume of the server, and left out."""
        found = self.found(
            f'<disk type="vhostuser" device="disk"><driver type="raw"/>'
            f'<source type="unix" path="/run/x"/><target dev="vdb"/>'
            f'<alias name="ua-{VOLUME}"/></disk>')
        self.assertEqual((), found.disks)
        error = self.assertRaises(exceptions.Conflict, guest_volumes.chosen,
                                  found, [VOLUME])
        self.assertIn('vhost-user', str(error))

    def test_only_what_was_asked_for_is_chosen(self):
        found = self.found(element(self.disk, 'raw') + volume())
        self.assertEqual([], guest_volumes.chosen(found, []))
        self.assertEqual(list(found.volumes),
                         guest_volumes.chosen(found, [VOLUME]))
        self.assertRaises(exceptions.Conflict, guest_volumes.chosen, found,
                          [SERVER])

    def test_nothing_to_save(self):
        self.assertRaises(exceptions.NotFound, guest_volumes.chosen,
                          self.found(volume()), [])

    def test_commands_with_descriptors(self):
        self.domain = Domain(element(self.disk, 'raw'))
        sent = []

        def command(domain, request, files, flags):
            sent.append((request, files))
            return '{"return": 7}', []
        self.useFixture(fixtures.MonkeyPatch(
            'libvirt_qemu.qemuMonitorCommandWithFiles', command))
        self.assertEqual(7, self.guests.find(SERVER).monitor.command_with(
            5, 'add-fd', opaque='x'))
        self.assertEqual([(
            '{"execute": "add-fd", "arguments": {"opaque": "x"}}', [5])],
            sent)
