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
"""Volumes are attached to the SSD cache, and shown to guests."""

from unittest import mock

# Before Nova itself, which may be missing.
from tests.unit.nova import needs  # noqa: F401

import libvirt
from lxml import etree
from nova import exception
from nova.virt.libvirt import config as vconfig
import oslo_messaging

from diffcache_openstack.cached_volumes import origins
from diffcache_openstack.common import exceptions
from diffcache_openstack.nova import connections
from diffcache_openstack.nova import guest_disks
from diffcache_openstack.nova import volume_drivers
from diffcache_openstack.nova import volumes
from diffcache_openstack.objects import volume_specs as qos
from tests.unit.nova import test_guest_disks
from tests.unit.nova import test_volume_nodes
from tests.unit.nova import volume_cases

VOLUME = volume_cases.VOLUME
INSTANCE = volume_cases.INSTANCE
EXPORT = volume_cases.EXPORT


class TestChoice(volume_cases.VolumesTest):

    def test_types_without_the_cache_are_left_alone(self):
        for specs in (None, {}, {'read_iops_sec': '1'}, 'odd'):
            connection = {'serial': VOLUME, 'data': {'qos_specs': specs}}
            self.assertIs(self.driver, self.around(connection))
        self.assertEqual({}, self.uncached())

    def test_what_passes_by_is_counted(self):
        for reason, connection in (
                ('multi-attach', self.connection(multiattach=True)),
                ('encrypted', self.connection(data={'encrypted': True})),
                ('read-only', self.connection(data={'access_mode': 'ro'})),
                ('not raw', self.connection(data={
                    'export': 'a:/b', 'format': 'qcow2'})),
                ('its snapshots are made by Nova', self.connection(
                    data={'export': 'a:/b', 'format': 'raw'})),
                ('specs', self.connection({'weight': 'heavy'}))):
            self.assertIs(self.driver, self.around(connection))
            self.assertEqual(1, self.uncached()[reason])

    def test_what_cannot_be_cached_and_has_to_be_is_not_connected(self):
        for reason, values in (
                ('multi-attach', {'multiattach': True}),
                ('encrypted', {'data': {'encrypted': True}})):
            connection = self.connection({'required': 'true'}, **values)
            driver = self.around(connection)
            error = self.assertRaises(
                exception.VolumeAttachFailed, driver.connect_volume,
                connection, INSTANCE)
            self.assertIn(f'requires the SSD cache: {reason}', str(error))
            # Of a volume that was attached before.
            driver.disconnect_volume(connection, INSTANCE)
        self.assertEqual([('disconnect', False)] * 2, self.driver.asked)

    def test_a_share_whose_snapshots_nova_does_not_make(self):
        connection = self.connection(data={
            'export': 'a:/b', 'format': 'raw',
            qos.MARK: {'held': True, 'snapshots': 'cinder'}})
        self.assertIsNot(self.driver, self.around(connection))

    def test_everything_else_is_the_driver_s(self):
        self.assertTrue(self.around(self.connection()).is_block_dev)


class TestConnect(volume_cases.VolumesTest):

    def test_connect_and_disconnect(self):
        connection = self.connection({'min': '4MiB', 'max': '8MiB',
                                      'weight': '2', 'sequential': '1MiB',
                                      'priority': '5', 'sla': 'hit=0.8',
                                      'admission': '2'})
        driver = self.around(connection)
        driver.connect_volume(connection, INSTANCE)
        self.client.attach_volume.assert_called_once_with(VOLUME, {
            'origin': '/dev/sdx', 'mode': 'write-through', 'min': 1024,
            'max': 2048, 'weight': 2.0, 'priority': 5.0, 'sla': 'hit=0.8',
            'sequential': 1 << 20, 'admission': 2, 'holdable': False,
            'attachment': 'at1', 'rates': {},
            'nbd_reason': 'the memory of its server is not shared'})
        self.assertEqual({**EXPORT, 'mode': 'write-through', 'volume': VOLUME},
                         connection['data'][connections.KEY])
        # A hard reboot connects again.
        driver.connect_volume(connection, INSTANCE)
        driver.disconnect_volume(connection, INSTANCE, force=True)
        self.client.detach_volume.assert_called_once_with(VOLUME)
        self.assertEqual(['connect', 'connect', ('disconnect', True)],
                         self.driver.asked)

    def test_a_volume_whose_id_cinder_has_exchanged(self):
        connection = self.connection()
        connection['serial'] = 'temporary'
        driver = self.around(connection)
        driver.connect_volume(connection, INSTANCE)
        connection['serial'] = VOLUME
        driver.extend_volume(connection, INSTANCE, 1)
        self.client.resize_volume.assert_called_once_with('temporary')
        driver.disconnect_volume(connection, INSTANCE)
        self.assertEqual({('temporary', ), (VOLUME, )}, {
            call.args for call in self.client.detach_volume.mock_calls})

    def test_an_attachment_that_nova_cannot_find(self):
        for error in (exception.VolumeBDMNotFound(volume_id=VOLUME),
                      oslo_messaging.MessagingTimeout()):
            self.mapping.side_effect = error
            connection = self.connection()
            with self.assertLogs(connections.LOG, 'WARNING'):
                self.around(connection).connect_volume(connection, INSTANCE)
            self.assertIsNone(
                self.client.attach_volume.call_args.args[1]['attachment'])
            self.assertIn(connections.KEY, connection['data'])

    def test_the_attachment_is_that_of_the_server(self):
        connection = self.connection()
        self.around(connection).connect_volume(connection, INSTANCE)
        self.assertEqual((VOLUME, 'i'), self.mapping.call_args.args[1:])

    def test_the_document_of_libvirt(self):
        connection = self.connection()
        driver = self.around(connection)
        driver.connect_volume(connection, INSTANCE)
        disk = driver.get_config(connection, {'type': 'disk'})
        self.assertIsInstance(disk, vconfig.LibvirtConfigGuestDisk)
        document = etree.fromstring(disk.to_xml())
        self.assertEqual(('network', 'disk'),
                         (document.get('type'), document.get('device')))
        self.assertEqual({'name': 'qemu', 'type': 'raw', 'cache': 'none',
                          'discard': 'unmap', 'error_policy': 'stop',
                          'rerror_policy': 'stop'},
                         dict(document.find('driver').attrib))
        source = document.find('source')
        self.assertEqual({'protocol': 'nbd', 'name': '0' * 32},
                         dict(source.attrib))
        self.assertEqual({'transport': 'unix', 'socket': '/run/nbd'},
                         dict(source.find('host').attrib))
        self.assertEqual({'delay': '60'},
                         dict(source.find('reconnect').attrib))
        self.assertEqual('7', document.findtext('iotune/read_iops_sec'))
        self.assertEqual(VOLUME, document.findtext('serial'))

    def tuned(self, **limits):
        """Return what libvirt is to know of a volume's limits."""
        connection = self.connection()
        connection['data']['qos_specs'] |= limits
        driver = self.around(connection)
        driver.connect_volume(connection, INSTANCE)
        wanted = self.client.attach_volume.call_args.args[1]
        # As the agent answers.
        self.assertEqual({}, connection['data'][connections.KEY]['rates'])
        connection['data'][connections.KEY]['rates'] = wanted['rates']
        disk = driver.get_config(connection, {'type': 'disk'})
        document = etree.fromstring(disk.to_xml())
        return wanted['rates'], document.find('iotune')

    def test_the_cache_enforces_the_limits_of_a_type(self):
        self.assertEqual(({'read_iops_sec': 7}, None),
                         self.tuned(read_iops_sec='7', write_iops_sec='0'))

    def test_qemu_enforces_limits_that_the_cache_does_not(self):
        with self.assertLogs('diffcache_openstack.nova', 'WARNING') as logs:
            wanted, found = self.tuned(read_iops_sec='7',
                                       write_iops_sec_max='9')
        self.assertIn('write_iops_sec_max=9', logs.output[0])
        self.assertEqual({}, wanted)
        self.assertEqual('7', found.findtext('read_iops_sec'))

    def test_nova_reads_and_writes_it_to_detach_it(self):
        connection = self.connection()
        driver = self.around(connection)
        driver.connect_volume(connection, INSTANCE)
        written = driver.get_config(connection, {'type': 'disk'}).to_xml()
        found = vconfig.LibvirtConfigGuestDisk()
        found.parse_str(written)
        source = etree.fromstring(found.to_xml()).find('source')
        self.assertEqual('0' * 32, source.get('name'))
        self.assertEqual({'transport': 'unix', 'socket': '/run/nbd'},
                         dict(source.find('host').attrib))
        other = vconfig.LibvirtConfigGuestDisk()
        other.parse_str('<disk type="file"><source file="/x"/></disk>')
        self.assertEqual('/x', other.source_path)

    def test_an_image_of_rbd(self):
        connection = self.connection(driver_volume_type='rbd', data={
            'name': 'volumes/volume-1', 'hosts': ['10.0.0.1', '[fd00::1]'],
            'ports': ['6789', '6789'], 'auth_enabled': True,
            'auth_username': 'cinder', 'secret_uuid': VOLUME})
        driver = volume_drivers.around(
            self.cache, volume_cases.RbdDriver(), connection)
        driver.connect_volume(connection, INSTANCE)
        [_name, wanted] = self.client.attach_volume.call_args.args
        self.assertEqual(
            origins.rbd('volumes/volume-1', 'cinder', [
                ('10.0.0.1', '6789'), ('fd00::1', '6789')]),
            wanted['origin'])
        document = etree.fromstring(
            driver.get_config(connection, {'type': 'disk'}).to_xml())
        self.assertIsNone(document.find('auth'))
        [host] = document.findall('source/host')
        self.assertEqual('/run/nbd', host.get('socket'))

    def test_an_image_of_rbd_without_authentication(self):
        connection = self.connection(driver_volume_type='rbd', data={
            'name': 'volumes/volume-1', 'hosts': [], 'ports': [],
            'auth_enabled': False, 'auth_username': 'cinder'})
        volume_drivers.around(
            self.cache, volume_cases.RbdDriver(), connection).connect_volume(
            connection, INSTANCE)
        [_name, wanted] = self.client.attach_volume.call_args.args
        self.assertEqual(origins.rbd('volumes/volume-1', None, []),
                         wanted['origin'])

    def test_a_guest_with_scsi_commands_has_the_device(self):
        connection = self.connection()
        driver = self.around(connection)
        driver.connect_volume(connection, INSTANCE)
        disk = driver.get_config(connection, {'type': 'lun'})
        self.assertEqual(('block', '/dev/sdx'),
                         (disk.source_type, disk.source_path))

    def test_without_the_cache(self):
        for error in (exceptions.ServiceUnavailable('down'),
                      exceptions.NoSpace('full'),
                      exceptions.NotFound('no cache here'),
                      exceptions.Conflict('no')):
            connection = self.connection(data={connections.KEY: dict(EXPORT)})
            driver = self.around(connection)
            self.client.attach_volume.side_effect = error
            driver.connect_volume(connection, INSTANCE)
            self.assertNotIn(connections.KEY, connection['data'])
            disk = driver.get_config(connection, {'type': 'disk'})
            self.assertEqual('/dev/sdx', disk.source_path)
            self.assertEqual(1, self.uncached()[type(error).__name__])

    def test_a_type_that_requires_it(self):
        connection = self.connection({'required': 'true'})
        driver = self.around(connection)
        self.client.attach_volume.side_effect = exceptions.NoSpace('full')
        error = self.assertRaises(
            exception.VolumeAttachFailed, driver.connect_volume, connection,
            INSTANCE)
        self.assertIn('full', str(error))
        # Nothing of it stays on the host.
        self.client.detach_volume.assert_called_once_with(VOLUME)
        self.assertEqual(['connect', ('disconnect', False)],
                         self.driver.asked)

    def test_a_volume_that_was_refused_is_not_left_connected(self):
        """Nova does not disconnect what it could not connect."""
        self.client.ssd_cache.return_value = {'volumes': {}}
        self.notes.begin(VOLUME)
        self.client.drain_volume.side_effect = exceptions.Conflict('held')
        for refusal in (exceptions.Conflict('another attachment'),
                        exceptions.ServiceUnavailable('down')):
            self.driver.asked.clear()
            self.client.attach_volume.side_effect = refusal
            connection = self.connection()
            error = self.assertRaises(
                exception.VolumeAttachFailed,
                self.around(connection).connect_volume, connection, INSTANCE)
            self.assertIn(str(refusal), str(error))
            self.assertEqual(['connect', ('disconnect', False)],
                             self.driver.asked)
        # The cache keeps what the volume lacks.
        self.client.detach_volume.assert_not_called()

    def test_a_volume_without_a_device_that_may_lack_blocks(self):
        self.client.ssd_cache.return_value = {'volumes': {}}
        self.notes.begin(VOLUME)
        self.driver.connect_volume = lambda connection, instance: None
        connection = self.connection()
        self.assertRaises(
            exception.VolumeAttachFailed,
            self.around(connection).connect_volume, connection, INSTANCE)
        self.assertEqual([('disconnect', False)], self.driver.asked)

    def test_the_refusal_is_reported_although_the_host_stays_connected(self):
        connection = self.connection({'required': 'true'})
        self.client.attach_volume.side_effect = exceptions.NoSpace('full')
        self.driver.disconnect_volume = mock.Mock(side_effect=OSError('busy'))
        error = self.assertRaises(
            exception.VolumeAttachFailed,
            self.around(connection).connect_volume, connection, INSTANCE)
        self.assertIn('full', str(error))

    def test_storage_without_a_block_device(self):
        connection = self.connection()
        self.driver.connect_volume = lambda connection, instance: None
        self.around(connection).connect_volume(connection, INSTANCE)
        self.client.attach_volume.assert_not_called()
        self.assertEqual({'no block device': 1}, self.uncached())
        connection = self.connection({'required': 'true'})
        self.assertRaises(
            exception.VolumeAttachFailed,
            self.around(connection).connect_volume, connection, INSTANCE)

    def test_a_detach_without_an_answer(self):
        connection = self.connection()
        self.client.detach_volume.side_effect = \
            exceptions.ServiceUnavailable('down')
        self.around(connection).disconnect_volume(connection, INSTANCE)
        self.assertEqual([('disconnect', False)], self.driver.asked)


class TestExtend(volume_cases.VolumesTest):

    def extend(self, connection):
        return self.around(connection).extend_volume(connection, INSTANCE,
                                                     1 << 30)

    def test_a_cached_volume(self):
        connection = self.connection(data={connections.KEY: EXPORT})
        self.assertEqual(1 << 30, self.extend(connection))
        self.client.resize_volume.assert_called_once_with(VOLUME)
        self.assertEqual(['extend'], self.driver.asked)

    def test_a_volume_without_the_cache(self):
        self.assertEqual(1 << 30, self.extend(self.connection()))
        self.client.resize_volume.assert_not_called()

    def test_a_driver_that_has_nothing_to_do(self):
        self.driver.extend_volume = mock.Mock(side_effect=NotImplementedError)
        self.assertRaises(NotImplementedError, self.extend,
                          self.connection())
        self.assertEqual(1 << 30, self.extend(
            self.connection(data={connections.KEY: EXPORT})))
        self.client.resize_volume.assert_called_once_with(VOLUME)

    def test_a_cache_that_does_not_answer(self):
        # What QEMU says of the size decides.
        self.client.resize_volume.side_effect = \
            exceptions.ServiceUnavailable('down')
        self.assertEqual(1 << 30, self.extend(
            self.connection(data={connections.KEY: EXPORT})))


class ShowCase(volume_cases.VolumesTest):
    """A running server that nothing else works on."""

    def setUp(self):
        super().setUp()
        self.domain = mock.Mock()
        self.domain.jobInfo.return_value = [libvirt.VIR_DOMAIN_JOB_NONE]
        self.domain.blockJobInfo.return_value = {}

    def refused(self, **more):
        return str(self.assertRaises(exception.VolumeExtendFailed, self.show,
                                     **more))


class TestShowSize(ShowCase):

    def setUp(self):
        super().setUp()
        patcher = mock.patch.object(volumes.volume_nodes, 'show_size')
        self.addCleanup(patcher.stop)
        self.shown = patcher.start()
        self.disk = guest_disks.find(test_volume_nodes.DOCUMENT, VOLUME)

    def show(self, size=1 << 30):
        self.cache.show_size(self.domain, self.disk, self.connection(), size)

    def test_a_guest_sees_it(self):
        self.show()
        [_monitor, disk, size, disconnect] = self.shown.call_args.args
        self.assertEqual(('vdb', 1 << 30), (disk.device, size))
        disconnect()
        self.client.disconnect_volume.assert_called_once_with(VOLUME)

    def test_what_keeps_a_guest_from_seeing_it(self):
        self.assertIn('unknown', self.refused(size=None))
        self.domain.blockJobInfo.return_value = {'type': 1}
        self.assertIn('copied', self.refused())
        self.shown.assert_not_called()
        self.domain.blockJobInfo.side_effect = libvirt.libvirtError('gone')
        self.assertIn('after a hard reboot: libvirt', self.refused())
        self.domain.blockJobInfo.side_effect = None
        self.domain.blockJobInfo.return_value = {}
        self.shown.side_effect = exceptions.PermanentError('Cannot grow')
        self.assertIn('after a hard reboot: Cannot grow', self.refused())


class TestShowSizeByVhost(ShowCase):
    """The cache shows the guest the size; QEMU has no part in it."""

    def show(self, size=1 << 30):
        self.cache.show_size(
            self.domain, guest_disks.find(test_guest_disks.DOCUMENT,
                                          test_guest_disks.OTHER),
            self.connection(), size)

    def test_a_guest_sees_it(self):
        self.show()
        self.client.resize_volume.assert_called_once_with(VOLUME)
        self.client.disconnect_volume.assert_not_called()
        self.domain.blockJobInfo.assert_not_called()

    def test_what_keeps_a_guest_from_seeing_it(self):
        self.assertIn('unknown', self.refused(size=None))
        self.client.resize_volume.side_effect = \
            exceptions.ServiceUnavailable('down')
        self.assertIn('after a hard reboot: down', self.refused())
