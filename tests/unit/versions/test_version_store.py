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
"""The object that programs use a store through."""

import os
import threading
import unittest
from unittest import mock

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.restore import restoring
from diffcache_openstack.versions.store.keys import key_files
from diffcache_openstack.versions.store.upkeep import retention
from diffcache_openstack.versions import version_store
from tests.unit.versions import fixture


class TestEngine(fixture.VersionsTestCase):

    def setUp(self):
        super().setUp()
        self.engine = version_store.VersionStore.open(
            file.FileStore(self.directory / 'store'))

    def save_it(self, **options):
        [version] = self.engine.save(
            [version_store.Disk(self.disk, 'a')], **options)
        return version

    def test_a_save_made_twice_under_one_token_is_one(self):
        first = self.save_it(token='t-1')
        self.write_blocks(self.disk, 5)
        self.assertEqual(first.id, self.save_it(token='t-1').id)
        self.assertNotEqual(first.id, self.save_it(token='t-2').id)
        self.assertEqual(2, len(self.engine.versions('a')))

    def test_a_job_that_is_cancelled_leaves_nothing(self):
        cancel = threading.Event()
        cancel.set()
        job = version_store.Job(cancel=cancel)
        self.assertRaises(exceptions.Cancelled, self.save_it, job=job)
        self.assertRaises(exceptions.NotFound, self.engine.versions)
        self.save_it()

    def test_progress_reaches_the_whole(self):
        seen = []
        self.save_it(job=version_store.Job(lambda done, total: seen.append(
            (done, total))))
        size = self.blocks * fixture.BLOCK
        self.assertEqual((size, size), seen[-1])

    def test_a_base_whose_id_is_told_is_not_read(self):
        image = self.write_file('base', self.blocks_of(20))
        disk = self.write_file('on-base', image.read_bytes())
        told = version_store.Disk(disk, 'b', image, base_id='5a' * 32)
        [version] = self.engine.save([told])
        self.assertEqual('5a' * 32, version.base.id)
        output = self.directory / 'out'
        self.engine.restore(version.id, output, 'raw', image, '5a' * 32)
        self.assertEqual(image.read_bytes(), output.read_bytes())
        self.assertRaises(exceptions.BaseMismatch, self.engine.restore,
                          version.id, output, 'raw', image)

    @unittest.skipUnless(fixture.has_qemu(), fixture.NEEDS_QEMU)
    def test_an_interrupted_save_goes_on_with_its_moment(self):
        disk = self.directory / 'disk.qcow2'
        fixture.make_qcow2(disk, 1 << 20)
        fixture.qemu_io(disk, 'write -P 1 0 4k')

        def lost(*_args):
            raise exceptions.ServiceUnavailable('the store is gone')

        told = version_store.Disk(disk, 'q')
        with mock.patch.object(file.FileStore, 'put_file', lost):
            self.assertRaises(exceptions.ServiceUnavailable, self.engine.save,
                              [told], token='t-1')
        fixture.qemu_io(disk, 'write -P 2 0 4k')
        [version] = self.engine.save([told], token='t-1')
        self.assertEqual(1, self.content(version)[0])
        [version] = self.engine.save([told], token='t-2')
        self.assertEqual(2, self.content(version)[0])

    @unittest.skipUnless(fixture.has_qemu(), fixture.NEEDS_QEMU)
    def test_an_exported_version_lies_on_nothing(self):
        image = self.write_file('base', self.blocks_of(64))
        os.truncate(image, 8 << 20)
        disk = self.directory / 'disk.qcow2'
        fixture.make_qcow2(disk, 8 << 20, image)
        fixture.qemu_io(disk, 'write -P 7 64k 4k')
        [version] = self.engine.save([version_store.Disk(
            disk, 'q', image, format='qcow2')])
        output = restoring.Output(self.directory / 'out', 'qcow2')
        self.engine.export(version.id, output, image)
        self.assert_same_disk(disk, output.path)
        # What is zero in the base takes no place.
        self.assertLess(output.path.stat().st_size, 1 << 20)
        image.unlink()
        self.assertIn(b'\7' * 4096, output.path.read_bytes())

    def test_everything_else_goes_through_it(self):
        first = self.save_it()
        self.write_blocks(self.disk, 1, 2)
        second = self.save_it()
        self.assertEqual(2, self.engine.diff(first.id, second.id).blocks)
        disk = version_store.Disk(self.disk, 'a')
        plan = self.engine.plan_rollback(first.id, disk)
        done = self.engine.roll_back(first.id, disk)
        self.assertEqual(plan.bytes_differing, done.bytes_written)
        self.assertIsNone(
            version_store.VersionStore.unfinished_rollback(self.disk))
        self.assertTrue(self.engine.verify().intact)
        pruned = self.engine.prune({None: retention.Policy(last=1)})
        self.assertEqual(2, len(pruned.versions_deleted))
        self.assertEqual(done.kept, self.engine.versions()[0].id)

    def test_keys_are_read_in_both_forms(self):
        key = bytes(range(32))
        for content in (key, key.hex().encode() + b'\n'):
            path = self.write_file('key', content)
            path.chmod(0o640)
            self.assertEqual(key, key_files.read_key(path))
        self.write_file('key', b'short')
        self.assertRaises(exceptions.InvalidInput, key_files.read_key,
                          path)

    def test_a_key_that_other_users_may_read_is_refused(self):
        path = self.write_file('key', bytes(32))
        path.chmod(0o644)
        error = self.assertRaises(exceptions.InvalidInput,
                                  key_files.read_key, path)
        self.assertIn('chmod 600', str(error))
