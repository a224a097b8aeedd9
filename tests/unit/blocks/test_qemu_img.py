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

import errno
import json
import os
import pathlib
import subprocess
from unittest import mock

from diffcache_openstack.blocks import qemu_img
from diffcache_openstack.common import exceptions
from tests import base

CONTENT = bytes(range(256)) * 4096


class QemuImgTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.raw = self.write_file('raw', CONTENT)
        self.packed = self.directory / 'packed'

    def test_an_expanded_image_is_the_compressed_one(self):
        qemu_img.compress(str(self.raw), str(self.packed))
        self.assertLess(self.packed.stat().st_size, len(CONTENT) // 2)
        again = self.directory / 'again'
        qemu_img.expand(str(self.packed), str(again))
        self.assertEqual(CONTENT, again.read_bytes())

    def test_methods_of_compression(self):
        for method in 'zlib', 'zstd':
            qemu_img.compress(str(self.raw), str(self.packed), method)
            self.assertEqual(method, json.loads(subprocess.check_output([
                'qemu-img', 'info', '--output=json', self.packed]))[
                    'format-specific']['data']['compression-type'])

    def test_what_is_no_qcow2_image_is_not_expanded(self):
        with self.assertRaisesRegex(exceptions.PermanentError, 'again'):
            qemu_img.expand(str(self.raw), str(self.directory / 'again'))

    def test_no_qemu_img(self):
        with mock.patch.dict(os.environ, {'PATH': str(self.directory)}):
            with self.assertRaisesRegex(exceptions.InvalidInput,
                                        'qemu-utils'):
                qemu_img.compress(str(self.raw), str(self.packed))

    def test_a_full_disk_is_no_space(self):
        failed = subprocess.CompletedProcess(
            [], 1, '', f'qemu-img: {os.strerror(errno.ENOSPC)}')
        with mock.patch.object(subprocess, 'run', return_value=failed):
            with self.assertRaisesRegex(exceptions.NoSpace,
                                        pathlib.Path(self.packed).name):
                qemu_img.compress(str(self.raw), str(self.packed))
