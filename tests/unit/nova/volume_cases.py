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
"""Volumes with the SSD cache, for tests of them."""

import types
from unittest import mock

from tests.unit.nova import needs  # Before Nova itself, which may be missing.

from nova.objects import block_device
from nova.objects import flavor
from nova.objects import image_meta
from nova.virt.libvirt import config as vconfig

from diffcache_openstack.cached_volumes import write_back_notes
from diffcache_openstack.nova import cached_disks
from diffcache_openstack.nova import tallies
from diffcache_openstack.nova import volume_drivers
from diffcache_openstack.nova import volumes
from diffcache_openstack.objects import volume_specs as qos

VOLUME = '7a1dbe2a-5c3f-4c0a-9df6-30a1b3f5a1aa'
INSTANCE = types.SimpleNamespace(
    uuid='i', flavor=flavor.Flavor(extra_specs={}),
    image_meta=image_meta.ImageMeta.from_dict({}))
EXPORT = {'export': '0' * 32, 'socket': '/run/nbd', 'reconnect_delay': 60,
          'noted': False, 'vhost': None, 'rates': {}}


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
        cached_disks.install()
        self.client = mock.Mock()
        self.tally = tallies.Tally(self.directory / 'tally.json')
        self.client.attach_volume.return_value = dict(EXPORT)
        self.notes = write_back_notes.Notes(self.directory / 'write_back')
        self.of_server = 'the memory of its server is not shared'
        self.cache = volumes.VolumeCache(self.client, self.tally, self.notes,
                                         lambda instance: self.of_server)
        self.driver = Driver()
        self.mapping = self.enterContext(mock.patch.object(
            block_device.BlockDeviceMapping, 'get_by_volume_and_instance',
            return_value=types.SimpleNamespace(
                attachment_id='at1', device_name='/dev/vdb', disk_bus=None,
                device_type=None, boot_index=None)))

    def connection(self, specs=(), data=(), **fields):
        cache = 'diffcache:ssd_cache'
        return {'serial': VOLUME, **fields, 'data': {
            'qos_specs': {cache: 'write-through', **{
                f'{cache}:{key}': value for key, value in dict(specs).items()
            }}, **dict(data)}}

    def written_back(self):
        """A connection of Cinder's driver, of a type in write-back."""
        connection = self.connection(
            data={qos.MARK: {'held': True}})
        connection['data']['qos_specs'] = {
            'diffcache:ssd_cache': 'write-back'}
        return connection

    def around(self, connection):
        return volume_drivers.around(self.cache, self.driver, connection)

    def uncached(self):
        return self.tally.summary()['uncached_volumes']
