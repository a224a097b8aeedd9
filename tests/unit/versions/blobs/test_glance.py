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
"""Blobs through glance_store, with its filesystem driver."""

import functools
import io
import os
import pathlib
import time
from unittest import mock

import fixtures
from glance_store import exceptions as store_exceptions
from oslo_config import cfg

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import base as blobs
from diffcache_openstack.versions.blobs import glance
from diffcache_openstack.versions.blobs import registry
from diffcache_openstack.versions.store.catalogue import blob_names
from diffcache_openstack.versions.store.commits import heads
from diffcache_openstack.versions import version_store
from tests import base
from tests.unit.versions.blobs import conformance


class TestGlanceStore(conformance.Conformance, base.TestCase):

    def make_store(self):
        config = self.write_file('glance.conf', (
            '[glance_store]\nfilesystem_store_datadir = '
            f'{self.directory / "blobs"}\n').encode())
        return registry.open_store('glance:file', [str(config)])

    def test_it_is_glance_store(self):
        self.assertIsInstance(self.store, glance.GlanceStore)
        self.store.create('a', b'bytes')
        self.assertEqual(b'bytes',
                         (self.directory / 'blobs' / 'a').read_bytes())

    def test_directories_of_live_writers_are_known(self):
        for work in (None, 'work-1'):
            with self.store.staging(work) as staging:
                self.assertIn(staging, self.store.works())
                self.assertFalse(self.store.is_abandoned(staging))
                old = time.time() - blobs.GRACE_SECONDS - 1
                os.utime(staging, (old, old))
                self.assertFalse(self.store.is_abandoned(staging))
                self.assertTrue(self.make_store().is_abandoned(staging))

    def test_directories_of_others_may_end_meanwhile(self):
        self.patch(pathlib.Path, 'glob',
                   lambda path, _pattern: [path / 'has-just-ended'])
        with self.store.staging('work-2') as staging:
            self.assertTrue(staging.is_dir())

    def test_a_killed_writer_may_leave_a_part(self):
        self.assertFalse(self.store.atomic)


class Sequential:
    """A driver without ranges, that says of nothing that it has 0 bytes."""

    def __init__(self, driver):
        self._driver = driver

    def __getattr__(self, name):
        return getattr(self._driver, name)

    def is_capable(self, *_capabilities):
        return False

    def get(self, location, offset=0, chunk_size=None):
        if offset or chunk_size:
            raise AssertionError('this driver has no ranges')
        return self._driver.get(location)

    def get_size(self, location):
        try:
            return self._driver.get_size(location)
        except store_exceptions.NotFound:
            return 0

    def add(self, name, stream, size, algorithm):
        (self.directory / name).unlink(missing_ok=True)
        return self._driver.add(name, stream, size, algorithm)


class TestSequentialDriver(conformance.KeepsVersions, TestGlanceStore):
    """As glance_store's drivers of S3 and Swift are."""

    def make_store(self):
        store = super().make_store()
        driver = Sequential(store._driver)
        driver.directory = self.directory / 'blobs'
        return glance.GlanceStore(driver, 'file', store._prefix)


class TestParts(base.TestCase):

    def test_parts_of_one_store(self):
        config = self.write_file('glance.conf', (
            '[glance_store]\nfilesystem_store_datadir = '
            f'{self.directory / "blobs"}\n').encode())
        one, other = (registry.open_store('glance:file', [str(config)], part)
                      for part in ('a', 'b'))
        one.create('x', b'1')
        other.create('x', b'22')
        self.assertEqual((b'1', b'22'), (one.read('x'), other.read('x')))
        self.assertEqual(2, other.size('x'))
        one.delete('x')
        self.assertRaises(exceptions.NotFound, one.read, 'x')
        self.assertEqual(b'22', other.read('x'))
        self.assertRaises(exceptions.InvalidInput, one.read, '../b-x')


class Together(Sequential):
    """A driver through which another writer puts a blob at the same time."""

    other = None
    # It refuses to put what there is, such as what another has just put.
    refuses = False

    def add(self, name, stream, size, algorithm):
        if self.other is not None and self.refuses:
            other, self.other = self.other, None
            super().add(name, io.BytesIO(other), len(other), algorithm)
            raise store_exceptions.Duplicate(image=name)
        added = super().add(name, stream, size, algorithm)
        if self.other is not None:
            other, self.other = self.other, None
            super().add(name, io.BytesIO(other), len(other), algorithm)
        return added


class TestTwoWriters(base.TestCase):

    def setUp(self):
        super().setUp()
        config = self.write_file('glance.conf', (
            '[glance_store]\nfilesystem_store_datadir = '
            f'{self.directory / "blobs"}\n').encode())
        store = registry.open_store('glance:file', [str(config)])
        self.driver = Together(store._driver)
        self.driver.directory = self.directory / 'blobs'
        self.store = glance.GlanceStore(self.driver, 'file', store._prefix,
                                        settle_s=0)

    def test_who_both_found_no_blob_do_not_both_win(self):
        self.driver.other = b'theirs'
        self.assertRaises(exceptions.Conflict, self.store.create, 'a',
                          b'ours')
        self.assertEqual(b'theirs', self.store.read('a'))
        self.store.create('b', b'ours')
        self.assertEqual(b'ours', self.store.read('b'))

    def test_what_another_has_put_meanwhile_is_never_gone(self):
        """Both publish a catalogue that was decided, and one is killed."""
        self.driver.refuses, self.driver.other = True, b'same'
        delete = self.useFixture(fixtures.MockPatchObject(
            self.driver, 'delete', create=True)).mock
        self.store.replace('a', b'same')
        self.assertEqual(b'same', self.store.read('a'))
        delete.assert_not_called()

    def test_a_version_whose_head_another_replaced_was_not_saved(self):
        disk = self.write_file('disk', b'x' * 4096)
        ours = version_store.VersionStore.open(self.store)
        ours.save([version_store.Disk(disk, 'a', format='raw')])
        other = heads.load(self.store)
        other.number += 1
        add = self.driver.add

        def meanwhile(name, *rest):
            if name == blob_names.of_head(2):
                self.driver.other = other.encode()
            return add(name, *rest)

        with mock.patch.object(self.driver, 'add', meanwhile):
            self.assertRaises(exceptions.Busy, ours.save,
                              [version_store.Disk(disk, 'b', format='raw')])
        self.assertEqual(1, len(ours.versions()))


class TestLoadDriver(base.TestCase):

    def test_an_unknown_driver_is_refused(self):
        conf = cfg.ConfigOpts()
        conf([], project='diffcache', default_config_files=[])
        self.assertRaises(exceptions.InvalidInput, glance.load_driver, conf,
                          'none')

    def test_a_driver_without_its_library_is_refused(self):
        conf = cfg.ConfigOpts()
        conf([], project='diffcache', default_config_files=[])
        with mock.patch.dict('sys.modules', {'os_brick': None}):
            self.assertRaises(exceptions.InvalidInput, glance.load_driver,
                              conf, 'cinder')

    def test_other_drivers_are_not_loaded(self):
        # Of cinder's, whose libraries need not be installed, two errors were
        # printed each time a store was opened.
        conf = cfg.ConfigOpts()
        config = self.write_file('x.conf', (
            f'[glance_store]\nfilesystem_store_datadir = {self.directory}\n'
            ).encode())
        conf([], project='diffcache', default_config_files=[str(config)])
        with self.assertNoLogs(level='WARNING'):
            store = glance.load_driver(conf, 'file')
        self.assertEqual(str(self.directory), store.datadir)
        self.assertNotIn('cinder_catalog_info', conf.glance_store)


class TestSharedClient(base.TestCase):

    def test_a_driver_of_s3_makes_one_client(self):
        driver = mock.Mock(_create_s3_client=mock.Mock(side_effect=object))
        made = driver._create_s3_client
        glance._share_client(driver)
        self.assertIs(driver._create_s3_client(), driver._create_s3_client())
        made.assert_called_once_with()

    def test_other_drivers_are_left_alone(self):
        driver = mock.Mock(spec=['add'])
        glance._share_client(driver)
        self.assertFalse(hasattr(driver, '_create_s3_client'))


class TestRegistry(base.TestCase):

    def test_what_names_no_store_is_refused(self):
        for uri in ('', '/directory', 'file:', 'file://host/directory',
                    'ftp://host/', 'glance:'):
            with self.subTest(uri=uri):
                self.assertRaises(
                    exceptions.InvalidInput,
                    functools.partial(registry.open_store, uri))

    def test_a_directory_is_made(self):
        registry.open_store(f'file://{self.directory}/new').create('a', b'')
        self.assertTrue((self.directory / 'new' / 'a').exists())
