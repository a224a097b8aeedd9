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
"""Tempest finds the scenarios and their options."""

import importlib
import importlib.util
import pathlib
from unittest import mock

from oslo_config import cfg

from diffcache_openstack.tempest_plugin import options
from tests import base


class TestOptions(base.TestCase):

    def test_defaults_describe_no_cloud(self):
        conf = cfg.ConfigOpts()
        options.register_opts(conf)
        conf([], default_config_files=[])
        self.assertTrue(conf.service_available.diffcache)
        self.assertEqual({}, conf.diffcache.agent_sockets)
        self.assertEqual('', conf.diffcache.stop_conductor_command)

    def test_sockets_by_host(self):
        conf = cfg.ConfigOpts()
        options.register_opts(conf)
        path = self.write_file(
            'tempest.conf', b'[diffcache]\nagent_sockets = a:/x.sock,b:/y\n')
        conf(['--config-file', str(path)])
        self.assertEqual({'a': '/x.sock', 'b': '/y'},
                         conf.diffcache.agent_sockets)

    def test_help_says_what_a_guest_has_to_print(self):
        [found] = [opt for opt in options.OPTS if opt.name == 'image_files']
        self.assertIn('``boot=N``', found.help)


class TestPlugin(base.TestCase):

    def setUp(self):
        super().setUp()
        if importlib.util.find_spec('tempest') is None:
            self.skipTest('tempest is not installed: tools/test openstack'
                          ' runs this in an environment that has it')
        module = importlib.import_module(
            'diffcache_openstack.tempest_plugin.plugin')
        self.plugin = module.DiffCachePlugin()

    def test_no_test_needs_a_network(self):
        """Without an L3 plugin, a router for each user cannot be created."""
        test = importlib.import_module('tempest.test')
        asked = []
        # Tempest defines this mark when it sets a class up, and looks at it.
        test.BaseTestCase._reset_class()
        self.patch(test.BaseTestCase, 'setup_credentials', classmethod(
            lambda cls: asked.append(cls._network_resources)))
        for name, kind in (('tests.api.base', 'ApiTest'),
                           ('scenario.base', 'ScenarioTest')):
            module = importlib.import_module(
                f'diffcache_openstack.tempest_plugin.{name}')
            getattr(module, kind).setup_credentials()
        self.assertEqual(2 * [dict.fromkeys(
            ('network', 'subnet', 'router', 'dhcp'), False)], asked)

    def test_listings_that_change_meanwhile(self):
        module = importlib.import_module(
            'diffcache_openstack.tempest_plugin.tests.api.base')
        names, lists = ['a', 'b', 'c'], []

        def fetch(path, limit=None, marker=''):
            if limit is None:
                lists.append(path)
            elif len(lists) == 1:
                names[:] = ['b', 'c']
            after = [name for name in names if name > marker]
            found = after[:limit]
            return {'hosts': [{'name': name} for name in found],
                    **({'hosts_links': []} if found != after else {})}

        conf = mock.Mock()
        conf.diffcache.timeout = 60
        self.patch(module, 'CONF', conf)
        test = module.ApiTest('assert_paged')
        test.admin = mock.Mock(fetch=fetch)
        test.assert_paged('hosts', 'hosts')
        # Changed, as now, and as before.
        self.assertEqual(3, len(lists))

    def test_folder_has_scenarios(self):
        tests, top = map(pathlib.Path, self.plugin.load_tests())
        self.assertIn(top, tests.parents)
        self.assertTrue(list(tests.rglob('test_*.py')))

    def test_each_option_has_help(self):
        for group, opts in self.plugin.get_opt_lists():
            for opt in opts:
                with self.subTest(group=group, name=opt.name):
                    self.assertTrue(opt.help)
