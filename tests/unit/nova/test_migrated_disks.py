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
"""Documents of servers that are migrated live."""

import types

from tests.unit.nova import needs  # Before Nova itself, which may be missing.

from lxml import etree
from nova.virt.libvirt import config as vconfig
from nova.virt.libvirt import migration

from diffcache_openstack.nova import cached_disks
from diffcache_openstack.nova import migrated_disks
from tests.unit.nova import volume_cases

_DOCUMENT = '''
<domain><devices>
  <disk type="file" device="disk"><source file="/disk"/>
    <target dev="vda" bus="virtio"/></disk>
  <disk type="{kind}" device="disk"><driver name="qemu" type="raw"/>
    {source}<target dev="vdb" bus="virtio"/><serial>{volume}</serial>
    <address type="pci" slot="7"/></disk>
</devices></domain>
'''
_NBD = ('<source protocol="nbd" name="x"><host transport="unix"'
        ' socket="/run/nbd"/></source>')
_BLOCK = '<source dev="/dev/sdx"/>'


class TestTypes(needs.NovaTest):

    def setUp(self):
        super().setUp()
        for name in ('parse_dom', 'format_dom'):
            self.patch(vconfig.LibvirtConfigGuestDisk, name, getattr(
                vconfig.LibvirtConfigGuestDisk, name))
        self.patch(migration, '_update_volume_xml',
                   migration._update_volume_xml)
        cached_disks.install()
        migrated_disks.install()

    def migrated(self, kind, source, config):
        """The disks of a server's document, for its next host."""
        document = etree.fromstring(_DOCUMENT.format(
            kind=kind, source=source, volume=volume_cases.VOLUME))
        found = migration._update_volume_xml(
            document, types.SimpleNamespace(bdms=[types.SimpleNamespace(
                serial=volume_cases.VOLUME, connection_info={'data': {}},
                as_disk_info=dict,
                obj_attr_is_set=lambda name: False)]), None,
            lambda *_arguments: config)
        return found.findall('./devices/disk')

    def config(self):
        """What a host without the cache has."""
        return volume_cases.Driver().get_config(
            {'data': {'device_path': '/dev/sdx'}}, {'type': 'disk'})

    def test_a_cached_volume_goes_to_a_host_without_the_cache(self):
        disk, volume = self.migrated('network', _NBD, self.config())
        self.assertEqual('file', disk.get('type'))
        self.assertEqual('block', volume.get('type'))
        self.assertEqual({'dev': '/dev/sdx'}, volume.find('source').attrib)
        self.assertEqual('7', volume.find('address').get('slot'))

    def test_a_volume_goes_to_a_host_that_caches_it(self):
        _disk, volume = self.migrated('block', _BLOCK, cached_disks.CachedDisk(
            self.config(), volume_cases.EXPORT))
        self.assertEqual('network', volume.get('type'))
        self.assertEqual('nbd', volume.find('source').get('protocol'))
