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
"""RabbitMQ."""

import json
import shutil

from onemachine import layout
from onemachine import place
from onemachine import processes
from onemachine import shell

_PROGRAM = '/usr/lib/rabbitmq/bin/rabbitmq-server'
_USER = 'rabbitmq'


class Broker:
    """The message broker of the centre."""

    def __init__(self, given: place.Place) -> None:
        self._given = given
        self._where = given.where
        self._folder = given.where.data / 'rabbitmq'

    def ensure(self) -> bool:
        """Start the port mapper and the broker."""
        folder = self._where.folder('data', 'rabbitmq')
        self._configure()
        shutil.chown(folder, _USER, _USER)
        for path in folder.iterdir():
            shutil.chown(path, _USER, _USER)
        # Erlang would start a port mapper by itself and leave it behind.
        self._given.processes.ensure(processes.Daemon(
            name='epmd', place='centre', user=_USER,
            command=('epmd', '-port', layout.PORTS['epmd'])))
        return self._given.processes.ensure(self._daemon())

    def _configure(self) -> None:
        definitions = shell.write(
            self._folder / 'definitions.json', json.dumps(self._users()))
        shell.write(
            self._folder / 'rabbitmq.conf',
            f'load_definitions = {definitions}\n'
            f'listeners.tcp.1 = {self._where.centre}'
            f':{layout.PORTS["rabbitmq"]}\n'
            'log.console = true\n'
            'log.console.level = warning\n')
        shell.write(self._folder / 'enabled_plugins', '[].\n')

    def _users(self) -> dict:
        rights = {'configure': '.*', 'write': '.*', 'read': '.*'}
        return {
            'users': [{'name': 'openstack', 'tags': '',
                       'password': self._where.password('broker')}],
            'vhosts': [{'name': '/'}],
            'permissions': [{'user': 'openstack', 'vhost': '/', **rights}],
        }

    def _daemon(self) -> processes.Daemon:
        folder = str(self._folder)
        return processes.Daemon(
            name='rabbitmq', place='centre', user=_USER,
            command=(_PROGRAM,),
            environment={
                'HOME': folder,
                'ERL_EPMD_PORT': str(layout.PORTS['epmd']),
                # Replaces the shell script by the broker.
                'RUNNING_UNDER_SYSTEMD': 'true',
                'RABBITMQ_CONF_ENV_FILE': '/dev/null',
                'RABBITMQ_NODENAME': f'{self._where.prefix}@localhost',
                'RABBITMQ_NODE_IP_ADDRESS': self._where.centre,
                'RABBITMQ_NODE_PORT': str(layout.PORTS['rabbitmq']),
                'RABBITMQ_DIST_PORT':
                    str(layout.PORTS['rabbitmq-distribution']),
                'RABBITMQ_CONFIG_FILE': f'{folder}/rabbitmq.conf',
                'RABBITMQ_ADVANCED_CONFIG_FILE': f'{folder}/advanced.config',
                'RABBITMQ_ENABLED_PLUGINS_FILE': f'{folder}/enabled_plugins',
                'RABBITMQ_MNESIA_BASE': f'{folder}/mnesia',
                'RABBITMQ_LOG_BASE': folder,
                'RABBITMQ_PID_FILE': f'{folder}/pid',
                'RABBITMQ_GENERATED_CONFIG_DIR': f'{folder}/generated',
                # Schedulers that wait must not spin.
                'RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS':
                    '+sbwt none +sbwtdcpu none +sbwtdio none',
            },
            ready=lambda: processes.listens(
                self._where.centre, layout.PORTS['rabbitmq']))
