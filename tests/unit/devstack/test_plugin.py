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
"""What the plugin configures, starts, stops and removes."""

import getpass
import os
import pathlib
import subprocess

import fixtures

from tests.unit.devstack import sourcing


class TestPlugin(sourcing.PluginTest):

    def test_nothing_happens_before_its_time(self):
        for words in (('stack', 'pre-install'), ('stack', 'extra')):
            self.assertEqual(['define_plugin'], [
                name for name, *_ in self.run_phase(*words)])

    def test_install(self):
        calls = self.run_phase('stack', 'install')
        # With what bindep.txt lists: a compiler, and librsync2.
        self.assertEqual([[f'{self.directory}/diffcache/plugins'],
                          ['-bindep=compile', f'{self.directory}/diffcache']],
                         self.called(calls, 'setup_develop'))
        self.assertEqual([], self.called(calls, 'iniset'))
        self.assertEqual([], self.called(calls, 'run_process'))

    def test_everything_is_configured_and_then_started(self):
        calls = self.run_phase('stack', 'post-config')
        options = self.options(calls)
        started = [words[0] for words in self.called(calls, 'run_process')]
        self.assertEqual(['diffcache-conductor', 'diffcache-api',
                          'diffcache-repository', 'diffcache-agent'], started)
        names = [name for name, *_ in calls]
        self.assertLess(len(names) - names[::-1].index('iniset'),
                        names.index('run_process') + 1)
        self.assertEqual([['diffcache']],
                         self.called(calls, 'recreate_database'))
        synced = self.called(calls, 'manage')
        self.assertIn('db sync', synced[-1][0])
        self.assertEqual('mysql://diffcache', options['diffcache.conf'][
            'database', 'connection'])
        self.assertEqual('repository', options['repository.conf'][
            'agent', 'role'])
        self.assertEqual('node', options['agent.conf']['agent', 'host'])

    def test_glance_and_nova_reach_the_agent(self):
        options = self.options(self.run_phase('stack', 'post-config'))
        for name, option in (('nova.conf', 'socket'),
                             ('glance-api.conf', 'glance_socket'),
                             ('glance-cache.conf', 'glance_socket')):
            found = options[name]
            self.assertEqual(options['agent.conf']['agent', option],
                             found['diffcache', 'socket'])
            group = found['DEFAULT', 'config_source']
            self.assertEqual('diffcache', found[group, 'driver'])
        self.assertEqual('diffcache', options['glance-api.conf'][
            'DEFAULT', 'image_cache_driver'])
        nova = options['nova.conf']
        self.assertEqual('diffcache.LibvirtDriver',
                         nova['DEFAULT', 'compute_driver'])
        for weigher in ('BuildCostWeigher', 'SsdRoomWeigher'):
            self.assertIn(f'diffcache_openstack.nova.weights.{weigher}',
                          nova['filter_scheduler', 'weight_classes'])

    def test_every_option_is_read(self):
        """Services ignore names that they do not know."""
        files = {**self.options(self.run_phase('stack', 'post-config')),
                 **self.options(self.run_phase('stack', 'test-config'))}
        for name, reader in sourcing.READERS.items():
            known = sourcing.known_options(reader)
            written = {(group, option) for group, option in files[name]
                       if group in known}
            self.assertNotEqual(set(), written, name)
            unknown = {(group, option) for group, option in written
                       if option not in known[group]}
            self.assertEqual(set(), unknown, name)

    def test_two_agents_of_one_node_share_nothing(self):
        options = self.options(self.run_phase('stack', 'post-config'))
        for name in (('agent', 'host'), ('agent', 'state_dir'),
                     ('data_plane', 'listen')):
            self.assertNotEqual(options['agent.conf'][name],
                                options['repository.conf'][name])

    def test_versions_are_saved_where_the_settings_say(self):
        calls = self.run_phase('stack', 'post-config')
        options = self.options(calls)
        for name in ('agent.conf', 'repository.conf'):
            self.assertEqual(
                f'file://{self.directory}/data/diffcache/versions',
                options[name]['versions', 'store'])
        self.assertEqual(
            options['agent.conf']['agent', 'output_directories'],
            options['agent.conf']['versions', 'directories'])

    def test_one_user_owns_the_store_of_versions(self):
        calls = self.run_phase('stack', 'post-config')
        agents = [words for words in self.called(calls, 'run_process')
                  if words[0] in ('diffcache-repository', 'diffcache-agent')]
        # Neither a group nor a user: both run as STACK_USER.
        self.assertEqual([2, 2], [len(words) for words in agents])

    def test_the_agent_may_open_disks_without_being_root(self):
        calls = self.run_phase('stack', 'post-config')
        granted = self.options(calls)['disks.conf']
        for option in ('AmbientCapabilities', 'CapabilityBoundingSet'):
            self.assertEqual(
                {'CAP_CHOWN', 'CAP_DAC_OVERRIDE', 'CAP_DAC_READ_SEARCH'},
                set(granted['Service', option].split()))
        self.assertEqual('yes', granted['Service', 'NoNewPrivileges'])
        words = [words for name, *words in calls
                 if name == 'iniset' and words[-4].endswith('disks.conf')][-1]
        folder = (f'{self.directory}/systemd/'
                  f'devstack@diffcache-agent.service.d')
        self.assertEqual(['-sudo', f'{folder}/disks.conf'], words[:2])
        # Before the unit is written, which is when systemd reads both.
        names = [words[:2] for words in calls]
        self.assertLess(calls.index(['iniset', *words]),
                        names.index(['run_process', 'diffcache-agent']))
        self.assertIn(['rm', '-rf'], [
            words[:2] for words in self.called(self.run_phase('clean'), 'sudo')
            if folder in words])

    def test_nova_and_glance_use_sockets_as_the_user_of_the_agent(self):
        options = self.options(self.run_phase('stack', 'post-config'))
        found = options['agent.conf']
        self.assertEqual(getpass.getuser(), found['agent', 'nova_user'])
        for name in ('socket_group', 'glance_socket_group'):
            self.assertNotIn(('agent', name), found)
        for option, service in (('socket', 'nova.conf'),
                                ('glance_socket', 'glance-api.conf')):
            self.assertEqual(found['agent', option],
                             options[service]['diffcache', 'socket'])
            self.assertNotIn(
                pathlib.Path(found['agent', 'state_dir']),
                pathlib.Path(found['agent', option]).parents)

    def test_backups_of_volumes_go_to_the_version_store(self):
        calls = self.run_phase('stack', 'post-config')
        options = self.options(calls)
        found = options['cinder.conf']
        self.assertEqual(options['agent.conf']['agent', 'cinder_socket'],
                         found['diffcache', 'socket'])
        self.assertTrue(found['DEFAULT', 'backup_driver'].endswith(
            'cinder.backup.VersionStoreDriver'))
        [command] = [words[0] for words in self.called(calls, 'manage')
                     if '--role cinder' in words[0]]
        self.assertTrue(command.endswith(found['diffcache', 'key_file']))

    def test_backends_of_cinder_are_wrapped_once(self):
        ours = 'diffcache_openstack.cinder.driver.load'
        calls = self.run_phase('stack', 'post-config', before=(
            '[cinder.conf/a/volume_driver]=cinder.Lvm'
            f' [cinder.conf/b/volume_driver]={ours}'))
        found = self.options(calls)['cinder.conf']
        self.assertEqual(('cinder.Lvm', ours), (
            found['a', 'diffcache_backend_driver'],
            found['a', 'volume_driver']))
        self.assertNotIn(('b', 'diffcache_backend_driver'), found)
        self.assertEqual('diffcache', found['diffcache_hook', 'driver'])

    def test_a_group_that_is_there_is_used(self):
        created = ['groupadd', 'diffcache-nbd']
        for groups, ssd_cache, found in (
                ('', 'False', False), ('', 'True', True),
                ('diffcache-nbd', 'True', False)):
            calls = self.run_phase('stack', 'install', groups=groups,
                                   ssd_cache=ssd_cache)
            self.assertEqual(found, created in self.called(calls, 'sudo'))
            self.assertEqual([], self.called(calls, 'add_user_to_group'))

    def test_the_api_listens_where_the_catalogue_says(self):
        for listen, expected in (('0.0.0.0', '0.0.0.0'), ('[::]', '::')):
            options = self.options(self.run_phase(
                'stack', 'post-config', listen=listen))
            self.assertEqual(expected, options['diffcache.conf'][
                'api', 'bind_host'])

    def test_notifications_go_to_the_topic_that_is_read(self):
        options = self.options(self.run_phase('stack', 'post-config'))
        for name in ('nova.conf', 'glance-api.conf', 'cinder.conf'):
            self.assertEqual('diffcache', options[name][
                'oslo_messaging_notifications', 'topics'])
        # Versioned ones have a topic of their own, which nothing reads.
        self.assertNotIn(('notifications', 'notification_format'),
                         options['nova.conf'])

    def test_topics_of_others_are_kept(self):
        for before, after in (('metering', 'metering,diffcache'),
                              ('diffcache,metering', 'diffcache,metering')):
            options = self.options(self.run_phase(
                'stack', 'post-config', before=(
                    '[nova.conf/oslo_messaging_notifications/topics]='
                    f'{before}')))
            self.assertEqual(after, options['nova.conf'][
                'oslo_messaging_notifications', 'topics'])

    def test_nova_conf_is_not_written_by_two_at_once(self):
        calls = self.run_phase('stack', 'post-config')
        first = next(number for number, words in enumerate(calls)
                     if words[:2] == ['iniset', 'nova.conf'])
        self.assertLess(
            calls.index(['async_wait', 'configure_neutron_nova']), first)

    def test_a_node_that_only_computes(self):
        calls = self.run_phase('stack', 'post-config',
                               services='n-cpu,nova,diffcache-agent')
        self.assertEqual([], self.called(calls, 'recreate_database'))
        self.assertEqual([], self.called(calls, 'create_service_user'))
        options = self.options(calls)
        self.assertNotIn('diffcache.conf', options)
        self.assertNotIn('repository.conf', options)
        self.assertNotIn('glance-api.conf', options)
        self.assertEqual('diffcache.LibvirtDriver',
                         options['nova.conf']['DEFAULT', 'compute_driver'])

    def test_a_node_without_the_key_refuses_early(self):
        services = 'n-cpu,nova,diffcache-agent'
        done = self.source('stack', 'pre-install', services=services)
        self.assertEqual(1, done.returncode)
        self.assertIn(f'{self.directory}/etc/site.key', done.stderr)
        self.assertIn('Copy it from the node that runs diffcache-conductor',
                      done.stderr)
        for name in ('site.key', 'authority.key', 'authority.pem'):
            done = self.source('stack', 'pre-install', services=services)
            self.assertIn(f'{self.directory}/etc/{name}', done.stderr)
            self.write_file(f'etc/{name}', b'')
        done = self.source('stack', 'pre-install', services=services)
        self.assertEqual(1, done.returncode)
        self.assertIn(f'ca.pem and ca.key in {self.directory}/etc/tls',
                      done.stderr)
        self.write_authority()
        self.run_phase('stack', 'pre-install', services=services)

    def write_authority(self):
        for name in ('ca.pem', 'ca.key'):
            self.write_file(f'etc/tls/{name}', b'')

    def test_agents_have_certificates_for_their_address(self):
        tls = self.directory / 'etc' / 'tls'
        options = self.options(self.run_phase('stack', 'post-config'))
        for file in ('agent.conf', 'repository.conf'):
            for option, name in (('ca', 'ca.pem'), ('cert', 'node.pem'),
                                 ('key', 'node.key')):
                self.assertEqual(str(tls / name), options[file][
                    'data_plane', f'tls_{option}_file'])
        issued = (tls / 'node.pem').read_text()
        self.assertIn('10.0.0.2', issued)
        self.assertIn('DNS:node', issued)
        for path in tls.iterdir():
            self.assertEqual(0o600, path.stat().st_mode & 0o777)
        authority = (tls / 'ca.pem').read_text()
        self.run_phase('stack', 'post-config')
        self.assertEqual(authority, (tls / 'ca.pem').read_text())

    def test_a_node_without_the_conductor_makes_its_own_key_only(self):
        self.write_authority()
        calls = self.run_phase('stack', 'post-config',
                               services='n-cpu,nova,diffcache-agent')
        [[made]] = self.called(calls, 'manage')
        self.assertTrue(made.startswith('host-key create'))
        self.assertTrue(made.endswith(
            '--role compute --site default node'
            f' {self.directory}/etc/compute-node.key'), made)

    def test_each_service_signs_with_a_key_of_its_role(self):
        etc = self.directory / 'etc'
        calls = self.run_phase('stack', 'post-config')
        options = self.options(calls)
        for file, key in (('diffcache.conf', 'controller-node.key'),
                          ('agent.conf', 'compute-node.key'),
                          ('repository.conf',
                           'repository-repository-node.key')):
            self.assertEqual(f'{etc}/{key}',
                             options[file]['messaging', 'key_file'])
            self.assertEqual(f'{etc}/authority.pem',
                             options[file]['messaging', 'authority_file'])
            self.assertEqual(1, sum(
                made.endswith(key) for [made] in self.called(calls,
                                                             'manage')))
        made = [words for [words] in self.called(calls, 'manage')]
        self.assertIn(f'authority create --authority-key {etc}/authority.key'
                      f' --authority {etc}/authority.pem', made)

    def test_the_key_is_made_once(self):
        key = self.directory / 'etc' / 'site.key'
        key.parent.mkdir()
        self.assertIn([f'key create {key}'], self.called(
            self.run_phase('stack', 'post-config'), 'manage'))
        key.touch()
        self.assertNotIn([f'key create {key}'], self.called(
            self.run_phase('stack', 'post-config'), 'manage'))

    def test_tempest_learns_where_the_agent_is(self):
        calls = self.run_phase('stack', 'test-config')
        found = self.options(calls)['tempest.conf']
        self.assertEqual('True', found['service_available', 'diffcache'])
        self.assertTrue(found['diffcache', 'agent_sockets'].startswith(
            'node:/'))

    def test_tempest_asks_a_glance_that_caches(self):
        option = 'diffcache', 'site_image_url'
        found = self.options(self.run_phase('stack', 'test-config'))
        self.assertEqual('http://10.0.0.1/image',
                         found['tempest.conf'][option])
        for services in ('g-api,tempest,diffcache-conductor',
                         'n-cpu,tempest,diffcache-agent'):
            found = self.options(self.run_phase(
                'stack', 'test-config', services=services))
            self.assertNotIn(option, found['tempest.conf'])

    def test_all_of_it_is_stopped(self):
        stopped = self.called(self.run_phase('unstack'), 'stop_process')
        self.assertEqual(6, len(stopped))

    def test_clean_leaves_nothing_but_the_sources(self):
        for name in ('build/lib/x.py', 'native/target/release/x.so',
                     'diffcache_openstack.egg-info/PKG-INFO',
                     'plugins/diffcache_openstack_plugins.egg-info/PKG-INFO',
                     'diffcache_openstack/_native.abi3.so', 'setup.cfg',
                     'diffcache_openstack/x.py', 'native/Cargo.toml'):
            self.write_file(f'diffcache/{name}', b'')
        calls = self.run_phase('clean', groups='diffcache-nbd')
        self.assertIn(['groupdel', 'diffcache-nbd'],
                      self.called(calls, 'sudo'))
        for words in self.called(calls, 'sudo'):
            if words[0] == 'rm':
                subprocess.run(words, check=True)
        left = {str(path.relative_to(self.directory / 'diffcache'))
                for path in (self.directory / 'diffcache').rglob('*')
                if path.is_file()}
        self.assertEqual({'setup.cfg', 'diffcache_openstack/x.py',
                          'native/Cargo.toml'}, left)
        for name in ('etc', 'data/diffcache'):
            self.assertFalse((self.directory / name).exists())

    def test_clean_removes_images_outside_the_data_directory(self):
        for name in ('AGENT', 'REPOSITORY'):
            self.useFixture(fixtures.EnvironmentVariable(
                f'DIFFCACHE_{name}_STATE', f'{self.directory}/disk/{name}'))
            self.write_file(f'disk/{name}/objects/x', b'')
        for words in self.called(self.run_phase('clean'), 'sudo'):
            if words[0] == 'rm':
                subprocess.run(words, check=True)
        self.assertEqual([], list((self.directory / 'disk').iterdir()))

    def test_horizon_finds_the_panels_until_clean(self):
        source = 'diffcache/diffcache_openstack/dashboard/enabled'
        for name in '_2510_admin_image_cache_x.py', '__init__.py':
            self.write_file(f'{source}/{name}', b'')
        enabled = 'horizon/openstack_dashboard/local/enabled'
        others = self.write_file(f'{enabled}/_10_other.py', b'')
        services = 'horizon,diffcache-api'
        self.run_phase('stack', 'post-config', services=services)
        self.assertEqual({'_2510_admin_image_cache_x.py', '_10_other.py'},
                         set(os.listdir(others.parent)))
        self.run_phase('clean', groups='diffcache-nbd', services=services)
        self.assertEqual(['_10_other.py'], os.listdir(others.parent))

    def test_horizon_without_the_panels(self):
        # There is no directory of panels that could be copied to.
        self.useFixture(fixtures.EnvironmentVariable(
            'DIFFCACHE_HORIZON_PANELS', ''))
        for words in ('stack', 'post-config'), ('clean',):
            self.run_phase(*words, services='horizon,diffcache-api',
                           groups='diffcache-nbd')

    def test_an_old_compiler_is_passed_over(self):
        for name in ('CARGO', 'RUSTC'):
            self.useFixture(fixtures.EnvironmentVariable(name))
        shown = 'echo "${CARGO:-} ${RUSTC:-}"'
        for distro, expected in (
                ('noble', '/usr/bin/cargo-1.85 /usr/bin/rustc-1.85'),
                ('bookworm', '')):
            done = self.source('stack', 'install', distro=distro, after=shown)
            self.assertEqual(0, done.returncode, done.stderr)
            self.assertEqual(expected.split(),
                             done.stdout.split())

    def test_without_its_services_it_does_nothing(self):
        script = ('is_service_enabled() { return 1; }; ENABLED_SERVICES=key;'
                  f' . {sourcing.PLUGIN}/plugin.sh stack post-config')
        done = subprocess.run(['bash', '-euc', script], text=True,
                              capture_output=True)
        self.assertEqual((0, '', ''),
                         (done.returncode, done.stdout, done.stderr))
