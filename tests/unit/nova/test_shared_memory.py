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
"""Memory of servers is shared if their flavor says so."""

# Before Nova itself, which may be missing.
from tests.unit.nova import needs

from lxml import etree
from nova.objects import flavor
from nova.virt.libvirt import config as vconfig

from diffcache_openstack.nova import shared_memory


class TestShare(needs.NovaTest):

    def share(self, backing, **specs):
        found = shared_memory.share(flavor.Flavor(extra_specs={
            f'diffcache:{key}': value for key, value in specs.items()}),
            backing)
        return found and etree.tostring(found.format_dom()).decode()

    def test_a_flavor_that_says_so(self):
        shared = ('<source type="memfd"/><access mode="shared"/>'
                  '</memoryBacking>')
        self.assertEqual('<memoryBacking>' + shared,
                         self.share(None, shared_memory='true'))
        backing = vconfig.LibvirtConfigGuestMemoryBacking()
        backing.locked = True
        self.assertEqual('<memoryBacking><locked/>' + shared,
                         self.share(backing, shared_memory='yes'))

    def test_others(self):
        self.assertIsNone(self.share(None))
        self.assertIsNone(self.share(None, shared_memory='false'))
        files = vconfig.LibvirtConfigGuestMemoryBacking()
        files.filesource = files.sharedaccess = True
        self.assertIn('<source type="file"/>',
                      self.share(files, shared_memory='true'))
        pages = vconfig.LibvirtConfigGuestMemoryBacking()
        pages.hugepages = [vconfig.LibvirtConfigGuestMemoryBackingPage()]
        self.assertIs(pages, shared_memory.share(flavor.Flavor(
            extra_specs={'diffcache:shared_memory': 'true'}), pages))
