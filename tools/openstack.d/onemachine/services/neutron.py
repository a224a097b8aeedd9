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
"""Neutron's API alone.

Nova asks it whenever it shows or deletes a server, even one without a
network. Guests here have none, so that no agent has to run.
"""

import shutil

from onemachine import layout
from onemachine import place
from onemachine.services import common
from onemachine import shell

# The first request that touches ports fails until every mapped class is
# configured, so that is done before the first request.
_APPLICATION = '''\
from sqlalchemy import orm

from neutron.wsgi.api import application

orm.configure_mappers()
'''


class Neutron:
    """The network service of the centre."""

    def __init__(self, given: place.Place) -> None:
        self._given = given
        self._where = given.where

    def configure(self) -> None:
        """Write the configuration and the application."""
        where = self._where
        folder = where.folder('etc/neutron')
        shutil.copy(where.venv / 'etc/neutron/api-paste.ini', folder)
        common.write(
            where, 'neutron/neutron.conf', common.logging(where),
            common.messaging(where), common.database(where, 'neutron'),
            common.authtoken(where, 'neutron'),
            common.concurrency(where, 'neutron'),
            {
                'DEFAULT': {
                    'core_plugin': 'ml2',
                    'service_plugins': '',
                    'auth_strategy': 'keystone',
                    'api_paste_config': folder / 'api-paste.ini',
                    'notify_nova_on_port_status_changes': False,
                    'notify_nova_on_port_data_changes': False,
                },
                'nova': common.service_user(where, 'nova'),
                'placement': common.service_user(where, 'placement'),
            })
        common.write(where, 'neutron/ml2_conf.ini', {'ml2': {
            'type_drivers': 'local',
            'tenant_network_types': 'local',
            'mechanism_drivers': '',
        }})
        shell.write(where.folder('run/wsgi') / 'neutron_application.py',
                    _APPLICATION)

    def sync(self) -> None:
        """Bring the schema up to date."""
        folder = self._where.etc / 'neutron'
        shell.run(
            *self._given.processes.enter('centre'),
            self._where.program('neutron-db-manage'),
            '--config-file', folder / 'neutron.conf',
            '--config-file', folder / 'ml2_conf.ini', 'upgrade', 'heads',
            log=self._where.folder('log') / 'neutron-db-manage.log')

    def ensure(self) -> bool:
        """Start the service."""
        folder = self._where.etc / 'neutron'
        return self._given.processes.ensure(self._given.wsgi(
            'neutron', 'neutron_application',
            (self._where.centre, layout.PORTS['neutron']),
            (folder / 'neutron.conf', folder / 'ml2_conf.ini'),
            OS_NEUTRON_CONFIG_DIR=str(folder),
            OS_NEUTRON_CONFIG_FILES='neutron.conf;ml2_conf.ini'))
