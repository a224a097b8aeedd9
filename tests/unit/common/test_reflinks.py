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
"""Sharing extents; ``tests/functional/versions/test_views.py`` has XFS."""

import errno
import os

import fixtures

from diffcache_openstack.common import reflinks
from tests import base


class ReflinksTest(base.TestCase):

    def test_a_file_that_cannot_share_extents_says_unsupported(self):
        # A pipe has no extents on any filesystem.
        reading, writing = os.pipe()
        self.addCleanup(os.close, reading)
        self.addCleanup(os.close, writing)
        path = self.useFixture(fixtures.TempDir()).join('target')
        target = os.open(path, os.O_RDWR | os.O_CREAT)
        self.addCleanup(os.close, target)
        for share in (lambda: reflinks.clone(reading, target),
                      lambda: reflinks.clone_start(reading, target, 4096)):
            error = self.assertRaises(OSError, share)
            self.assertIn(error.errno, reflinks.UNSUPPORTED)

    def test_other_failures_are_not_unsupported(self):
        reading, writing = os.pipe()
        os.close(reading)
        os.close(writing)
        error = self.assertRaises(OSError, reflinks.clone, reading, writing)
        self.assertEqual(errno.EBADF, error.errno)
        self.assertNotIn(error.errno, reflinks.UNSUPPORTED)
