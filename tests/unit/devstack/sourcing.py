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
taken for granted here. Those that it answers with a value are written again,
as short as they can be.
"""

import collections
import getpass
import os
import pathlib
import subprocess

from diffcache_openstack.conf import opts
from diffcache_openstack.glance import options as glance_options
from diffcache_openstack.nova import options as nova_options
from diffcache_openstack.tempest_plugin import options as tempest_options
from tests import base

PLUGIN = pathlib.Path(__file__).parents[3] / 'devstack'

# What DevStack offers to plugins. Each call becomes a line: the function, then
# its arguments, between tabs.
FUNCTIONS = ('install_package setup_develop create_service_user'
             ' get_or_create_service get_or_create_endpoint iniset'
             ' iniset_rpc_backend setup_logging recreate_database'
             ' configure_keystone_authtoken_middleware run_process'
             ' stop_process echo_summary define_plugin sudo'
             ' add_user_to_group async_wait test_with_retry')

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
# Files of options; what a test wants to be set before is in OPTIONS_BEFORE.
iniget() {{ echo "${{OPTIONS_BEFORE[$1/$2/$3]:-}}"; }}
declare -A OPTIONS_BEFORE=({before})
getent() {{ [[ " $GROUPS_BEFORE " == *" $2 "* ]]; }}
die() {{ shift; echo "$*" >&2; exit 1; }}
trueorfalse() {{ [[ ${{!2:-$1}} == True ]] && echo True || echo False; }}
ipv6_unquote() {{ tr -d [] <<<"$1"; }}
database_connection_url() {{ echo "mysql://$1"; }}
get_python_exec_prefix() {{ echo "$DEST/bin"; }}
DEST=$1 DATA_DIR=$1/data STACK_USER=$USER
SERVICE_HOST=10.0.0.1 HOST_IP=10.0.0.2
LOCAL_HOSTNAME=node REGION_NAME=RegionOne SERVICE_PASSWORD=secret
KEYSTONE_SERVICE_URI=http://10.0.0.1/identity SERVICE_PROJECT_NAME=service
SERVICE_DOMAIN_NAME=Default NOVA_INSTANCES_PATH=$1/instances
NOVA_CONF=nova.conf GLANCE_API_CONF=glance-api.conf GLANCE_CONF_DIR=glance
GLANCE_CACHE_CONF=glance-cache.conf TEMPEST_CONFIG=tempest.conf
GLANCE_URL=http://10.0.0.1/image CINDER_CONF=cinder.conf
CINDER_ENABLED_BACKENDS=lvm:a,nfs:b
DIFFCACHE_CONF_DIR=$1/etc SERVICE_LISTEN_ADDRESS='{listen}'
DIFFCACHE_LAZY={lazy} DIFFCACHE_SSD_CACHE={ssd_cache}
SYSTEMD_DIR=$1/systemd DISTRO={distro} GROUPS_BEFORE='{groups}'
ENABLED_SERVICES=$2; shift 2
. {plugin}/override-defaults
[ -n "$ENABLED_SERVICES" ] || ENABLED_SERVICES={all}
case $ENABLED_SERVICES in
    *diffcache-*) defaults=$ENABLED_SERVICES; . {plugin}/settings
                  ENABLED_SERVICES=$defaults ;;
    *) . {plugin}/settings ;;
esac
. {plugin}/plugin.sh "$@"
{after}
'''
EVERYTHING = 'key,g-api,n-api,n-sch,n-cpu,nova,cinder,c-bak,tempest'
# What reads each file that the plugin writes options of the suite to.
READERS = {'diffcache.conf': opts, 'agent.conf': opts,
           'repository.conf': opts, 'nova.conf': nova_options,
           'glance-api.conf': glance_options,
           'glance-cache.conf': glance_options,
           'tempest.conf': tempest_options}


def known_options(reader):
    """Names of the options that a module registers, by group."""
    return {getattr(group, 'name', group): {option.dest for option in options}
            for group, options in reader.list_opts()}


class PluginTest(base.TestCase):

    def setUp(self):
        super().setUp()
        programs = self.directory / 'bin'
        programs.mkdir()
        self.write_program('openssl', """#!/bin/sh
arguments=$*
while [ $# -gt 0 ]; do
    case $1 in -keyout|-out) echo "$arguments" >"$2" ;; esac
    shift
done
if [ -e "${0%/*}/../etc/tls/node.csr" ]; then
    cat "${0%/*}/../etc/tls/node.csr" >>"${0%/*}/../etc/tls/node.pem"
fi
""")
        manage = programs / 'diffcache-manage'
        manage.write_text(f'#!/bin/sh\n'
                          f'echo "manage\t$*" >>{self.directory}/calls\n')
        manage.chmod(0o755)

    def write_program(self, name, text):
        program = self.directory / 'bin' / name
        program.write_text(text)
        program.chmod(0o755)

    def source(self, *words, services='', **about):
        """Source everything as DevStack does.

        :param about: the node, if it is another one: distro, groups and
            options that are there before, address to listen on, whether
            images are served while they arrive, whether volumes are cached
        """
        script = ENVIRONMENT.format(
            functions=FUNCTIONS, plugin=PLUGIN, all=EVERYTHING,
            **{'distro': 'bookworm', 'groups': '', 'before': '',
               'listen': '0.0.0.0', 'after': '', 'lazy': '',
               'ssd_cache': '', **about})
        (self.directory / 'calls').unlink(missing_ok=True)
        environment = {name: value for name, value in os.environ.items()
                       if name not in ('CARGO', 'RUSTC')}
        return subprocess.run(
            ['bash', '-c', script, 'bash', self.directory / 'calls',
             self.directory, services, *words], text=True,
            capture_output=True,
            env={**environment, 'USER': getpass.getuser(), 'PATH':
                 f'{self.directory}/bin:{os.environ["PATH"]}'})

    def run_phase(self, *words, **about):
        """Source everything without errors; returns what was called."""
        done = self.source(*words, **about)
        self.assertEqual((0, ''), (done.returncode, done.stderr))
        calls = self.directory / 'calls'
        if not calls.exists():
            return []
        return [line.split('\t') for line in calls.read_text().splitlines()]

    def options(self, calls):
        """What was set, by the name of the file, then group and option."""
        found = collections.defaultdict(dict)
        for name, *words in calls:
            if name == 'iniset':
                path, group, option, value = words[-4:]
                found[pathlib.Path(path).name][group, option] = value
        return found

    def called(self, calls, name):
        return [words for found, *words in calls if found == name]
