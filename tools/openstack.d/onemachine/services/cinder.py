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
"""Cinder, with volumes that are files of this machine."""

import pathlib
import shutil

from onemachine import layout
from onemachine import place
from onemachine import processes
from onemachine.services import common
from onemachine import shell

FILES, NFS = 'files', 'nfs'
# By the backends.
DRIVERS = {FILES: 'volumes_for_tests.FilesForTestsDriver',
           NFS: 'volumes_for_tests.BindMountNfsDriver'}


class Cinder:
    """API, scheduler, the backends and backups, all at the centre."""

    def __init__(self, given: place.Place) -> None:
        self._given = given
        self._where = given.where
        self._etc = given.where.etc / 'cinder'

    def configure(self, groups: common.Groups) -> None:
        """Write the configuration.

        :param groups: of the suite, with the backends' drivers
        """
        where = self._where
        folder = where.folder('etc/cinder')
        state = where.folder('data/cinder')
        for name in ('api-paste.ini', 'resource_filters.json'):
            shutil.copy(where.venv / 'etc/cinder' / name, folder)
        common.write(
            where, 'cinder/cinder.conf', common.logging(where),
            common.messaging(where), common.authtoken(where, 'cinder'),
            common.database(where, 'cinder'),
            common.concurrency(where, 'cinder'),
            {
                'DEFAULT': {
                    'host': 'centre',
                    'my_ip': where.centre,
                    'state_path': state,
                    'api_paste_config': folder / 'api-paste.ini',
                    'resource_query_filters_file':
                        folder / 'resource_filters.json',
                    'auth_strategy': 'keystone',
                    'enabled_backends': ','.join(DRIVERS),
                    'default_volume_type': '__DEFAULT__',
                    'enable_force_upload': True,
                    'glance_api_servers': where.url('glance'),
                    'graceful_shutdown_timeout': 5,
                    'report_interval': 5,
                },
                FILES: {'volume_backend_name': FILES},
                NFS: {'volume_backend_name': NFS,
                      'nfs_shares_config': self._shares(),
                      'nfs_mount_point_base': state / 'mnt',
                      'nfs_snapshot_support': True,
                      'nas_secure_file_operations': 'false',
                      'nas_secure_file_permissions': 'false'},
                'coordination': {'backend_url': f'file://{state}/locks'},
                'nova': common.service_user(where, 'nova'),
                # These services are root's, and need no sudo.
                **dict.fromkeys(('privsep_osbrick', 'cinder_sys_admin'), {
                    'helper_command': f'{where.program("privsep-helper")}'
                                      f' --config-file'
                                      f' {folder / "cinder.conf"}'}),
                'service_user': {
                    **common.service_user(where, 'cinder'),
                    'send_service_user_token': True,
                },
            }, groups)

    def _shares(self) -> pathlib.Path:
        """Return the file that names the share, a folder of this machine."""
        path = self._etc / 'nfs_shares'
        path.write_text(f'centre:{self._where.folder("data/nfs")}\n')
        return path

    def sync(self) -> None:
        """Bring the schema up to date."""
        shell.run(
            *self._given.processes.enter('centre'),
            self._where.program('cinder-manage'), '--config-file',
            self._etc / 'cinder.conf', 'db', 'sync',
            log=self._where.folder('log') / 'cinder-manage.log')

    def ensure_api(self) -> bool:
        """Start the API."""
        config = self._etc / 'cinder.conf'
        return self._given.processes.ensure(self._given.wsgi(
            'cinder-api', 'cinder.wsgi.api',
            (self._where.centre, layout.PORTS['cinder']), (config,),
            UWSGI_PYARGV=f'--config-file {config}'))

    def ensure_service(self, name: str) -> bool:
        """Start ``scheduler``, ``volume`` or ``backup``."""
        config = self._etc / 'cinder.conf'
        return self._given.processes.ensure(processes.Daemon(
            name=f'cinder-{name}', place='centre', inputs=(config,),
            command=(self._where.program(f'cinder-{name}'), '--config-file',
                     config),
            environment={
                'PYTHONPATH': str(layout.CHECKOUT / 'tools/openstack.d'),
                'PATH': f'{self._where.venv}/bin:/usr/sbin:/usr/bin:/sbin'
                        ':/bin'}))
