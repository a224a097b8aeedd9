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
"""Nova's services of the centre."""

import shutil

from onemachine import layout
from onemachine import place
from onemachine import processes
from onemachine.services import common
from onemachine import shell

_TEMPLATE = '{scheme}://{username}:{password}@{hostname}:{port}/'


def groups(where: layout.Layout, glance: str) -> common.Groups:
    """Return the options of every service of Nova.

    :param glance: URL of the image service to use
    """
    return shell.merge(
        common.logging(where), common.messaging(where),
        common.authtoken(where, 'nova'),
        {'cinder': {
            **common.service_user(where, layout.VOLUME_USER),
            'catalog_info': 'block-storage:cinder:publicURL',
            'os_region_name': 'RegionOne',
        }} if where.volumes else {},
        {
            'glance': {
                **common.service_user(where, 'glance'),
                'api_servers': glance,
                'num_retries': 2,
            },
            'placement': common.service_user(where, 'placement'),
            'neutron': common.service_user(where, 'neutron'),
            'service_user': {
                **common.service_user(where, 'nova'),
                'send_service_user_token': True,
            },
            'notifications': {
                'notification_format': 'both',
                'notify_on_state_change': 'vm_state',
            },
            # The default is minutes, and a restart is to be quick.
            'DEFAULT': {
                'graceful_shutdown_timeout': 5,
                'manager_shutdown_timeout': 5,
            },
        })


class Nova:
    """API, scheduler and conductor."""

    def __init__(self, given: place.Place) -> None:
        self._given = given
        self._where = given.where
        self._etc = given.where.etc / 'nova'

    def configure(self, more: common.Groups) -> None:
        """Write the configuration.

        :param more: options over those given here
        """
        where = self._where
        folder = where.folder('etc/nova')
        shutil.copy(where.venv / 'etc/nova/api-paste.ini', folder)
        common.write(
            where, 'nova/nova.conf', groups(where, where.url('glance')),
            common.concurrency(where, 'nova'),
            common.database(where, 'nova'),
            common.database(where, 'nova_api', 'api_database'),
            {
                'DEFAULT': {
                    'host': 'centre',
                    'my_ip': where.centre,
                    'state_path': where.folder('data/nova'),
                    'allow_resize_to_same_host': True,
                },
                'api': {'auth_strategy': 'keystone'},
                'wsgi': {'api_paste_config': folder / 'api-paste.ini'},
                'quota': {'instances': 200, 'cores': 200, 'ram': 512000},
                'scheduler': {'workers': 1,
                              'discover_hosts_in_cells_interval': 15},
                'filter_scheduler': {'track_instance_changes': False},
                'conductor': {'workers': 1},
                'vnc': {'enabled': False},
            }, more)

    def sync_api(self) -> None:
        """Bring the API's schema up to date, and map the cells.

        The mappings are templates that each service fills from its own
        configuration.
        """
        self._manage('api_db', 'sync')
        self._manage('cell_v2', 'map_cell0', '--database_connection',
                     f'{_TEMPLATE}nova_cell0?{{query}}')
        if 'cell1' not in self._manage('cell_v2', 'list_cells'):
            self._manage('cell_v2', 'create_cell', '--name', 'cell1',
                         '--database_connection',
                         f'{_TEMPLATE}nova?{{query}}',
                         '--transport-url', _TEMPLATE)

    def sync_cells(self) -> None:
        """Bring the schemas of the cells up to date."""
        self._manage('db', 'sync')

    def discover_hosts(self) -> None:
        """Map compute hosts that have registered themselves."""
        self._manage('cell_v2', 'discover_hosts')

    def ensure_api(self) -> bool:
        """Start the API."""
        return self._given.processes.ensure(self._given.wsgi(
            'nova-api', 'nova.wsgi.osapi_compute',
            (self._where.centre, layout.PORTS['nova']),
            (self._etc / 'nova.conf',),
            threads=1 if self._where.series.eventlet_api else 8,
            OS_NOVA_CONFIG_DIR=str(self._etc)))

    def ensure_service(self, name: str) -> bool:
        """Start ``conductor`` or ``scheduler``."""
        return self._given.processes.ensure(processes.Daemon(
            name=f'nova-{name}', place='centre',
            inputs=(self._etc / 'nova.conf',),
            command=(self._where.program(f'nova-{name}'), '--config-file',
                     self._etc / 'nova.conf')))

    def _manage(self, *words: str) -> str:
        return shell.run(
            *self._given.processes.enter('centre'),
            self._where.program('nova-manage'), '--config-file',
            self._etc / 'nova.conf', *words,
            log=self._where.folder('log') / 'nova-manage.log')
