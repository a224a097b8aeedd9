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
"""The driver as nova-compute loads it, on a libvirt that is not there."""

import functools
import os
import pathlib
import socket
import sys
import time
from unittest import mock

from tests.unit.nova import needs  # Before Nova itself, which may be missing.

import libvirt
from nova.compute import power_state
from nova import exception
import nova.virt
from nova.virt import driver as virt_driver
from nova.virt import images
from nova.virt.libvirt import blockinfo
import nova.virt.libvirt.driver
from nova.virt.libvirt import imagebackend
from nova.virt.libvirt import imagecache

from diffcache_openstack.common import exceptions
import diffcache_openstack.nova
from diffcache_openstack.nova import driver
from diffcache_openstack.nova import fetching
from diffcache_openstack.nova import volume_departures
from diffcache_openstack.nova import volume_drivers
from diffcache_openstack.nova import volumes_driver
from tests.unit.nova import fakes
from tests.unit.nova import test_volume_nodes

IMAGE = '7a1dbe2a-5c3f-4c0a-9df6-30a1b3f5a1aa'
NAME = imagecache.get_cache_fname(IMAGE)
FOLDER = str(pathlib.Path(
    diffcache_openstack.nova.__file__).parent / 'virt')
DOWNLOADED = b'\x02' * 65536
VOLUME = '3e1c7a52-0d4b-4a65-8d43-0c4b2f7f1d10'
DOCUMENT = f"""<domain><devices><disk type='network'>
<source protocol='nbd' name='e1'><host transport='unix' socket='/run/nbd'/>
</source><target dev='vdb'/><serial>{VOLUME}</serial></disk>
</devices></domain>"""


class DriverTest(needs.NovaTest):

    def setUp(self):
        super().setUp()
        path = self.directory / 'agent.sock'
        server = socket.socket(socket.AF_UNIX)
        self.addCleanup(server.close)
        server.bind(str(path))
        server.listen()
        self.set('socket', str(path), 'diffcache')
        self.set('compute_driver', 'diffcache.LibvirtDriver')
        self.set('virt_type', 'qemu', 'libvirt')
        self.set('host', 'compute-1')
        # What the configuration hook does.
        nova.virt.__path__.append(FOLDER)
        self.addCleanup(self.forget)

    def forget(self):
        nova.virt.__path__.remove(FOLDER)
        sys.modules.pop('nova.virt.diffcache', None)
        vars(nova.virt).pop('diffcache', None)

    def load(self):
        return virt_driver.load_compute_driver(mock.Mock())

    def patch(self, *args, **kwargs):
        patcher = mock.patch.object(*args, **kwargs)
        self.addCleanup(patcher.stop)
        return patcher.start()


class TestLoading(DriverTest):

    def test_nova_finds_it(self):
        found = self.load()
        self.assertIsInstance(found, driver.LibvirtDriver)
        for name in ('default', 'qcow2', 'raw', 'flat'):
            self.set('images_type', name, 'libvirt')
            backend = found.image_backend.backend()
            self.assertTrue(hasattr(backend, 'fetcher'))
            expected = (imagebackend.Qcow2 if name in ('default', 'qcow2')
                        else imagebackend.Flat)
            self.assertTrue(issubclass(backend, expected))

    def test_a_mistake_stops_nova_compute(self):
        self.set('socket', None, 'diffcache')
        error = self.assertRaises(exception.InvalidConfiguration, self.load)
        self.assertIn('[diffcache] socket is not set', str(error))

    def test_the_backends_of_other_drivers_stay_as_they_are(self):
        self.load()
        plain = imagebackend.Backend(True)
        self.assertIs(imagebackend.Qcow2, plain.backend('qcow2'))


class TestCaching(DriverTest):

    def setUp(self):
        super().setUp()
        self.client = fakes.Client(IMAGE)
        self.patch(driver.local_client, 'LocalClient',
                   return_value=self.client)
        self.patch(images, 'get_info', return_value={
            'id': IMAGE, 'status': 'active', 'disk_format': 'raw',
            'os_hash_algo': 'sha512', 'os_hash_value': fakes.DIGEST})
        self.download = self.patch(
            images, 'fetch_to_raw', side_effect=lambda _context, _image, path,
            _certs=None: pathlib.Path(path).write_bytes(DOWNLOADED))
        self.driver = self.load()
        self.base = self.instances / '_base' / NAME

    def test_an_image_is_cached_before_it_is_needed(self):
        self.assertTrue(self.driver.cache_image(None, IMAGE))
        self.assertEqual(fakes.CONTENT, self.base.read_bytes())
        self.download.assert_not_called()

    def test_an_image_that_is_there_gets_younger(self):
        self.driver.cache_image(None, IMAGE)
        os.utime(self.base, (1, 1))
        self.assertFalse(self.driver.cache_image(None, IMAGE))
        self.assertGreater(self.base.stat().st_mtime, 1)
        self.assertEqual(1, sum(question[0] == 'content'
                                for question in self.client.asked))

    def test_without_an_agent_it_is_downloaded(self):
        self.client.error = exceptions.ServiceUnavailable('nobody there')
        self.assertTrue(self.driver.cache_image(None, IMAGE))
        self.assertEqual(DOWNLOADED, self.base.read_bytes())


class TestExtend(DriverTest):

    def setUp(self):
        super().setUp()
        self.driver = self.load()
        self.guest = self.patch(self.driver._host, 'get_guest').return_value
        self.guest._domain.XMLDesc.return_value = test_volume_nodes.DOCUMENT
        self.guest._domain.jobInfo.side_effect = libvirt.libvirtError(
            'domain is not running')
        self.guest.get_power_state.return_value = power_state.SHUTDOWN
        self.host = self.patch(self.driver, '_extend_volume',
                               return_value=1 << 30)
        self.shown = self.patch(self.driver._volumes, 'show_size')
        self.connection = {'serial': test_volume_nodes.VOLUME, 'data': {}}

    def extend(self):
        self.driver.extend_volume(None, self.connection, mock.Mock(), 1 << 30)
        self.host.assert_called_once_with(self.connection, mock.ANY, 1 << 30)

    def test_a_stopped_server_sees_the_size_when_it_starts(self):
        self.guest.is_active.return_value = False
        self.extend()
        self.shown.assert_not_called()

    def test_a_running_server_sees_it_at_once(self):
        self.guest.is_active.return_value = True
        self.extend()
        self.shown.assert_called_once_with(
            self.guest._domain, mock.ANY, self.connection, 1 << 30)


class TestEnd(DriverTest):
    """A server that ended expects to have lost what it had not flushed."""

    def setUp(self):
        super().setUp()
        self.driver = self.load()
        self.order = []
        self.guest = self.patch(self.driver._host, 'get_guest')
        self.guest.return_value._domain.XMLDesc.return_value = DOCUMENT
        self.client = self.patch(self.driver._volumes, 'client')
        self.client.ssd_cache.return_value = {'volumes': {
            'a': {'export': 'e1', 'losses': [[0, 4096]]},
            'b': {'export': 'e2', 'losses': [[0, 4096]]}}}
        self.client.end_volume_guest.side_effect = self.order.append
        self.patch(nova.virt.libvirt.driver.LibvirtDriver, '_destroy',
                   side_effect=lambda _instance: self.order.append('ended'))

    def test_the_cache_is_told_once_it_has_ended(self):
        self.driver._destroy(mock.Mock())
        self.assertEqual(['ended', 'a'], self.order)

    def test_one_that_is_gone_or_lost_nothing(self):
        self.client.ssd_cache.return_value['volumes']['a']['losses'] = []
        self.driver._destroy(mock.Mock())
        self.guest.side_effect = exception.InstanceNotFound(instance_id='i')
        self.driver._destroy(mock.Mock())
        self.client.ssd_cache.assert_called_once_with()
        self.assertEqual(['ended'] * 2, self.order)

    def test_without_the_agent_it_ends(self):
        self.client.ssd_cache.side_effect = exceptions.ServiceUnavailable(
            'nobody there')
        with self.assertLogs(volume_departures.LOG, 'WARNING'):
            self.driver._destroy(mock.Mock())
        self.assertEqual(['ended'], self.order)


class TestLiveMigration(DriverTest):

    def setUp(self):
        super().setUp()
        self.driver = self.load()
        self.server = mock.Mock(uuid='a-server', image_ref=IMAGE)
        self.guest = self.patch(self.driver._host, 'get_guest').return_value
        self.guest._domain.XMLDesc.return_value = DOCUMENT
        self.client = self.patch(self.driver._volumes, 'client')
        self.driver._volumes._notes.begin(VOLUME)
        self.own = {
            end: self.patch(nova.virt.libvirt.driver.LibvirtDriver,
                            f'check_can_live_migrate_{end}')
            for end in ('source', 'destination')}

    def check(self, end):
        return getattr(self.driver, f'check_can_live_migrate_{end}')(
            None, self.server, 'data', block_device_info={})

    def assert_refused(self, end, words):
        error = self.assertRaises(exception.MigrationPreCheckError,
                                  self.check, end)
        self.assertIn(words, str(error))
        self.own[end].assert_not_called()

    def assert_passed_on(self, end):
        self.assertIs(self.own[end].return_value, self.check(end))
        self.own[end].assert_called_with(None, self.server, 'data',
                                         block_device_info={})

    def test_a_server_that_was_stopped_by_an_error_stays(self):
        self.guest._domain.state.return_value = [
            libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_IOERROR]
        self.assert_refused('source', 'a-server is stopped')
        self.guest._domain.state.return_value = [
            libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_USER]
        self.assert_passed_on('source')

    def test_not_to_a_host_where_its_image_is_arriving(self):
        base = self.instances / '_base' / NAME
        base.parent.mkdir()
        base.symlink_to(self.write_file('arriving', b'x'))
        self.assert_refused('destination', f'image {IMAGE} is still arriving')
        base.unlink()
        self.assert_passed_on('destination')
        base.write_bytes(b'x')
        self.assert_passed_on('destination')
        self.server.image_ref = ''
        self.assert_passed_on('destination')

    def test_volumes_are_drained_before(self):
        self.assert_passed_on('source')
        self.client.drain_volume.assert_called_once_with(
            VOLUME, mock.ANY, False)
        self.client.drain_volume.side_effect = exceptions.Busy(
            'volume has 3 blocks, repeat this')
        error = self.assertRaises(exception.MigrationPreCheckError,
                                  self.check, 'source')
        self.assertIn('3 blocks, repeat this', str(error))

    def migrate(self):
        return self.migrate_with(self.patch(
            nova.virt.libvirt.driver.LibvirtDriver, 'live_migration'))

    def migrate_with(self, own):
        recover = mock.Mock()
        self.driver.live_migration(None, self.server, 'dest', 'post', recover,
                                   False, 'data')
        return own, recover

    def test_they_are_drained_when_it_begins(self):
        own, recover = self.migrate()
        self.client.drain_volume.assert_called_once_with(
            VOLUME, mock.ANY, True)
        own.assert_called_once_with(None, self.server, 'dest', 'post',
                                    recover, False, 'data')
        recover.assert_not_called()

    def test_it_is_rolled_back_if_they_are_not(self):
        self.client.drain_volume.side_effect = exceptions.Busy('3 blocks')
        with self.assertLogs(volumes_driver.LOG, 'ERROR') as logs:
            own, recover = self.migrate()
        self.assertIn('3 blocks', logs.output[0])
        recover.assert_called_once_with(None, self.server, 'dest', 'data')
        own.assert_not_called()

    def test_a_rollback_gives_them_back(self):
        own = self.patch(nova.virt.libvirt.driver.LibvirtDriver,
                         'rollback_live_migration_at_source')
        self.driver.rollback_live_migration_at_source(None, self.server, {})
        own.assert_called_once_with(None, self.server, {})
        self.client.give_volume_back.assert_called_once_with(VOLUME)

    def test_a_start_gives_none_back_whose_migration_begins(self):
        own = self.patch(nova.virt.libvirt.driver.LibvirtDriver,
                         'live_migration')
        self.patch(self.driver, '_active_guests', return_value=[self.guest])
        self.guest.uuid = self.server.uuid
        # libvirt has not begun yet.
        self.guest._domain.jobInfo.return_value = [
            libvirt.VIR_DOMAIN_JOB_NONE]
        own.side_effect = lambda *_: self.driver._give_back_volumes()
        self.migrate_with(own)
        own.assert_called_once()
        self.client.give_volume_back.assert_not_called()
        self.driver._give_back_volumes()
        self.client.give_volume_back.assert_called_once_with(VOLUME)

    def test_a_start_gives_those_back_that_are_not_migrated(self):
        self.patch(self.driver, '_active_guests',
                   return_value=[self.guest])
        self.guest._domain.jobInfo.return_value = [
            libvirt.VIR_DOMAIN_JOB_UNBOUNDED]
        self.driver._give_back_volumes()
        self.client.give_volume_back.assert_not_called()
        self.guest._domain.jobInfo.return_value = [
            libvirt.VIR_DOMAIN_JOB_NONE]
        self.driver._give_back_volumes()
        self.client.give_volume_back.assert_called_once_with(VOLUME)


class TestVolumes(DriverTest):
    """Volumes in write-back of servers that end, or get another volume."""

    def setUp(self):
        super().setUp()
        self.driver = self.load()
        self.notes = self.driver._volumes._notes
        self.notes.begin(VOLUME)
        self.client = self.patch(self.driver._volumes, 'client')
        self.client.ssd_cache.return_value = {'volumes': {}}
        self.connection = {'serial': VOLUME, 'data': {}}
        self.server = mock.Mock(uuid='a-server', host='compute-1')
        self.cleanup = nova.virt.libvirt.driver.LibvirtDriver.cleanup
        self.own = {
            name: self.patch(nova.virt.libvirt.driver.LibvirtDriver, name)
            for name in ('cleanup', 'swap_volume')}

    def clean_up(self):
        info = {'block_device_mapping': [
            {'connection_info': each} for each in (
                self.connection, {}, {'serial': 'other', 'data': {}})]}
        self.driver.cleanup(None, self.server, None, info,
                            destroy_disks=True)

    def test_notes_are_beside_the_socket_or_where_the_option_says(self):
        self.assertEqual(self.directory / 'write_back' / VOLUME,
                         self.notes.path(VOLUME))
        self.set('write_back_notes', '/n', 'diffcache')
        self.assertEqual(pathlib.Path('/n/v'),
                         volumes_driver._notes().path('v'))

    def test_nova_would_ignore_an_error_and_give_the_volume_to_others(self):
        self.client.detach_volume.side_effect = exceptions.Conflict('dead')
        error = self.assertRaises(exception.VolumeDetachFailed, self.clean_up)
        self.assertIn('dead', str(error))
        self.own['cleanup'].assert_not_called()
        self.client.detach_volume.side_effect = None
        self.clean_up()
        self.client.detach_volume.assert_called_with(VOLUME)
        self.own['cleanup'].assert_called_once()
        self.client.forget_volume.assert_not_called()

    def test_a_server_that_was_evacuated_while_this_host_was_down(self):
        self.server.host = 'compute-2'
        self.clean_up()
        self.client.forget_volume.assert_called_once_with(VOLUME)
        self.client.detach_volume.assert_not_called()
        self.client.drain_volume.assert_not_called()

    def test_a_volume_that_the_cache_keeps_lets_nova_start(self):
        # Regression: nova-compute ended at each start.
        self.server.host = 'compute-2'
        self.client.forget_volume.side_effect = exceptions.ServiceUnavailable(
            'away')
        driver, disconnected = mock.Mock(), []
        cached = volume_drivers.FormerVolumeDriver(driver,
                                                   self.driver._volumes)
        self.own['cleanup'].side_effect = \
            lambda *_, **__: disconnected.append(
                cached.disconnect_volume(self.connection, self.server))
        self.clean_up()
        self.assertEqual([None], disconnected)
        driver.disconnect_volume.assert_called_once()
        self.client.detach_volume.assert_not_called()
        self.assertTrue(self.notes.has(VOLUME))

    def hard_reboot(self):
        """Do what Nova does to stop a server that it starts again."""
        stopped = RuntimeError('here it would be started')
        plain = nova.virt.libvirt.driver.LibvirtDriver
        self.own['cleanup'].side_effect = functools.partial(
            self.cleanup, self.driver)
        for name, found in (('_get_all_assigned_mediated_devices', {}),
                            ('_destroy', None), ('_get_vpmems', []),
                            ('_unplug_vifs', None),
                            ('_detach_encryptor', None),
                            ('_undefine_domain', None)):
            self.patch(plain, name, return_value=found)
        # Nova before 33 does not call it.
        self.patch(plain, '_get_existing_guest_config', create=True,
                   return_value=None)
        self.patch(plain, '_get_volume_driver')
        self.patch(blockinfo, 'get_disk_info', side_effect=stopped)
        info = {'block_device_mapping': [
            {'connection_info': self.connection, 'mount_device': 'vdb'}]}
        self.driver.power_on(None, self.server, None, info)

    def test_a_server_starts_whose_host_was_started(self):
        self.connection['data'] = {
            'qos_specs': {'diffcache:ssd_cache': 'write-back'}}
        self.patch(self.driver._host, 'get_guest',
                   side_effect=exception.InstanceNotFound(instance_id='s'))
        held = {'state': 'held', 'dirty': 3}
        refused = exceptions.Conflict('it is held')
        self.client.ssd_cache.return_value = {'volumes': {VOLUME: held}}
        self.client.drain_volume.side_effect = refused
        self.client.detach_volume.side_effect = refused
        error = self.assertRaises(RuntimeError, self.hard_reboot)
        self.assertIn('here it would be started', str(error))
        # Another one is not, nor is the server deleted.
        self.assertRaises(exception.VolumeDetachFailed, self.clean_up)
        held['state'] = 'ok'
        self.assertRaises(exception.VolumeDetachFailed, self.hard_reboot)

    def test_a_volume_that_is_replaced(self):
        self.patch(self.driver, '_document', return_value=DOCUMENT)
        args = (None, self.connection, {}, self.server, '/dev/vdb', 0)
        self.driver.swap_volume(*args)
        self.own['swap_volume'].assert_called_once_with(*args)
        self.client.drain_volume.side_effect = exceptions.Busy('3 blocks')
        self.assertRaises(exception.VolumeDetachFailed,
                          self.driver.swap_volume, *args)
        self.own['swap_volume'].assert_called_once()


class TestAging(DriverTest):

    def setUp(self):
        super().setUp()
        self.driver = self.load()
        self.folder = self.instances / '_base'
        self.folder.mkdir()
        self.patch(self.driver.image_cache_manager, '_list_running_instances',
                   return_value={'used_images': {}, 'instance_names': set(),
                                 'used_swap_images': set(),
                                 'used_ephemeral_images': set()})

    def make(self, name, days):
        path = self.folder / name
        path.write_bytes(b'x')
        when = time.time() - days * 86400
        os.utime(path, (when, when))

    def test_deliveries_that_were_cut_off_are_removed_some_day(self):
        self.make(f'{"a" * 40}{fetching.SUFFIX}', days=2)
        self.make(f'{"b" * 40}{fetching.SUFFIX}', days=0.5)
        self.driver.manage_image_cache(None, [])
        self.assertEqual([f'{"b" * 40}{fetching.SUFFIX}'],
                         os.listdir(self.folder))

    def test_delivered_images_age_as_nova_says(self):
        self.make('a' * 40, days=2)
        self.make('b' * 40, days=0.5)
        self.driver.manage_image_cache(None, [])
        self.assertEqual(['b' * 40], os.listdir(self.folder))

    def test_images_in_use_are_named_to_the_agent(self):
        lent = self.patch(self.driver._fetcher, 'lend')
        self.make(NAME, days=0)
        self.driver.manage_image_cache(None, [
            mock.Mock(image_ref=IMAGE), mock.Mock(image_ref='missing'),
            mock.Mock(image_ref=IMAGE), mock.Mock(image_ref='')])
        lent.assert_called_once_with(IMAGE, str(self.folder / NAME))
