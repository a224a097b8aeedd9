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

from oslo_config import cfg

from diffcache_openstack.common import exceptions
from diffcache_openstack.store import glance
from diffcache_openstack.store import registry
from tests import base
from tests.unit.store import conformance


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

    def test_a_killed_writer_may_leave_a_part(self):
        self.assertFalse(self.store.atomic)


class TestLoadDriver(base.TestCase):

    def test_an_unknown_driver_is_refused(self):
        conf = cfg.ConfigOpts()
        conf([], project='diffcache', default_config_files=[])
        self.assertRaises(exceptions.InvalidInput, glance.load_driver, conf,
                          'none')


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
