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
"""Disks that bypass QEMU, as Nova writes, reads and finds them."""

from unittest import mock

# Before Nova itself, which may be missing.
from tests.unit.nova import needs  # noqa: F401

from lxml import etree
from nova.virt.libvirt import config as vconfig
from nova.virt.libvirt import driver as nova_driver
from nova.virt.libvirt import guest

from diffcache_openstack.nova import cached_disks
from diffcache_openstack.nova import connections
from tests.unit.nova import volume_cases

VOLUME = volume_cases.VOLUME
SOCKET = '/run/nbd.vhost/' + '0' * 32
EXPORT = {**volume_cases.EXPORT, 'vhost': SOCKET}


class VhostTest(volume_cases.VolumesTest):

    def config(self):
        """What Nova gets of a volume that the cache serves so."""
        self.client.attach_volume.return_value = EXPORT
        connection = self.connection()
        driver = self.around(connection)
        driver.connect_volume(connection, volume_cases.INSTANCE)
        self.assertEqual(SOCKET, connection['data'][connections.KEY]['vhost'])
        return driver.get_config(connection, {'type': 'disk'})

    def own(self):
        """Have Nova's driver name the device, as it does."""
        config = volume_cases.Driver.get_config

        def get_config(driver, *arguments):
            disk = config(driver, *arguments)
            disk.alias = vconfig.make_libvirt_device_alias(VOLUME)
            return disk

        self.patch(volume_cases.Driver, 'get_config', get_config)


class TestDocument(VhostTest):

    def setUp(self):
        super().setUp()
        self.own()

    def test_nothing_that_libvirt_refuses(self):
        disk = self.config()
        disk.driver_cache = None  # Nova sets what it has for the type.
        document = etree.fromstring(disk.to_xml())
        self.assertEqual({'type': 'vhostuser', 'device': 'disk'},
                         dict(document.attrib))
        self.assertEqual(['driver', 'alias', 'source', 'target'],
                         [child.tag for child in document])
        self.assertEqual({'name': 'qemu', 'type': 'raw'},
                         dict(document.find('driver').attrib))
        self.assertEqual({'type': 'unix', 'path': SOCKET},
                         dict(document.find('source').attrib))
        self.assertEqual({'enabled': 'yes', 'timeout': '1'},
                         dict(document.find('source/reconnect').attrib))
        self.assertEqual(f'ua-{VOLUME}', document.find('alias').get('name'))

    def test_a_bus_that_libvirt_refuses(self):
        config = volume_cases.Driver.get_config

        def get_config(driver, *arguments):
            disk = config(driver, *arguments)
            disk.target_bus = 'scsi'
            return disk

        self.patch(volume_cases.Driver, 'get_config', get_config)
        self.assertIsInstance(self.config(), cached_disks.CachedDisk)

    def test_nova_reads_and_writes_it_to_detach_it(self):
        written = self.config().to_xml()
        found = vconfig.LibvirtConfigGuestDisk()
        found.parse_str(written)
        self.assertEqual(etree.tostring(etree.fromstring(written)),
                         etree.tostring(etree.fromstring(found.to_xml())))


class TestNova(VhostTest):
    """Where Nova looks for disks by what these do not have."""

    def setUp(self):
        super().setUp()
        self.own()
        domain = mock.Mock()
        domain.XMLDesc.return_value = (
            f'<domain><devices>{self.config().to_xml()}</devices></domain>')
        self.guest = guest.Guest(domain)

    def test_by_the_serial_number(self):
        """As for extension and snapshots."""
        [disk] = self.guest.get_all_disks()
        self.assertEqual((VOLUME, 'vdb', None), (
            disk.serial, disk.target_dev, disk.source_path))

    def test_by_the_alias(self):
        """As to detach it."""
        own = nova_driver.LibvirtDriver._get_guest_disk_device
        found = own(mock.Mock(), self.guest, 'vdb', volume_uuid=VOLUME)
        self.assertEqual(SOCKET, found.unix_socket)
        self.assertIn(SOCKET, found.to_xml())
