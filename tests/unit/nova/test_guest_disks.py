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
"""Disks of the cache are found in documents, by either way."""

from diffcache_openstack.common import exceptions
from diffcache_openstack.nova import guest_disks
from diffcache_openstack.nova import volume_waits
from tests import base
from tests.unit.nova import test_volume_nodes

VOLUME = test_volume_nodes.VOLUME
OTHER = '11111111-5c3f-4c0a-9df6-30a1b3f5a1aa'
VHOST = f'''
<disk type='vhostuser' device='disk'><driver name='qemu' type='raw'/>
 <source type='unix' path='/run/nbd.vhost/e4'/>
 <target dev='vdd' bus='virtio'/><alias name='ua-{OTHER}'/></disk>'''
DOCUMENT = test_volume_nodes.DOCUMENT.replace('</devices>',
                                              VHOST + '</devices>')


class TestFind(base.TestCase):

    def test_both_ways(self):
        nbd, vhost = guest_disks.cached(DOCUMENT)
        self.assertEqual((VOLUME, 'vdb', '0123', False), (
            nbd.volume_id, nbd.device, nbd.export, nbd.is_vhost))
        self.assertEqual((OTHER, 'vdd', 'e4', True), (
            vhost.volume_id, vhost.device, vhost.export, vhost.is_vhost))
        self.assertEqual([VOLUME, OTHER], guest_disks.volume_ids(DOCUMENT))
        self.assertEqual(vhost.device,
                         guest_disks.find(DOCUMENT, OTHER).device)
        self.assertIsNone(guest_disks.find(DOCUMENT, 'another'))
        self.assertEqual([], guest_disks.cached('<domain/>'))

    def test_a_device_that_no_user_named(self):
        document = DOCUMENT.replace(f'ua-{OTHER}', 'virtio-disk3')
        self.assertEqual([VOLUME], guest_disks.volume_ids(document))

    def test_one_that_bypasses_qemu_does_not_stop_its_server(self):
        self.assertEqual({'vdb': '0123'},
                         volume_waits.cached_disks(DOCUMENT))


class TestRefuse(base.TestCase):

    def test_what_qemu_cannot_do(self):
        guest_disks.refuse_vhost(test_volume_nodes.DOCUMENT)
        guest_disks.refuse_vhost(DOCUMENT, VOLUME)
        for wanted in (None, OTHER):
            error = self.assertRaises(
                exceptions.Conflict, guest_disks.refuse_vhost, DOCUMENT,
                wanted)
            self.assertIn(OTHER, str(error))
            self.assertNotIn(VOLUME, str(error))
