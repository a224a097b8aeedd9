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
"""Disks that stop their guest, as Nova writes them for libvirt."""

import os
import subprocess
import types
from unittest import mock

from tests.unit.nova import needs  # Before Nova itself, which may be missing.

from nova.virt.libvirt import imagebackend

from diffcache_openstack.nova import backends
from diffcache_openstack.nova import lazy_disks
from diffcache_openstack.nova import options

options.register_compute_opts(needs.CONF)


class TestLazyDisks(needs.NovaTest):

    def setUp(self):
        super().setUp()
        self.backend = imagebackend.Backend(True)
        backends.install(self.backend, ('qcow2', 'raw'), mock.Mock(), None)
        self.arriving = self.write_file('arriving', bytes(1 << 20))
        self.base = self.instances / 'base'
        os.symlink(self.arriving, self.base)
        self.disk = self.instances / 'disk'
        subprocess.run(['qemu-img', 'create', '-q', '-f', 'qcow2', '-F',
                        'raw', '-b', self.base, self.disk], check=True)

    def image(self, kind='qcow2', device='disk', path=None):
        return self.backend.BACKEND[kind](
            types.SimpleNamespace(uuid='i'), path=str(path or self.disk),
            disk_info_mapping={'bus': 'virtio', 'dev': 'vda', 'type': device})

    def driver(self, image):
        """Attributes of the driver's element."""
        return dict(image.libvirt_info('none', {}).format_dom().find(
            'driver').attrib)

    def assert_stops(self, image):
        found = self.driver(image)
        self.assertEqual(('stop', 'stop'), (found.get('error_policy'),
                                            found.get('rerror_policy')))
        self.assertEqual(('qemu', 'qcow2', 'none'), (
            found['name'], found['type'], found['cache']))

    def assert_plain(self, image):
        found = self.driver(image)
        self.assertNotIn('error_policy', found)
        self.assertNotIn('rerror_policy', found)

    def test_a_base_that_is_a_link(self):
        self.assert_stops(self.image())

    def test_a_base_that_is_missing_may_become_one(self):
        self.base.unlink()
        self.assert_stops(self.image())

    def test_a_base_that_is_a_file(self):
        os.rename(self.arriving, self.base)
        self.assert_plain(self.image())

    def test_an_operator_who_wants_errors_to_be_reported(self):
        self.set('read_error_policy', 'report', 'diffcache')
        self.assert_plain(self.image())

    def test_disks_of_other_kinds(self):
        self.assert_plain(self.image(device='cdrom'))
        self.assert_plain(self.image('raw', path=self.arriving))
        self.assert_plain(self.image(path=self.instances / 'missing'))

    def test_a_disk_without_a_base(self):
        path = self.instances / 'flat'
        subprocess.run(['qemu-img', 'create', '-q', '-f', 'qcow2', path,
                        '1M'], check=True)
        self.assertFalse(lazy_disks.is_lazy(str(path)))
