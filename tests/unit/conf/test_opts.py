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
import copy
import pathlib
import re

from oslo_config import cfg
from oslo_config import types

from diffcache_openstack.common import option_names
from diffcache_openstack.common import units
from diffcache_openstack.conf import groups
from diffcache_openstack.conf import opts
from diffcache_openstack.glance import options as glance_options
from diffcache_openstack.nova import options as nova_options
from tests import base


TREE = pathlib.Path(__file__).parents[3]
# Groups with options of keystoneauth's, registered when it logs in.
LOGINS = {'barbican', 'cinder', 'glance', 'nova', 'oslo_limit'}


def own_opts():
    """Groups with the options that are the suite's own."""
    theirs = {option.name for option in groups.Access(
        cfg.OptGroup('any'), 'any').options()}
    return [(group, [option for option in options
                     if group.name not in LOGINS
                     or option.name not in theirs])
            for group, options in opts.list_opts()]


class TestNewConfig(base.TestCase):

    def test_each_is_independent(self):
        first, second = opts.new_config(), opts.new_config()
        first.set_override('site', 'edge', 'agent')
        self.assertEqual('default', second.agent.site)

    def test_a_missing_file_is_named_with_the_option(self):
        path = self.directory / 'missing.conf'
        error = self.assertRaises(opts.UnreadableFileError, opts.new_config,
                                  ['--config-file', str(path)])
        self.assertEqual(f'There is no configuration file {path}; check'
                         ' --config-file.', str(error))

    def test_reads_file(self):
        path = self.write_file('x.conf', b'[agent]\ncache_capacity = 2GiB\n'
                                         b'[fill]\nwindows = 22:00-06:00\n')
        conf = opts.new_config(['--config-file', str(path)])
        self.assertEqual(2 * 2 ** 30, conf.agent.cache_capacity)
        self.assertEqual(['22:00-06:00'], conf.fill.windows)

    def test_unusable_value_is_named(self):
        path = self.write_file('x.conf', b'[agent]\ncache_capacity = lots\n')
        error = self.assertRaises(opts.BadValueError, opts.new_config,
                                  ['--config-file', str(path)])
        self.assertIn('cache_capacity', str(error))

    def test_an_option_of_ours_that_is_misspelt_is_an_error(self):
        for text, unknown in (
                ('[agent]\ncache_capacty = 1GB\n', 'cache_capacity'),
                ('[lazy]\nnothing_like_that = 1\n', 'remove it'),
                ('[agent]\nstate-dir = /tmp\n[planner]\nhops = 2\n', None),
                ('[DEFAULT]\ntransport_ulr = fake:/\n', 'transport_url'),
                ('[nova]\nauth_type = password\npasword = x\n', 'password'),
                ('[glance]\nlargest_imag = 1GB\n', 'largest_image'),
                ('[barbican]\nbarbican_endpoit = x\n', 'barbican_endpoint'),
                ('[oslo_limit]\nendpoint_ids = x\n', 'endpoint_id'),
                ('[profiler]\nhmac_key = x\n', 'hmac_keys'),
                # What libraries and plug-ins of Keystone add.
                ('[DEFAULT]\ndebug = true\nlog_file = /x\n'
                 'graceful_shutdown_timeout = 5\n[profiler]\n'
                 'trace_sqlalchemy = true\n[nova]\n'
                 'auth_type = v3applicationcredential\n'
                 'application_credential_id = x\nregion_name = here\n'
                 '[barbican]\nretry_delay = 1\nuser-domain-name = x\n'
                 '[oslo_limit]\nsystem_scope = all\n', None),
                # What others have.
                ('[keystone_authtoken]\nx = 1\n[y]\nz = 1\n', None),
                ('[nova]\nauth_type = no-such\nx = 1\n', None)):
            path = self.write_file('diffcache.conf', text.encode())
            if unknown is None:
                opts.new_config(['--config-file', str(path)])
                continue
            error = self.assertRaises(option_names.UnknownOptionError,
                                      opts.new_config,
                                      ['--config-file', str(path)])
            self.assertIn(unknown, str(error))
            self.assertIn(str(path), str(error))

    def test_a_value_that_does_not_fit_is_an_error_that_names_its_place(self):
        for text, reason in (
                ('[planner]\nhops = abc\n', "'hops': 'abc' is not a number"),
                ('[planner]\nhops = 999\n', "'hops': Should be"),
                ('[agent]\nrole = x\n', "'role': Valid values are"),
                ('[agent]\ncache_capacity = 5QB\n',
                 "'cache_capacity': \"5QB\" is not an amount")):
            path = self.write_file('diffcache.conf', text.encode())
            error = self.assertRaises(opts.BadValueError, opts.new_config,
                                      ['--config-file', str(path)])
            group = text.partition('\n')[0]
            self.assertIn(f'{path}: group {group}, option', str(error))
            self.assertIn(reason, str(error))

    def test_every_option_of_the_sample_is_known(self):
        for group, options in own_opts():
            path = self.write_file('all.conf', (f'[{group.name}]\n' + ''.join(
                f'{option.name} = \n' for option in options)).encode())
            opts._check_names(str(path), option_names.read(str(path)),
                              opts.new_config())

    def test_name_of_host_has_no_room_for_topics_of_others(self):
        conf = opts.new_config()
        self.assertRaises(ValueError, conf.set_override, 'host', 'a b*#',
                          'agent')

    def test_queues_are_in_an_exchange_of_their_own(self):
        self.assertEqual('diffcache', opts.new_config().control_exchange)

    def test_without_arguments_no_file_is_read(self):
        self.assertEqual([], opts.new_config().config_file)

    def test_missing_file_is_an_error(self):
        self.assertRaises(opts.UnreadableFileError, opts.new_config,
                          ['--config-file', str(self.directory / 'none')])


class TestListOpts(base.TestCase):

    def test_sample_has_what_is_registered(self):
        conf = opts.new_config()
        for group, options in own_opts():
            for option in options:
                with self.subTest(group=group.name, option=option.name):
                    # Defaults may refer to other options.
                    expected = conf._substitute(option.default,
                                                group=conf._get_group(
                                                    group.name))
                    self.assertEqual(
                        expected, conf[group.name][option.dest])

    def test_every_option_is_explained(self):
        for group, options in own_opts():
            self.assertTrue(group.title)
            for option in options:
                with self.subTest(group=group.name, option=option.name):
                    self.assertGreater(len(option.help.split()), 4)

    def test_every_group_has_a_module(self):
        names = {group.name for group, _ in opts.list_opts()}
        self.assertLessEqual(
            {'agent', 'conductor', 'data_plane', 'fill', 'planner',
             'repository'}, names)


class TestFirstSite(base.TestCase):

    def setUp(self):
        super().setUp()
        page = TREE / 'doc/source/admin/first-site.rst'
        self.named = re.findall(r'\* - ``\[(\w+)\] (\w+)``',
                                page.read_text())

    def test_a_first_site_needs_few_values_that_exist(self):
        conf = opts.new_config()
        nova_options.register_compute_opts(conf)
        self.assertLessEqual(len(self.named), 20)
        for group, name in self.named:
            with self.subTest(group=group, name=name):
                self.assertIn(name, {
                    'DEFAULT': conf, 'keystone_authtoken': ['auth_type'],
                }.get(group) or conf[group])

    def test_devstack_sets_what_is_named_or_has_a_default(self):
        plugin = (TREE / 'devstack/plugin.sh').read_text()
        known = {str(group.name): {option.name: option for option in options}
                 for group, options in own_opts()}
        checked = 0
        for group, name in re.findall(
                r'iniset "\$(?:file|DIFFCACHE_\w*CONF)" (\w+) (\w+)', plugin):
            # Access to services, and what sites may have besides.
            if group not in known or group in (
                    'lazy', 'ssd_cache', 'versions', 'nova', 'glance'):
                continue
            option = known[group][name]
            with self.subTest(group=group, name=name):
                self.assertTrue(
                    (group, name) in self.named or option.default is not None
                    or 'Default:' in option.help)
                checked += 1
        self.assertGreater(checked, 15)


class TestNumbers(base.TestCase):

    def test_values_that_are_no_finite_numbers_are_refused(self):
        checked = 0
        for group, options in (*own_opts(), *glance_options.list_opts(),
                               *nova_options.list_opts()):
            for option in options:
                if isinstance(option.type, types.Float):
                    self.check(group, option)
                    checked += 1
        self.assertGreater(checked, 15)

    def check(self, group, option):
        for value in ('nan', 'inf', '-inf', ''):
            with self.subTest(option=f'{group.name}.{option.name}',
                              value=value):
                path = self.write_file(
                    'x.conf',
                    f'[{group.name}]\n{option.name} = {value}\n'.encode())
                conf = cfg.ConfigOpts()
                conf.register_group(copy.deepcopy(group))
                conf.register_opt(option, group=group.name)
                conf([], default_config_files=[str(path)])
                error = self.assertRaises(cfg.ConfigFileValueError, getattr,
                                          conf[group.name], option.dest)
                self.assertIn(option.name, str(error))


class TestSize(base.TestCase):

    def test_is_usable_by_the_generator(self):
        size = units.Size()
        self.assertEqual('5000000000', size._formatter(size('5GB')))
        self.assertEqual(units.Size(1), units.Size(1))
        self.assertNotEqual(units.Size(1), units.Size(2))
        self.assertEqual('Size(minimum=1)', repr(units.Size(1)))

    def test_minimum(self):
        self.assertRaises(ValueError, units.Size(1000), '1B')
        self.assertEqual(1000, units.Size(1000)('1kB'))
