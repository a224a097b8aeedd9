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
"""The plugin between functions that only write down what DevStack's would do.

That DevStack has these functions, and calls the plugin with these words, is
taken for granted here.
"""

import collections
import getpass
import os
import pathlib
import subprocess

from tests import base

PLUGIN = pathlib.Path(__file__).parents[3] / 'devstack'

# What DevStack offers to plugins. Each call becomes a line: the function, then
# its arguments, between tabs.
FUNCTIONS = ('install_package setup_develop create_service_user'
             ' get_or_create_service get_or_create_endpoint iniset'
             ' iniset_rpc_backend setup_logging recreate_database'
             ' configure_keystone_authtoken_middleware run_process'
             ' stop_process echo_summary define_plugin sudo'
             ' diffcache_manage')

ENVIRONMENT = r'''
set -eu
CALLS=$1; shift
for name in {functions}; do
    eval "$name() {{ (IFS=$'\t'; echo \"$name	\$*\" >>\"$CALLS\"); }}"
done
enable_service() {{
    local name
    for name in "$@"; do ENABLED_SERVICES+=,$name; done
}}
is_service_enabled() {{
    local name
    for name in "$@"; do
        [[ ,$ENABLED_SERVICES, != *,"$name"* ]] || return 0
    done
    return 1
}}
database_connection_url() {{ echo "mysql://$1"; }}
get_python_exec_prefix() {{ echo "$DEST/bin"; }}
DEST=$1 DATA_DIR=$1/data STACK_USER=$USER
SERVICE_HOST=10.0.0.1 HOST_IP=10.0.0.2
LOCAL_HOSTNAME=node REGION_NAME=RegionOne SERVICE_PASSWORD=secret
KEYSTONE_SERVICE_URI=http://10.0.0.1/identity SERVICE_PROJECT_NAME=service
SERVICE_DOMAIN_NAME=Default NOVA_INSTANCES_PATH=$1/instances
NOVA_CONF=nova.conf GLANCE_API_CONF=glance-api.conf GLANCE_CONF_DIR=glance
GLANCE_CACHE_CONF=glance-cache.conf TEMPEST_CONFIG=tempest.conf
DIFFCACHE_CONF_DIR=$1/etc
ENABLED_SERVICES=$2; shift 2
. {plugin}/override-defaults
[ -n "$ENABLED_SERVICES" ] || ENABLED_SERVICES={all}
case $ENABLED_SERVICES in
    *diffcache-*) defaults=$ENABLED_SERVICES; . {plugin}/settings
                  ENABLED_SERVICES=$defaults ;;
    *) . {plugin}/settings ;;
esac
. {plugin}/plugin.sh "$@"
'''
EVERYTHING = 'key,g-api,n-api,n-sch,n-cpu,nova,tempest'


class TestPlugin(base.TestCase):

    def setUp(self):
        super().setUp()
        programs = self.directory / 'bin'
        programs.mkdir()
        manage = programs / 'diffcache-manage'
        manage.write_text(f'#!/bin/sh\n'
                          f'echo "manage\t$*" >>{self.directory}/calls\n')
        manage.chmod(0o755)

    def run_phase(self, *words, services=''):
        """Source everything as DevStack does; returns what was called."""
        calls = self.directory / 'calls'
        calls.unlink(missing_ok=True)
        script = ENVIRONMENT.format(functions=FUNCTIONS, plugin=PLUGIN,
                                    all=EVERYTHING)
        done = subprocess.run(
            ['bash', '-c', script, 'bash', calls, self.directory, services,
             *words], text=True, capture_output=True,
            env={**os.environ, 'USER': getpass.getuser()})
        self.assertEqual((0, ''), (done.returncode, done.stderr))
        if not calls.exists():
            return []
        return [line.split('\t') for line in calls.read_text().splitlines()]

    def options(self, calls):
        """What was set, by the name of the file, then group and option."""
        found = collections.defaultdict(dict)
        for name, *words in calls:
            if name == 'iniset':
                path, group, option, value = words
                found[pathlib.Path(path).name][group, option] = value
        return found

    def called(self, calls, name):
        return [words for found, *words in calls if found == name]

    def test_nothing_happens_before_its_time(self):
        for words in (('stack', 'pre-install'), ('stack', 'extra')):
            self.assertEqual(['define_plugin'], [
                name for name, *_ in self.run_phase(*words)])

    def test_install(self):
        calls = self.run_phase('stack', 'install')
        self.assertEqual([[f'{self.directory}/diffcache']],
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
        socket = options['agent.conf']['agent', 'socket']
        for name in ('nova.conf', 'glance-api.conf', 'glance-cache.conf'):
            found = options[name]
            self.assertEqual(socket, found['diffcache', 'socket'])
            group = found['DEFAULT', 'config_source']
            self.assertEqual('diffcache', found[group, 'driver'])
        self.assertEqual('diffcache', options['glance-api.conf'][
            'DEFAULT', 'image_cache_driver'])
        nova = options['nova.conf']
        self.assertEqual('diffcache.LibvirtDriver',
                         nova['DEFAULT', 'compute_driver'])
        self.assertIn('BuildCostWeigher',
                      nova['filter_scheduler', 'weight_classes'])

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
        # It writes disks of guests that do not run, which are root's.
        [agent] = [words for words in self.called(calls, 'run_process')
                   if words[0] == 'diffcache-agent']
        self.assertEqual(['', 'root'], agent[2:])

    def test_nova_reaches_the_socket_of_an_agent_that_is_root(self):
        found = self.options(self.run_phase('stack', 'post-config'))[
            'agent.conf']
        self.assertIn(('agent', 'socket_group'), found)
        state = pathlib.Path(found['agent', 'state_dir'])
        self.assertNotIn(
            state, pathlib.Path(found['agent', 'socket']).parents)

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

    def test_all_of_it_is_stopped_and_removed(self):
        stopped = self.called(self.run_phase('unstack'), 'stop_process')
        self.assertEqual(4, len(stopped))
        removed = self.called(self.run_phase('clean'), 'sudo')
        self.assertEqual(['rm', '-rf'], removed[0][:2])

    def test_without_its_services_it_does_nothing(self):
        script = ('is_service_enabled() { return 1; }; ENABLED_SERVICES=key;'
                  f' . {PLUGIN}/plugin.sh stack post-config')
        done = subprocess.run(['bash', '-euc', script], text=True,
                              capture_output=True)
        self.assertEqual((0, '', ''),
                         (done.returncode, done.stdout, done.stderr))
