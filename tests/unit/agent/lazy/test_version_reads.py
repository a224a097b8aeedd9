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
"""Versions that diffcached reads from the agent."""

import contextlib
import os
import threading
import time
import types

import fixtures

from diffcache_openstack.agent.images import contents
from diffcache_openstack.agent.lazy import version_reads
from diffcache_openstack.common import exceptions
from diffcache_openstack import objects
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions import version_store
from tests.unit.versions import fixture

VERSION = '322bde76-949e-4c77-a812-310ab1466fc5'
IMAGE = '7a1dbe2a-5c3f-4c0a-9df6-30a1b3f5a1aa'
PROJECT = 'p'


class Conductor:
    """Knows one version; a test may take it down."""

    def __init__(self, disk):
        self.disk = disk
        self.opened = []
        self.closed = []
        self.down = False

    def open_version(self, ctxt, host, version_id, project_id):
        if self.down:
            raise exceptions.ServiceUnavailable('down')
        if (version_id, project_id) != (VERSION, PROJECT):
            raise exceptions.NotFound('no such version')
        self.opened.append(host)
        return self.disk

    def close_version(self, ctxt, host, version_id):
        if self.down:
            raise exceptions.ServiceUnavailable('down')
        self.closed.append(version_id)


class Bases:
    """Has the base image as a file."""

    def __init__(self, path):
        self.path = path
        self.brought = 0

    def bring(self, disk, path):
        self.brought += 1
        if disk.base_name is None:
            return None, None
        path.write_bytes(self.path.read_bytes())
        return path, disk.base_id


class LazyVersionsTest(fixture.VersionsTestCase):

    def setUp(self):
        super().setUp()
        self.image = self.write_file('base', self.blocks_of(400))
        self.disk.write_bytes(self.image.read_bytes() + self.blocks_of(50))
        self.opened = version_store.VersionStore.open(
            file.FileStore(self.directory / 'store'))
        [self.saved] = self.opened.save([version_store.Disk(
            self.disk, 's', self.image, format='raw', manifest=True)])
        self.conductor = Conductor(objects.VersionDisk(
            device='vda', version=self.saved.id, size=self.saved.size,
            base_id=self.saved.base.id, base_name=str(self.image)))
        self.bases = Bases(self.image)
        self.others = {}
        self.versions = self.new_versions()

    def new_versions(self):
        return version_reads.VersionReads(
            types.SimpleNamespace(open=lambda project: self.others.get(
                project, self.opened)),
            self.bases, self.conductor, 'h1', self.directory / 'lazy',
            '/run/agent.sock')

    def prepare(self, image=IMAGE, base_path=None):
        disk = self.versions.disk_of(VERSION, PROJECT)
        return self.versions.prepare(version_reads.ReadVersion(
            VERSION, PROJECT, disk.version, disk.base_id, disk.base_name,
            base_path, (image,)))

    def left(self):
        return sorted(path.name for path
                      in (self.directory / 'lazy').iterdir())


class TestPrepare(LazyVersionsTest):

    def test_what_diffcached_needs(self):
        prepared = self.prepare()
        self.opened.create_manifest(self.saved.id, self.directory / 'm',
                                    self.image)
        self.assertEqual((self.directory / 'm').read_bytes(),
                         prepared.manifest.read_bytes())
        folder = self.directory / 'lazy'
        self.assertEqual([
            {'version': VERSION,
             'description': str(folder / f'{self.saved.id}.description'),
             'base': str(folder / f'{self.saved.id}.base')},
            {'name': f'version {VERSION}, by the agent',
             'socket': '/run/agent.sock',
             'path': f'/v1/version-contents/{prepared.content_id}'}],
            prepared.sources)
        self.assertEqual(['h1'], self.conductor.opened)

    def test_no_key_is_written_to_a_file(self):
        self.opened = version_store.VersionStore.open(
            file.FileStore(self.directory / 'sealed'), b'k' * 32)
        [saved] = self.opened.save([version_store.Disk(
            self.disk, 's', format='raw', manifest=True)])
        self.conductor.disk = objects.VersionDisk(
            device='vda', version=saved.id, size=saved.size)
        [source] = self.prepare().sources
        self.assertEqual('/run/agent.sock', source['socket'])
        self.assertEqual([f'{saved.id}.manifest', 'served.json'],
                         self.left())

    def test_a_store_without_a_manifest(self):
        [saved] = self.opened.save([version_store.Disk(
            self.image, 'other', format='raw')])
        self.conductor.disk = objects.VersionDisk(
            device='vda', version=saved.id, size=saved.size)
        self.assertIsNone(self.prepare())

    def test_of_another_project(self):
        self.assertRaises(exceptions.NotFound, self.versions.disk_of,
                          VERSION, 'other')

    def test_images_that_stand_for_the_same(self):
        content = self.prepare().content_id
        self.assertEqual(content, self.prepare('another').content_id)
        self.assertEqual((IMAGE, 'another'),
                         self.versions.find(content).image_ids)
        self.assertEqual(content, self.versions.content_of('another'))
        self.assertIsNone(self.versions.content_of('unknown'))

    def test_a_version_of_another_project_with_the_same_content(self):
        # Regression: it was read from the store of the other project, which
        # may delete it at any time.
        other = self.others['other'] = version_store.VersionStore.open(
            file.FileStore(self.directory / 'store-of-other'))
        [saved] = other.save([version_store.Disk(
            self.disk, 's', self.image, format='raw', manifest=True)])
        first = self.prepare()
        left = self.left()
        self.assertRaises(
            exceptions.Conflict, self.versions.prepare,
            version_reads.ReadVersion(
                'v2', 'other', saved.id, saved.base.id, str(self.image),
                image_ids=('another',)))
        self.assertEqual(left, self.left())
        self.assertEqual((IMAGE,),
                         self.versions.find(first.content_id).image_ids)


class TestRead(LazyVersionsTest):

    def test_all_of_it(self):
        content = self.prepare().content_id
        reader = self.versions.open_reader(content)
        self.assertEqual(self.disk.read_bytes(),
                         reader.read(0, self.saved.size))
        self.assertIs(reader, self.versions.open_reader(content))

    def test_another_version_is_read_while_a_base_is_delivered(self):
        """Regression: all versions waited for one lock."""
        content = self.prepare().content_id
        other = self.directory / 'other'
        other.write_bytes(self.blocks_of(30))
        [saved] = self.opened.save([version_store.Disk(
            other, 'other', format='raw', manifest=True)])
        read = self.versions.prepare(version_reads.ReadVersion(
            'v2', PROJECT, saved.id, None, None)).content_id
        (self.directory / 'lazy' / f'{self.saved.id}.base').unlink()
        bring = self.bases.bring
        arriving, go_on = threading.Event(), threading.Event()

        def bring_slowly(disk, path):
            if disk.base_name is not None:
                arriving.set()
                go_on.wait(60)
            return bring(disk, path)

        self.bases.bring = bring_slowly
        first = threading.Thread(target=self.versions.open_reader,
                                 args=(content,))
        first.start()
        self.addCleanup(first.join, 60)
        self.addCleanup(go_on.set)
        self.assertTrue(arriving.wait(60))
        self.assertEqual(
            other.read_bytes(),
            self.versions.open_reader(read).read(0, saved.size))
        self.assertEqual(read, self.versions.content_of_version('v2', PROJECT))
        self.versions.renew(read)
        self.assertTrue(first.is_alive())

    def test_a_base_image_is_brought_once(self):
        content = self.prepare().content_id
        self.versions.open_reader(content)
        self.prepare()
        self.assertEqual(1, self.bases.brought)

    def test_a_base_image_that_cannot_be_opened_is_opened_later(self):
        arriving = self.directory / 'arriving'
        content = self.prepare(base_path=str(arriving)).content_id
        arriving.write_bytes(self.image.read_bytes())
        self.assertEqual([], self.opened_files('arriving'))
        for _ in range(2):
            self.versions.renew(content)
            self.assertEqual([str(arriving)], self.opened_files('arriving'))
        self.versions.forget(content)

    def test_a_restarted_agent_goes_on(self):
        content = self.prepare().content_id
        self.versions = self.new_versions()
        self.assertEqual((IMAGE,), self.versions.find(content).image_ids)
        self.assertEqual(
            self.disk.read_bytes(),
            self.versions.open_reader(content).read(0, self.saved.size))

    def test_through_a_base_image_that_is_arriving(self):
        arriving = self.write_file('arriving', self.image.read_bytes())
        self.image.write_bytes(b'')
        prepared = self.prepare(base_path=str(arriving))
        self.assertEqual(str(arriving), prepared.sources[0]['base'])
        for _ in range(2):
            # It is served as long as it is open.
            self.assertEqual([str(arriving)], self.opened_files('arriving'))
            reader = self.versions.open_reader(prepared.content_id)
            self.assertEqual(self.disk.read_bytes(),
                             reader.read(0, self.saved.size))
            reader.close()
            for base in self.versions._open_bases.values():
                os.close(base)
            self.versions = self.new_versions()
        self.versions.forget(prepared.content_id)
        self.assertEqual([], self.opened_files('arriving'))

    @staticmethod
    def opened_files(name):
        """Paths that this process has open, with a name."""
        found = []
        for link in os.listdir('/proc/self/fd'):
            with contextlib.suppress(FileNotFoundError):
                found.append(os.readlink(f'/proc/self/fd/{link}'))
        return [path for path in found if path.endswith(f'/{name}')]

    def test_what_is_not_served(self):
        self.assertRaises(exceptions.NotFound, self.versions.open_reader,
                          'c' * 64)

    def test_restored_whole(self):
        output = self.directory / 'raw'
        watch = contents.Watch()
        self.versions.restore(VERSION, PROJECT, output, watch)
        self.assertEqual(self.disk.read_bytes(), output.read_bytes())
        self.assertFalse(output.with_suffix('.base').exists())

    def test_a_version_that_was_restored_can_be_deleted(self):
        # Regression: it was kept for a quarter of an hour.
        for name in ('one', 'other'):
            self.versions.restore(VERSION, PROJECT, self.directory / name,
                                  contents.Watch())
        self.assertEqual([VERSION] * 2, self.conductor.closed)

    def test_but_not_while_it_is_served(self):
        self.prepare()
        self.versions.restore(VERSION, PROJECT, self.directory / 'raw',
                              contents.Watch())
        self.assertEqual([], self.conductor.closed)

    def test_and_not_while_it_is_restored_a_second_time(self):
        def bring(disk, path):
            if not self.conductor.closed and self.bases.brought == 0:
                self.bases.brought += 1
                self.versions.restore(VERSION, PROJECT,
                                      self.directory / 'inner',
                                      contents.Watch())
                closed.extend(self.conductor.closed)
            return bases(disk, path)

        closed, bases = [], self.bases.bring
        self.bases.bring = bring
        self.versions.restore(VERSION, PROJECT, self.directory / 'outer',
                              contents.Watch())
        self.assertEqual([], closed)
        self.assertEqual([VERSION], self.conductor.closed)

    def test_a_long_restore_keeps_the_version(self):
        """It could be deleted after a quarter of an hour of restoring."""
        def bring(disk, path):
            while len(self.conductor.opened) < 3:
                time.sleep(0.01)
            return bases(disk, path)

        bases, self.bases.bring = self.bases.bring, bring
        self.useFixture(fixtures.MockPatchObject(version_reads,
                                                 '_RENEW_SECONDS',
                                                 0.01))
        self.versions.restore(VERSION, PROJECT, self.directory / 'raw',
                              contents.Watch())
        self.assertGreaterEqual(len(self.conductor.opened), 3)
        self.assertEqual([VERSION], self.conductor.closed)

    def test_nothing_is_restored_for_a_client_that_is_gone(self):
        watch = contents.Watch()
        watch.gone.set()
        output = self.directory / 'raw'
        self.assertRaises(exceptions.Cancelled, self.versions.restore,
                          VERSION, PROJECT, output, watch)
        self.assertFalse(output.exists())


class TestEnd(LazyVersionsTest):

    def test_nothing_is_left_of_what_is_forgotten(self):
        content = self.prepare().content_id
        self.versions.open_reader(content)
        self.versions.forget(content)
        self.assertEqual(['served.json'], self.left())
        self.assertIsNone(self.versions.find(content))
        self.assertIsNone(self.new_versions().find(content))
        self.versions.forget(content)

    def test_what_diffcached_no_longer_serves_is_forgotten(self):
        content = self.prepare().content_id
        self.assertEqual([content], self.versions.content_ids())
        self.versions.forget(content)
        self.assertIsNone(self.versions.find(content))
        self.assertEqual([], self.versions.content_ids())

    def test_the_conductor_is_told_from_time_to_time(self):
        content = self.prepare().content_id
        for _ in range(3):
            self.versions.renew(content)
        self.assertEqual(1, len(self.conductor.opened))
        self.versions._renewed.clear()
        self.versions.renew(content)
        self.assertEqual(2, len(self.conductor.opened))

    def test_a_version_that_arrived_can_be_deleted(self):
        content = self.prepare().content_id
        for _ in range(3):
            self.versions.close(content)
        self.assertEqual([VERSION], self.conductor.closed)
        self.versions.forget(content)
        self.assertEqual([VERSION], self.conductor.closed)
        self.prepare()
        self.conductor.down = True
        self.versions.forget(content)
        self.assertIsNone(self.versions.find(content))

    def test_also_after_a_restart(self):
        # Regression: it could not be deleted for a quarter of an hour.
        content = self.prepare().content_id
        self.versions = self.new_versions()
        self.versions.renew(content)
        self.assertEqual(2, len(self.conductor.opened))
        self.versions.close(content)
        self.assertEqual([VERSION], self.conductor.closed)

    def test_without_a_conductor_it_is_read_all_the_same(self):
        content = self.prepare().content_id
        self.conductor.down = True
        self.versions._renewed.clear()
        self.versions.renew(content)
        self.assertEqual(5, len(self.versions.open_reader(content).read(0, 5)))

    def test_several_threads_get_one_reader(self):
        content = self.prepare().content_id
        found = []
        threads = [threading.Thread(target=lambda: found.append(
            self.versions.open_reader(content))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(1, len(set(map(id, found))))
