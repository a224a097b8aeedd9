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
"""Locks on images, as QEMU has them."""

from concurrent import futures
import subprocess
import unittest

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.disks import locks
from diffcache_openstack.versions import version_store
from tests.unit.versions import fixture


@unittest.skipUnless(fixture.has_qemu(), fixture.NEEDS_QEMU)
class TestLocks(fixture.VersionsTestCase):

    def test_a_disk_that_somebody_writes_to_is_in_use(self):
        locks.check_idle(self.disk)
        with fixture.guest_of(self.disk):
            self.assertRaises(exceptions.Busy, locks.check_idle, self.disk)
        locks.check_idle(self.disk)

    def test_nobody_uses_a_disk_that_is_held(self):
        with fixture.guest_of(self.disk):
            self.assertRaises(exceptions.Busy, self.held)
        with locks.hold(self.disk):
            done = subprocess.run(
                ['qemu-io', '-f', 'raw', '-c', 'write 0 4k', str(self.disk)],
                capture_output=True, text=True)
        self.assertIn('lock', done.stderr)

    def held(self):
        with locks.hold(self.disk):
            pass

    def test_a_thread_holds_a_disk_again_and_others_do_not(self):
        with locks.hold_alone(self.disk) as fd:
            with locks.hold(self.disk) as again, locks.reading(self.disk):
                self.assertEqual(fd, again)
            locks.check_idle(self.disk)
            with futures.ThreadPoolExecutor(1) as other:
                self.assertRaises(exceptions.Busy,
                                  other.submit(self.held).result)
                self.assertRaises(exceptions.Busy, other.submit(
                    locks.check_idle, self.disk).result)
        with locks.hold(self.disk):
            pass

    def test_a_disk_that_is_saved_is_not_rolled_back(self):
        with locks.reading(self.disk), locks.reading(self.disk):
            self.held()
            self.assertRaises(exceptions.Busy, self.alone)
        self.alone()

    def alone(self):
        with locks.hold_alone(self.disk):
            pass

    def test_a_guest_has_a_raw_disk_that_is_saved_or_goes_back(self):
        store = version_store.VersionStore.open(
            file.FileStore(self.directory / 'store'))
        disk = version_store.Disk(self.disk, 'a', format='raw')
        [version] = store.save([disk])
        with fixture.guest_of(self.disk):
            self.assertRaises(exceptions.Busy, store.save, [disk])
            for way in ('rollback', 'rebuild'):
                self.assertRaises(exceptions.Busy, store.roll_back_disks,
                                  [(version.id, disk)], way)
        self.assertIsNone(
            version_store.VersionStore.unfinished_rollback(self.disk))
        store.roll_back_disks([(version.id, disk)])
