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
"""What the plugin does where images arrive late, and volumes are cached."""

import configparser
import pathlib

import fixtures

from tests.unit.devstack import sourcing


class TestCaches(sourcing.PluginTest):

    def test_images_are_served_while_they_arrive_where_that_is_enabled(self):
        calls = self.run_phase('stack', 'post-config', lazy='True')
        started = [words for words in self.called(calls, 'run_process')
                   if words[0] in ('diffcache-lazy', 'diffcache-agent')]
        # Before the agent, with its options and as its user.
        self.assertEqual(['diffcache-lazy', 'diffcache-agent'],
                         [words[0] for words in started])
        lazy, agent = (command.split() for _, command in started)
        self.assertEqual(f'{self.directory}/bin/diffcache-lazy', lazy[0])
        self.assertEqual(agent[1:], lazy[1:])
        options = self.options(calls)
        state = f'{self.directory}/data/diffcache/lazy'
        self.assertEqual(
            (f'{state}/diffcached.sock', state, f'{state}/mount',
             'diffcache-images'),
            tuple(options['agent.conf']['lazy', name] for name in (
                'socket', 'state_dir', 'mount', 'image_group')))
        self.assertEqual(
            {'diffcache-images'},
            {group for _, group in self.called(calls, 'add_user_to_group')})
        # The agent takes whole images over by another name of the file.
        self.assertEqual(
            pathlib.Path(state).parent,
            pathlib.Path(options['agent.conf'][
                'agent', 'state_dir']).parent)
        granted = options['lazy.conf']
        for option in ('AmbientCapabilities', 'CapabilityBoundingSet'):
            self.assertEqual({'CAP_SYS_ADMIN', 'CAP_SYS_RESOURCE'},
                             set(granted['Service', option].split()))
        self.assertEqual('process', granted['Service', 'KillMode'])

    def test_the_units_of_the_source_tree_grant_the_same(self):
        """DevStack has no mounter: one unit has the rights of both."""
        lazy, mount = (configparser.ConfigParser(
            strict=False, interpolation=None) for _ in range(2))
        for unit, name in (lazy, 'lazy'), (mount, 'lazy-mount'):
            unit.optionxform = str
            unit.read(sourcing.PLUGIN.parent
                      / f'etc/systemd/diffcache-{name}.service')
        granted = self.options(self.run_phase(
            'stack', 'post-config', lazy='True'))['lazy.conf']
        for (group, option), value in granted.items():
            wanted = lazy[group][option]
            if 'Capabilit' in option:
                wanted = f'{mount[group][option]} {wanted}'
            self.assertEqual(wanted, value, option)

    def test_processes_of_images_end_with_the_services(self):
        kill = ['systemctl', 'kill', 'devstack@diffcache-lazy.service']
        calls = self.run_phase('unstack', lazy='True')
        self.assertLess(
            calls.index(['sudo', *kill]),
            calls.index(['stop_process', 'diffcache-lazy']))
        removed = [word for words in self.called(
            self.run_phase('clean', lazy='True'), 'sudo') for word in words]
        self.assertIn(f'{self.directory}/data/diffcache/lazy', removed)
        self.assertIn(f'{self.directory}/systemd/'
                      f'devstack@diffcache-lazy.service.d', removed)

    def test_images_are_delivered_whole_by_default(self):
        for lazy in ('', 'False'):
            calls = self.run_phase('stack', 'post-config', lazy=lazy)
            self.assertNotIn('diffcache-lazy', [
                words[0] for words in self.called(calls, 'run_process')])
            options = self.options(calls)
            self.assertNotIn('lazy.conf', options)
            self.assertNotIn(('lazy', 'socket'), options['agent.conf'])
            self.assertNotIn(['systemctl', 'kill',
                              'devstack@diffcache-lazy.service'],
                             self.called(self.run_phase('unstack', lazy=lazy),
                                         'sudo'))

    def test_volumes_are_cached_where_that_is_enabled(self):
        calls = self.run_phase('stack', 'post-config', ssd_cache='True')
        started = [words for words in self.called(calls, 'run_process')
                   if words[0] in ('diffcache-ssdcache', 'diffcache-agent')]
        # Before the agent, with its options and as its user.
        self.assertEqual(['diffcache-ssdcache', 'diffcache-agent'],
                         [words[0] for words in started])
        cache, agent = (words[1].split() for words in started)
        self.assertEqual(f'{self.directory}/bin/diffcache-ssdcache', cache[0])
        self.assertEqual([*agent[1:], '--format'], cache[1:])
        found = self.options(calls)['agent.conf']
        state = f'{self.directory}/data/diffcache/ssd-cache'
        self.assertEqual(
            (f'{state}/device', '1GiB', f'{state}/nbd.sock',
             f'{state}/control.sock', state,
             f'/dev,{self.directory}/data/nova/mnt'),
            tuple(found['ssd_cache', name]
                  for name in ('device', 'capacity', 'socket', 'control',
                               'state_dir', 'origins')))

    def test_a_restart_keeps_what_is_cached(self):
        calls = self.run_phase('stack', 'post-config', ssd_cache='True')
        unit = self.options(calls)['devstack@diffcache-ssdcache.service']
        self.assertTrue(unit['Service', 'ExecStart'].endswith('/agent.conf'))
        # Once the process has made the empty device.
        names = [name for name, *_ in calls]
        waited = names.index('test_with_retry')
        self.assertIn('control.sock', calls[waited][1])
        control = f'{self.directory}/data/diffcache/ssd-cache/control.sock'
        self.assertEqual(['sudo', 'rm', '-f', control], calls[waited - 2])
        self.assertEqual('run_process', names[waited - 1])
        self.assertLess(waited, calls.index([
            'iniset', '-sudo',
            f'{self.directory}/systemd/devstack@diffcache-ssdcache.service',
            'Service', 'ExecStart', unit['Service', 'ExecStart']]))
        self.assertLess(waited,
                        calls.index(['sudo', 'systemctl', 'daemon-reload']))

    def test_services_of_a_stack_that_failed_are_started_anew(self):
        """Those ran on: the cache without the socket that is waited for."""
        calls = self.run_phase('stack', 'post-config', lazy='True',
                               ssd_cache='True')
        stopped = [name for [name] in self.called(calls, 'stop_process')]
        started = [words[0] for words in self.called(calls, 'run_process')]
        self.assertEqual(set(started), set(stopped))
        names = [name for name, *_ in calls]
        self.assertLess(len(names) - names[::-1].index('stop_process') - 1,
                        names.index('run_process'))
        control = f'{self.directory}/data/diffcache/ssd-cache/control.sock'
        self.assertLess(calls.index(['stop_process', 'diffcache-ssdcache']),
                        calls.index(['sudo', 'rm', '-f', control]))
        # Servers read through the processes of images: they stay.
        self.assertNotIn(['systemctl', 'kill',
                          'devstack@diffcache-lazy.service'],
                         self.called(calls, 'sudo'))

    def test_qemu_may_connect_to_the_cache(self):
        calls = self.run_phase('stack', 'post-config', ssd_cache='True')
        group = next(words[2] for words in self.called(calls, 'run_process')
                     if words[0] == 'diffcache-ssdcache')
        self.assertEqual([['libvirt-qemu', group]],
                         self.called(calls, 'add_user_to_group'))
        self.assertEqual(group, self.options(calls)['agent.conf'][
            'ssd_cache', 'socket_group'])
        # The same as where the unit of the source tree is installed.
        unit = configparser.ConfigParser(strict=False, interpolation=None)
        unit.optionxform = str
        unit.read(sourcing.PLUGIN.parent / 'etc' / 'systemd'
                  / 'diffcache-ssdcache.service')
        for (section, option), value in self.options(calls)[
                'ssd-cache.conf'].items():
            self.assertEqual(unit[section][option], value, option)

    def test_the_cache_ends_with_the_services(self):
        calls = self.run_phase('unstack', ssd_cache='True')
        stopped = [name for [name] in self.called(calls, 'stop_process')]
        # The agent would find it gone.
        self.assertLess(stopped.index('diffcache-agent'),
                        stopped.index('diffcache-ssdcache'))
        self.write_file('ssd', b'')
        self.useFixture(fixtures.EnvironmentVariable(
            'DIFFCACHE_SSD_CACHE_DEVICE', f'{self.directory}/ssd'))
        removed = [word for words in self.called(
            self.run_phase('clean', ssd_cache='True'), 'sudo')
            for word in words]
        for path in ('ssd', 'data/diffcache/ssd-cache',
                     'systemd/devstack@diffcache-ssdcache.service.d'):
            self.assertIn(f'{self.directory}/{path}', removed)

    def test_volumes_are_not_cached_by_default(self):
        for ssd_cache in ('', 'False'):
            calls = self.run_phase('stack', 'post-config',
                                   ssd_cache=ssd_cache)
            self.assertNotIn('diffcache-ssdcache', [
                words[0] for words in self.called(calls, 'run_process')])
            options = self.options(calls)
            self.assertNotIn('ssd-cache.conf', options)
            self.assertNotIn(('ssd_cache', 'control'), options['agent.conf'])
