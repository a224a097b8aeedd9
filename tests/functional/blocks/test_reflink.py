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
"""Patches on a filesystem that shares blocks between files."""

import json
import os
import random
import subprocess

from diffcache_openstack import _native
from diffcache_openstack.blocks.codecs import registry
from tests import base
from tests.functional.fixtures import filesystems

_MIB = 1 << 20


@filesystems.NEEDED
class ReflinkTest(base.TestCase):

    def setUp(self):
        super().setUp()
        mount = self.useFixture(filesystems.Xfs(self.directory)).path
        self.mount = mount
        noise = random.Random(1)
        self.base = noise.randbytes(40 * _MIB)
        moved = self.base[8 * _MIB:12 * _MIB]
        self.target = (self.base[:20 * _MIB] + noise.randbytes(_MIB) + moved
                       + self.base[25 * _MIB:] + bytes(_MIB))
        (mount / 'base').write_bytes(self.base)
        (mount / 'target').write_bytes(self.target)
        self.codec = registry.get('block')
        self.codec.create(self.path('base'), self.path('target'),
                          self.path('patch'))
        os.unlink(mount / 'target')
        os.sync()

    def path(self, name: str) -> str:
        return str(self.mount / name)

    def used(self) -> int:
        os.sync()
        status = os.statvfs(self.mount)
        return (status.f_blocks - status.f_bfree) * status.f_bsize

    def shared_bytes(self, name: str) -> int:
        """Bytes of a file that other files have as well, by its extents."""
        listed = subprocess.run(
            ['filefrag', '-v', self.path(name)], check=True,
            capture_output=True, text=True).stdout.splitlines()
        extents = [line for line in listed if 'shared' in line]
        return sum(int(line.split(':')[3]) * 4096 for line in extents)

    def test_the_output_shares_what_did_not_change(self):
        before = self.used()
        stats = _native.patch_apply(self.path('base'), self.path('patch'),
                                    self.path('output'))
        self.assertIs(True, stats['reflinked'])
        self.assertEqual(self.target, (self.mount / 'output').read_bytes())
        # What is new and what moved to another place, and nothing else.
        self.assertLessEqual(stats['bytes_written'], 2 * _MIB)
        self.assertLess(self.used() - before, 3 * _MIB)
        self.assertGreaterEqual(self.shared_bytes('output'), 38 * _MIB)

    def test_a_verified_base_is_read_where_it_differs(self):
        _native.manifest_create(self.path('base'), self.path('manifest'))
        for _ in range(2):
            stats = _native.patch_apply_verified(
                self.path('base'), self.path('manifest'), self.path('patch'),
                self.path('output'))
            self.assertIs(True, stats['reflinked'])
            self.assertEqual(self.target,
                             (self.mount / 'output').read_bytes())
            # What is new and what moved.
            self.assertLessEqual(stats['bytes_verified'], 6 * _MIB)
        self.assertGreaterEqual(self.shared_bytes('output'), 38 * _MIB)

    def test_damage_to_what_moved_is_found(self):
        damaged = bytearray(self.base)
        damaged[9 * _MIB] ^= 1
        _native.manifest_create(self.path('base'), self.path('manifest'))
        described = (self.mount / 'manifest').read_bytes()
        (self.mount / 'base').write_bytes(damaged)
        # As if the disk had lost the bit: no time tells of it.
        (self.mount / 'manifest').write_bytes(described)
        self.assertRaises(
            _native.BaseMismatch, _native.patch_apply_verified,
            self.path('base'), self.path('manifest'), self.path('patch'),
            self.path('output'))
        self.assertNotIn('output', os.listdir(self.mount))

    def test_a_base_that_changes_meanwhile_gives_no_output(self):
        changed = []

        def change(done, total):
            if not changed:
                changed.append(done)
                os.utime(self.path('base'))

        self.assertRaises(_native.Interrupted, _native.patch_apply,
                          self.path('base'), self.path('patch'),
                          self.path('output'), change)
        self.assertEqual({'base', 'patch'}, set(os.listdir(self.mount)))

    def test_the_base_is_not_changed_by_what_is_written(self):
        self.codec.apply(self.path('base'), self.path('patch'),
                         self.path('output'))
        with open(self.path('output'), 'r+b') as stream:
            stream.write(b'another')
        self.assertEqual(self.base, (self.mount / 'base').read_bytes())

    def test_a_base_is_changed_in_place(self):
        self.codec.apply_in_place(self.path('base'), self.path('patch'))
        self.assertEqual(self.target, (self.mount / 'base').read_bytes())
        self.assertEqual({'base', 'patch'}, set(os.listdir(self.mount)))

    def test_a_full_filesystem_leaves_the_base_alone(self):
        with open(self.path('filler'), 'wb') as stream:
            free = os.statvfs(self.mount)
            os.posix_fallocate(stream.fileno(), 0,
                               free.f_bavail * free.f_bsize - 64 * 1024)
        done = subprocess.run(
            ['diffcache', 'patch', 'apply', '--in-place', self.path('base'),
             self.path('patch'), '-f', 'json'],
            capture_output=True, text=True)
        self.assertEqual(1, done.returncode, done.stdout)
        self.assertIn('no space left', done.stderr)
        self.assertEqual(self.base, (self.mount / 'base').read_bytes())
        os.unlink(self.path('filler'))
        done = subprocess.run(
            ['diffcache', 'patch', 'apply', '--in-place', self.path('base'),
             self.path('patch'), '-f', 'json'],
            capture_output=True, text=True, check=True)
        self.assertEqual('block', json.loads(done.stdout)['codec'])
        self.assertEqual(self.target, (self.mount / 'base').read_bytes())
