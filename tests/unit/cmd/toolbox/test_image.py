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
"""``diffcache image``."""

import dataclasses
import io
import json
import logging
import pathlib
import shutil
import subprocess
from unittest import mock

from diffcache_openstack.blocks import manifest
from diffcache_openstack.cmd.toolbox import app as toolbox
from tests import base


class ImageCommandTest(base.TestCase):

    def setUp(self):
        super().setUp()
        # Each run of the toolbox adds its handlers to the root logger.
        root = logging.getLogger()
        self.addCleanup(setattr, root, 'handlers', list(root.handlers))

    def call(self, *argv: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with (mock.patch('sys.stdout', out), mock.patch('sys.stderr', err)):
            code = toolbox.main(['image', *argv])
        return code, out.getvalue(), err.getvalue()

    def test_a_manifest_is_written_and_told_of(self):
        image = self.write_file('image', b'some' * 50_000 + bytes(100_000))
        output = self.directory / 'manifest'
        code, out, err = self.call('manifest', str(image), str(output),
                                   '-f', 'json')
        self.assertEqual((0, ''), (code, err))
        made = manifest.read(str(output))
        self.assertEqual(dataclasses.asdict(made), json.loads(out))
        self.assertEqual(manifest.content_id(str(image)), made.content_id)

    def test_trim_reports_what_it_did(self):
        mke2fs = shutil.which('mke2fs', path='/sbin:/usr/sbin:/bin')
        if mke2fs is None:
            self.skipTest('needs the program mke2fs (package e2fsprogs)')
        image, output = self.directory / 'image', self.directory / 'output'
        image.write_bytes(b'gone' * (1 << 20))
        subprocess.run([mke2fs, '-q', '-F', '-t', 'ext4', '-E', 'nodiscard',
                        str(image)], check=True, stdout=subprocess.DEVNULL)
        code, out, err = self.call('trim', str(image), str(output),
                                   '-f', 'json')
        self.assertEqual((0, ''), (code, err))
        done = json.loads(out)
        self.assertEqual(done['stale'],
                         done['data_before'] - done['data_after'])
        self.assertGreater(done['stale'], 1 << 20)
        self.assertEqual(image.stat().st_size, output.stat().st_size)

    def test_an_image_that_cannot_be_trimmed_leaves_no_output(self):
        image, output = self.directory / 'image', self.directory / 'output'
        image.write_bytes(bytes(1 << 20))
        code, out, err = self.call('trim', str(image), str(output))
        self.assertEqual((1, ''), (code, out))
        self.assertIn(f'{image}: no ext4 or xfs filesystem was found', err)
        self.assertEqual([pathlib.Path(image)],
                         list(self.directory.iterdir()))

    def test_what_is_no_disk_is_not_trimmed(self):
        small = self.write_file('six', b'hello!')
        code, _, err = self.call('trim', str(small),
                                 str(self.directory / 'out'))
        self.assertEqual(1, code)
        self.assertIn('six has 6 bytes', err)

    def test_no_image_is_replaced(self):
        image = self.write_file('image', b'some' * 50_000)
        for command in ('manifest', 'trim'):
            code, out, err = self.call(command, str(image), str(image))
            self.assertEqual((1, ''), (code, out))
            self.assertIn('is the image itself', err)
        self.assertEqual(b'some' * 50_000, image.read_bytes())
