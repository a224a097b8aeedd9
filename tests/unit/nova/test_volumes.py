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
import types
from unittest import mock

from tests.unit.nova import needs  # Before Nova itself, which may be missing.

import libvirt
from lxml import etree
from nova import exception
from nova.objects import block_device
from nova.virt.libvirt import config as vconfig
import oslo_messaging

from diffcache_openstack.common import exceptions
from diffcache_openstack.nova import tally
from diffcache_openstack.nova import volumes
from diffcache_openstack.ssdcache import origins
from diffcache_openstack.ssdcache import write_back_notes
from tests.unit.nova import test_volume_nodes

VOLUME = '7a1dbe2a-5c3f-4c0a-9df6-30a1b3f5a1aa'
INSTANCE = types.SimpleNamespace(uuid='i')
EXPORT = {'export': '0' * 32, 'socket': '/run/nbd', 'reconnect_delay': 60,
          'noted': False}


class Driver:
    """A volume driver that connects a block device."""

    is_block_dev = True

    def __init__(self):
        self.asked = []

    def connect_volume(self, connection, instance):
        self.asked.append('connect')
        connection['data']['device_path'] = '/dev/sdx'

    def disconnect_volume(self, connection, instance, force=False):
        self.asked.append(('disconnect', force))

    def extend_volume(self, connection, instance, size):
        self.asked.append('extend')
        return size

    def get_config(self, connection, disk_info):
        disk = vconfig.LibvirtConfigGuestDisk()
        disk.source_type = 'block'
        disk.source_path = connection['data']['device_path']
        disk.source_device = disk_info['type']
        disk.driver_name, disk.driver_format = 'qemu', 'raw'
        disk.driver_cache, disk.driver_io = 'none', 'native'
        disk.driver_discard = 'unmap'
        disk.target_dev, disk.target_bus = 'vdb', 'virtio'
        disk.serial = VOLUME
        disk.disk_read_iops_sec = 7
        return disk


class RbdDriver(Driver):
    """As Nova's, which connects nothing and has QEMU open the image."""

    def connect_volume(self, connection, instance):
        self.asked.append('connect')

    def get_config(self, connection, disk_info):
        data = connection['data']
        disk = vconfig.LibvirtConfigGuestDisk()
        disk.source_type, disk.source_protocol = 'network', 'rbd'
        disk.source_device = disk_info['type']
        disk.driver_name, disk.driver_format = 'qemu', 'raw'
        disk.source_name = data['name']
        disk.source_hosts, disk.source_ports = data['hosts'], data['ports']
        disk.auth_username = data['auth_username']
        disk.auth_secret_type, disk.auth_secret_uuid = 'ceph', VOLUME
        disk.target_dev, disk.target_bus = 'vdb', 'virtio'
        return disk


class VolumesTest(needs.NovaTest):

    def setUp(self):
        super().setUp()
        disk = vconfig.LibvirtConfigGuestDisk
        for name in ('parse_dom', 'format_dom'):
            self.addCleanup(setattr, disk, name, getattr(disk, name))
        volumes.install()
        self.client = mock.Mock()
        self.tally = tally.Tally(self.directory / 'tally.json')
        self.client.attach_volume.return_value = dict(EXPORT)
        self.notes = write_back_notes.Notes(self.directory / 'write_back')
        self.cache = volumes.VolumeCache(self.client, self.tally, self.notes)
        self.driver = Driver()
        self.mapping = self.enterContext(mock.patch.object(
            block_device.BlockDeviceMapping, 'get_by_volume_and_instance',
            return_value=types.SimpleNamespace(attachment_id='at1')))

    def connection(self, specs=(), data=(), **fields):
        cache = 'diffcache:ssd_cache'
        return {'serial': VOLUME, **fields, 'data': {
            'qos_specs': {cache: 'write-through', **{
                f'{cache}:{key}': value for key, value in dict(specs).items()
            }}, **dict(data)}}

    def around(self, connection):
        return self.cache.around(self.driver, connection)

    def uncached(self):
        return self.tally.summary()['uncached_volumes']


class TestChoice(VolumesTest):

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
                ('specs', self.connection({'weight': 'heavy'}))):
            self.assertIs(self.driver, self.around(connection))
            self.assertEqual(1, self.uncached()[reason])

    def test_everything_else_is_the_driver_s(self):
        self.assertTrue(self.around(self.connection()).is_block_dev)


class TestConnect(VolumesTest):

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
            'sequential': 1 << 20, 'admission': 2, 'attachment': 'at1'})
        self.assertEqual({**EXPORT, 'mode': 'write-through', 'volume': VOLUME},
                         connection['data'][volumes.KEY])
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
            with self.assertLogs(volumes.LOG, 'WARNING'):
                self.around(connection).connect_volume(connection, INSTANCE)
            self.assertIsNone(
                self.client.attach_volume.call_args.args[1]['attachment'])
            self.assertIn(volumes.KEY, connection['data'])

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
        driver = self.cache.around(RbdDriver(), connection)
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
        self.cache.around(RbdDriver(), connection).connect_volume(
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
            connection = self.connection(data={volumes.KEY: dict(EXPORT)})
            driver = self.around(connection)
            self.client.attach_volume.side_effect = error
            driver.connect_volume(connection, INSTANCE)
            self.assertNotIn(volumes.KEY, connection['data'])
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

    def test_a_detach_without_an_answer(self):
        connection = self.connection()
        self.client.detach_volume.side_effect = \
            exceptions.ServiceUnavailable('down')
        self.around(connection).disconnect_volume(connection, INSTANCE)
        self.assertEqual([('disconnect', False)], self.driver.asked)


class TestExtend(VolumesTest):

    def extend(self, connection):
        return self.around(connection).extend_volume(connection, INSTANCE,
                                                     1 << 30)

    def test_a_cached_volume(self):
        connection = self.connection(data={volumes.KEY: EXPORT})
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
            self.connection(data={volumes.KEY: EXPORT})))
        self.client.resize_volume.assert_called_once_with(VOLUME)

    def test_a_cache_that_does_not_answer(self):
        # What QEMU says of the size decides.
        self.client.resize_volume.side_effect = \
            exceptions.ServiceUnavailable('down')
        self.assertEqual(1 << 30, self.extend(
            self.connection(data={volumes.KEY: EXPORT})))


class ShowCase(VolumesTest):
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
        self.disk = volumes.volume_nodes.find(test_volume_nodes.DOCUMENT,
                                              VOLUME)

    def show(self, size=1 << 30):
        self.cache.show_size(self.domain, self.disk, self.connection(), size)

    def test_a_guest_sees_it(self):
        self.show()
        [_monitor, disk, size, disconnect] = self.shown.call_args.args
        self.assertEqual((self.disk, 1 << 30), (disk, size))
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


class TestLiveMigration(VolumesTest):

    def test_nothing_is_cached_while_another_host_writes(self):
        connection = self.connection()
        with self.cache.migrating('h1'):
            self.around(connection).connect_volume(connection, INSTANCE)
        [(_, wanted)] = [call.args for call
                         in self.client.attach_volume.call_args_list]
        self.assertEqual('pass-through', wanted['mode'])
        self.client.expect_volume.assert_called_once_with(VOLUME, 'h1')
        self.cache.begin([connection, {'data': {}}])
        self.client.set_volume_mode.assert_called_once_with(
            VOLUME, 'write-through')

    def test_it_ends_with_the_preparation(self):
        try:
            with self.cache.migrating('h1'):
                raise ValueError
        except ValueError:
            pass
        connection = self.connection()
        self.around(connection).connect_volume(connection, INSTANCE)
        self.assertEqual('write-through',
                         connection['data'][volumes.KEY]['mode'])
        self.client.expect_volume.assert_not_called()
        self.cache.begin([connection])
        self.client.set_volume_mode.assert_not_called()

    def test_an_agent_that_cannot_learn_how_it_is_used(self):
        self.client.expect_volume.side_effect = exceptions.NotFound('old')
        connection = self.connection()
        with self.cache.migrating('h1'):
            self.around(connection).connect_volume(connection, INSTANCE)
        self.assertEqual('pass-through',
                         connection['data'][volumes.KEY]['mode'])
        self.assertEqual({}, self.uncached())

    def test_a_cache_that_does_not_answer_afterwards(self):
        connection = self.connection()
        with self.cache.migrating('h1'):
            self.around(connection).connect_volume(connection, INSTANCE)
        self.client.set_volume_mode.side_effect = \
            exceptions.ServiceUnavailable('down')
        self.cache.begin([connection])
        self.assertEqual({'ServiceUnavailable': 1}, self.uncached())


class TestWriteBack(VolumesTest):
    """Volumes that may lack blocks which the cache has."""

    def setUp(self):
        super().setUp()
        self.notes.begin(VOLUME)
        self.client.ssd_cache.return_value = {
            'volumes': {VOLUME: {'dirty': 5}}}

    def end_note(self, *_args, **_fields):
        self.notes.end(VOLUME)

    def assert_refused(self, kind, work, *words):
        error = self.assertRaises(kind, work)
        for word in (VOLUME, *words):
            self.assertIn(word, str(error))

    def test_a_detach_that_fails_keeps_the_volume_here(self):
        connection = self.connection()
        for error in (exceptions.ServiceUnavailable('down'),
                      exceptions.Conflict('dead storage')):
            self.client.detach_volume.side_effect = error
            self.assert_refused(
                exception.VolumeDetachFailed,
                lambda: self.around(connection).disconnect_volume(
                    connection, INSTANCE, force=True),
                '5 blocks', str(error), 'Repeat this')
        self.client.ssd_cache.side_effect = exceptions.ServiceUnavailable('x')
        self.assert_refused(
            exception.VolumeDetachFailed,
            lambda: self.around(connection).disconnect_volume(
                connection, INSTANCE), 'an unknown number of blocks')
        self.assertEqual([], self.driver.asked)

    def test_it_is_drained_before_as_long_as_blocks_become_fewer(self):
        left = [5, 3, 2]
        self.client.ssd_cache.side_effect = lambda: {
            'volumes': {VOLUME: {'dirty': left.pop(0)}}}
        self.client.drain_volume.side_effect = [
            exceptions.Busy('5'), exceptions.Busy('3'), exceptions.Busy('2'),
            None]
        connection = self.connection()
        self.around(connection).disconnect_volume(connection, INSTANCE)
        self.assertEqual([], left)
        self.client.detach_volume.assert_called_once_with(VOLUME)
        self.assertEqual([('disconnect', False)], self.driver.asked)

    def test_blocks_that_do_not_become_fewer(self):
        self.client.drain_volume.side_effect = exceptions.Busy('stuck')
        connection = self.connection()
        self.assert_refused(
            exception.VolumeDetachFailed,
            lambda: self.around(connection).disconnect_volume(
                connection, INSTANCE), 'stuck')
        self.assertEqual(2, self.client.drain_volume.call_count)

    def test_it_is_never_used_without_the_cache(self):
        for error in (exceptions.ServiceUnavailable('down'),
                      exceptions.NoSpace('failed'),
                      exceptions.Conflict('held')):
            self.client.attach_volume.side_effect = error
            connection = self.connection()
            self.assert_refused(
                exception.VolumeAttachFailed,
                lambda: self.around(connection).connect_volume(
                    connection, INSTANCE), '5 blocks', str(error))
            self.assertNotIn(volumes.KEY, connection['data'])
        self.driver.connect_volume = lambda connection, instance: None
        connection = self.connection()
        self.assert_refused(
            exception.VolumeAttachFailed,
            lambda: self.around(connection).connect_volume(
                connection, INSTANCE), 'no block device')
        self.assertEqual({}, self.uncached())

    def test_a_note_that_cannot_be_looked_for_counts(self):
        self.end_note()
        with mock.patch.object(self.notes, 'has',
                               side_effect=PermissionError('no')):
            self.client.attach_volume.side_effect = \
                exceptions.ServiceUnavailable('down')
            connection = self.connection()
            self.assert_refused(
                exception.VolumeAttachFailed,
                lambda: self.around(connection).connect_volume(
                    connection, INSTANCE))

    def test_notes_that_are_not_seen_here(self):
        self.end_note()
        self.client.attach_volume.return_value = {**EXPORT, 'noted': True}
        connection = self.connection()
        with self.assertLogs(volumes.LOG, 'WARNING') as logs:
            self.around(connection).connect_volume(connection, INSTANCE)
        self.assertIn('[diffcache] write_back_notes', logs.output[0])
        self.client.detach_volume.assert_called_once_with(VOLUME)
        self.assertNotIn(volumes.KEY, connection['data'])

    def test_a_type_in_write_back(self):
        self.client.attach_volume.return_value = {**EXPORT, 'noted': True}
        connection = self.connection()
        connection['data']['qos_specs'] = {
            'diffcache:ssd_cache': 'write-back'}
        self.around(connection).connect_volume(connection, INSTANCE)
        self.assertEqual('write-back',
                         connection['data'][volumes.KEY]['mode'])
        with self.cache.migrating('source'):
            self.around(connection).connect_volume(connection, INSTANCE)
        self.assertEqual('pass-through',
                         connection['data'][volumes.KEY]['mode'])
        self.cache.begin([connection])
        self.client.set_volume_mode.assert_called_once_with(VOLUME,
                                                            'write-back')

    def test_a_note_that_is_not_seen_after_a_live_migration(self):
        self.client.attach_volume.return_value = {**EXPORT, 'noted': False}
        connection = self.connection()
        connection['data']['qos_specs'] = {
            'diffcache:ssd_cache': 'write-back'}
        self.end_note()
        with self.cache.migrating('source'):
            self.around(connection).connect_volume(connection, INSTANCE)
        found = {'mode': 'write-around'}
        self.client.ssd_cache.return_value = {'volumes': {VOLUME: found}}
        # An operator has set another mode.
        self.cache.begin([connection])
        self.client.set_volume_mode.assert_called_once_with(VOLUME,
                                                            'write-back')
        found['mode'] = 'write-back'
        with self.assertLogs(volumes.LOG, 'ERROR') as logs:
            self.cache.begin([connection])
        self.client.set_volume_mode.assert_called_with(VOLUME,
                                                       'write-through')
        self.assertIn('set [diffcache] write_back_notes', logs.output[0])

    def test_a_type_that_is_cached_no_more(self):
        for connection in (
                {'serial': VOLUME, 'data': {}},
                self.connection({'weight': 'heavy'}),
                self.connection(data={'access_mode': 'ro'})):
            self.notes.begin(VOLUME)
            self.driver.asked.clear()
            self.client.detach_volume.side_effect = exceptions.Conflict('no')
            driver = self.around(connection)
            for work in (driver.connect_volume, driver.disconnect_volume):
                self.assertRaises(exception.VolumeDetachFailed, work,
                                  connection, INSTANCE)
            self.assertEqual([], self.driver.asked)
            self.client.detach_volume.side_effect = self.end_note
            driver.connect_volume(connection, INSTANCE)
            driver.disconnect_volume(connection, INSTANCE)
            self.assertEqual(['connect', ('disconnect', False)],
                             self.driver.asked)
            self.assertIs(self.driver, self.around(connection))

    def test_a_held_volume_stays_held_until_it_is_connected_again(self):
        self.client.ssd_cache.return_value['volumes'][VOLUME]['state'] = 'held'
        self.client.drain_volume.side_effect = exceptions.Conflict('held')
        self.client.attach_volume.return_value = {**EXPORT, 'noted': True}
        connection = self.connection()
        driver = self.around(connection)
        with self.cache.reconnecting():
            driver.disconnect_volume(connection, INSTANCE, force=True)
            driver.connect_volume(connection, INSTANCE)
        self.assertEqual([('disconnect', True), 'connect'], self.driver.asked)
        self.client.drain_volume.assert_not_called()
        self.client.detach_volume.assert_not_called()
        self.client.attach_volume.assert_called_once()
        # Otherwise it may go to another host.
        self.assert_refused(
            exception.VolumeDetachFailed,
            lambda: driver.disconnect_volume(connection, INSTANCE), 'held')

    def test_others_leave_the_cache_before_they_are_connected_again(self):
        connection = self.connection()
        for answer in ({'volumes': {VOLUME: {'dirty': 5, 'state': 'ok'}}},
                       {'volumes': {}}, exceptions.ServiceUnavailable('x')):
            self.client.ssd_cache.side_effect = [answer]
            with self.cache.reconnecting():
                self.around(connection).disconnect_volume(connection, INSTANCE)
            self.client.detach_volume.assert_called_once_with(VOLUME)
            self.client.detach_volume.reset_mock()

    def test_a_volume_that_is_replaced_is_drained_before(self):
        self.client.drain_volume.side_effect = exceptions.Busy('stuck')
        with self.assertRaises(exception.VolumeDetachFailed):
            with self.cache.replacing(self.connection()):
                self.fail('it was replaced')
        self.client.drain_volume.side_effect = None
        with self.assertRaises(ZeroDivisionError):
            with self.cache.replacing(self.connection()):
                raise ZeroDivisionError
        self.client.give_volume_back.assert_called_once_with(VOLUME)

    def test_the_volume_in_its_place_stays_out_of_write_back(self):
        wanted = volumes.qos.parse({'diffcache:ssd_cache': 'write-back'})
        self.assertEqual('write-back', self.cache.mode(wanted))
        connection = self.connection()
        with self.cache.replacing(connection):
            self.client.drain_volume.reset_mock()
            self.assertEqual('write-through', self.cache.mode(wanted))
            self.around(connection).connect_volume(connection, INSTANCE)
        self.client.drain_volume.assert_called_once_with(
            VOLUME, volumes._DRAIN_S, leaves=True)
        self.assertEqual('write-back', self.cache.mode(wanted))


class TestMigration(VolumesTest):

    def test_all_volumes_are_drained_in_one_time(self):
        clock = iter((0.0, 10.0, 50.0))
        with mock.patch.object(volumes.time, 'monotonic',
                               side_effect=lambda: next(clock)):
            self.cache.prepare(['a', 'b'], leaves=True)
        self.assertEqual([mock.call('a', 20.0, True),
                          mock.call('b', 0.0, True)],
                         self.client.drain_volume.call_args_list)

    def test_volumes_that_the_cache_does_not_have(self):
        self.client.drain_volume.side_effect = exceptions.NotFound('none')
        self.cache.prepare(['a', 'b'], leaves=False)
        self.client.give_volume_back.side_effect = [
            exceptions.NotFound('old'), exceptions.ServiceUnavailable('x')]
        with self.assertLogs(volumes.LOG, 'WARNING') as logs:
            self.cache.give_back(['a', 'b'])
        self.assertIn('Volume b stays in write-through', logs.output[0])

    def test_a_volume_that_was_lost_with_the_device(self):
        self.client.drain_volume.side_effect = exceptions.NotFound('none')
        self.notes.begin('b')
        self.assertRaises(exceptions.NotFound, self.cache.prepare,
                          ['a', 'b'], True)

    def test_without_an_agent_those_leave_that_lack_nothing(self):
        self.client.drain_volume.side_effect = \
            exceptions.ServiceUnavailable('down')
        with self.assertLogs(volumes.LOG, 'WARNING') as logs:
            self.cache.prepare(['a', 'b'], leaves=True)
        self.assertEqual(2, len(logs.output))
        self.notes.begin('b')
        self.assertRaises(exceptions.ServiceUnavailable, self.cache.prepare,
                          ['a', 'b'], True)

    def test_one_that_takes_too_long(self):
        self.notes.begin('a')
        self.client.drain_volume.side_effect = exceptions.Busy('3 blocks')
        self.assertRaises(exceptions.Busy, self.cache.prepare, ['a'], True)
