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
"""Outputs in directories that are mounted apart, as units of systemd do."""

import os
import subprocess
import sys
import unittest

from tests import base

# Delivers a staged file to a directory of the same file system, which is
# mounted once more.
_DELIVER = '''
import pathlib, sys
from diffcache_openstack.agent.images.delivery import outputs
root = pathlib.Path(sys.argv[1])
output = outputs.LocalOutput(root / 'instances' / 'disk')
print(output.can_take(root / 'staging' / 'image'))
'''
_MOUNTED_APART = 'mount --bind "$1/instances" "$1/instances" && '


@unittest.skipUnless(os.geteuid() == 0, 'needs root')
class TestOutputMounts(base.TestCase):

    def setUp(self):
        super().setUp()
        self.write_file('staging/image', b'image')
        (self.directory / 'instances').mkdir()

    def can_take(self, before=''):
        """Ask in a mount namespace of its own, after a shell command."""
        done = subprocess.run(
            ['unshare', '--mount', 'sh', '-c',
             before + 'exec "$2" -c "$3" "$1"', 'sh', self.directory,
             sys.executable, _DELIVER],
            check=True, text=True, capture_output=True)
        return done.stdout.strip()

    def test_a_file_is_not_renamed_to_another_mount_of_its_filesystem(self):
        self.assertEqual('True', self.can_take())
        self.assertEqual('False', self.can_take(_MOUNTED_APART))
