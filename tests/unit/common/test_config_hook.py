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
import pathlib
import sys
import types

from oslo_config import cfg
from oslo_config import types as config_types

from diffcache_openstack.common import config_hook
from tests import base


class HookTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.modules = {}
        self.addCleanup(self._forget)

    def _forget(self):
        for name in self.modules:
            sys.modules.pop(name, None)

    def add(self, name, **contents):
        """Put an imitation of a service's package into place."""
        if name.split('.')[0] in sys.modules and name not in self.modules \
                and name.split('.')[0] not in self.modules:
            self.skipTest(f'{name} is really there')
        module = types.ModuleType(name)
        module.__path__ = []
        for attribute, value in contents.items():
            setattr(module, attribute, value)
        sys.modules[name] = self.modules[name] = module
        return module

    def conf(self, project):
        path = self.write_file('service.conf', b'[DEFAULT]\n'
                               b'config_source = ours\n'
                               b'[ours]\ndriver = diffcache\n')
        conf = cfg.ConfigOpts()
        conf(['--config-file', str(path)], project=project,
             default_config_files=[])
        return conf

    def test_nova_finds_our_folder(self):
        self.add('nova')
        virt = self.add('nova.virt')
        for _ in range(2):
            self.conf('nova')
        self.assertEqual(1, len(virt.__path__))
        self.assertTrue(
            (pathlib.Path(virt.__path__[0]) / 'diffcache').is_dir())

    def glance(self):
        option = cfg.StrOpt('image_cache_driver', default='sqlite',
                            choices=('sqlite', 'xattr'), ignore_case=True)
        self.add('glance')
        self.add('glance.image_cache', image_cache_opts=[option])
        return option, self.add('glance.image_cache.drivers')

    def test_glance_finds_our_folder_and_takes_the_name(self):
        option, drivers = self.glance()
        self.assertRaises(ValueError, option.type, 'diffcache')
        for _ in range(2):
            conf = self.conf('glance')
        self.assertEqual(1, len(drivers.__path__))
        self.assertTrue(
            (pathlib.Path(drivers.__path__[0]) / 'diffcache.py').is_file())
        conf.register_opt(option)
        for name in ('diffcache', 'DiffCache', 'sqlite'):
            conf.set_override('image_cache_driver', name)
            self.assertEqual(name.lower(), conf.image_cache_driver.lower())
        self.assertRaises(ValueError, option.type, 'nonsense')

    def test_services_that_are_none_of_ours(self):
        before = set(sys.modules)
        for project in ('keystone', None):
            self.conf(project)
        self.assertEqual(set(), {
            name for name in set(sys.modules) - before
            if name.split('.')[0] in ('nova', 'glance')})

    def test_a_version_that_cannot_be_extended(self):
        self.add('glance')
        self.add('glance.image_cache', image_cache_opts=[])
        self.add('glance.image_cache.drivers')
        error = self.assertRaises(config_hook.HookError,
                                  config_hook.extend_glance)
        self.assertIn('image_cache_driver', str(error))

    def test_a_service_that_is_not_there(self):
        self.add('glance')
        error = self.assertRaises(config_hook.HookError,
                                  config_hook.extend_glance)
        self.assertIn('glance.image_cache', str(error))

    def test_it_gives_no_values(self):
        source = config_hook.Nothing()
        value, _ = source.get('DEFAULT', 'debug', cfg.BoolOpt('debug'))
        conf = cfg.ConfigOpts()
        conf([], default_config_files=[])
        conf.register_opt(cfg.BoolOpt('debug', default=True))
        conf._sources.append(source)
        self.assertTrue(conf.debug)
        self.assertNotIn(value, (True, False))

    def test_other_kinds_of_choices(self):
        for choices in (['a'], [('a', 'one')]):
            kind = config_types.String(choices=choices)
            config_hook._widen(kind)
            self.assertEqual('diffcache', kind('diffcache'))
            self.assertRaises(ValueError, kind, 'b')
