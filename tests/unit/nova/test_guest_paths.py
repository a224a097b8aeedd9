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
"""The rule by which guests reach volumes: vhost-user, or NBD and why."""

import types

# Before Nova itself, which may be missing.
from tests.unit.nova import needs  # noqa: F401

from nova.objects import flavor
from nova.objects import image_meta

from diffcache_openstack.nova import connections
from diffcache_openstack.nova import guest_paths
from tests.unit.nova import volume_cases

INSTANCE = volume_cases.INSTANCE


class TestRule(volume_cases.VolumesTest):

    def setUp(self):
        super().setUp()
        self.of_server = None
        self.fields = {'attachment_id': 'at1', 'device_name': '/dev/vdb',
                       'disk_bus': 'virtio', 'device_type': 'disk',
                       'boot_index': -1}

    def reason(self, data=(), instance=INSTANCE, **fields):
        return guest_paths.nbd_reason(
            self.connection(data=data), instance,
            types.SimpleNamespace(**{**self.fields, **fields}),
            lambda instance: self.of_server)

    def test_shared_memory_and_a_plain_disk(self):
        self.assertIsNone(self.reason())
        # As Nova has it before it has chosen.
        self.assertIsNone(self.reason(disk_bus=None, device_type=None))

    def test_a_server_that_cannot(self):
        self.of_server = guest_paths.WAS_STARTED
        self.assertEqual(guest_paths.WAS_STARTED, self.reason())

    def test_limits_that_the_cache_does_not_enforce(self):
        specs = {'total_iops_sec': '500', 'write_bytes_sec_max': '7',
                 'diffcache:ssd_cache': 'write-through'}
        self.assertIn('cannot enforce: write_bytes_sec_max=7',
                      self.reason({'qos_specs': specs}))
        del specs['write_bytes_sec_max']
        self.assertIsNone(self.reason({'qos_specs': specs}))
        self.assertIsNone(self.reason({'qos_specs': None}))

    def test_a_block_size(self):
        for key in ('logical_block_size', 'physical_block_size'):
            self.assertIn('block size', self.reason({key: '4096'}))

    def test_another_kind_of_disk(self):
        self.assertEqual('it is a disk on the bus scsi',
                         self.reason(disk_bus='scsi'))
        self.assertIn('lun', self.reason(device_type='lun'))

    def test_the_disk_that_a_server_boots_from(self):
        self.assertIn('boots from it', self.reason(boot_index=0))
        self.assertIsNone(self.reason(boot_index=1))

    def test_memory_that_is_encrypted(self):
        image = image_meta.ImageMeta.from_dict({
            'properties': {'hw_firmware_type': 'uefi',
                           'hw_machine_type': 'q35'}})
        instance = types.SimpleNamespace(
            uuid='i', image_meta=image, flavor=flavor.Flavor(
                name='f', extra_specs={'hw:mem_encryption': 'true'}))
        self.assertIn('encrypted', self.reason(instance=instance))

    def test_the_agent_gets_it(self):
        for reason in (None, 'the memory of its server is not shared'):
            self.of_server = reason
            connection = self.connection()
            self.around(connection).connect_volume(connection, INSTANCE)
            wanted = self.client.attach_volume.call_args.args[1]
            self.assertEqual(reason, wanted['nbd_reason'])

    def test_where_qemu_is_needed_for_now(self):
        connection = self.connection()
        mapping = connections.mapping(connection, INSTANCE)
        self.assertIsNone(self.cache.nbd_reason(connection, INSTANCE,
                                                mapping))
        with self.cache.migrating('h1'):
            self.assertIn('live migration', self.cache.nbd_reason(
                connection, INSTANCE, mapping))
        with self.cache.replacing(connection):
            self.assertIn('place of another', self.cache.nbd_reason(
                connection, INSTANCE, mapping))
        self.assertIn('Nova did not say', self.cache.nbd_reason(
            connection, INSTANCE, None))
