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
"""Glance: the centre's, and the site's own, which is an edge of the former.

Both share database and store. The site's reaches the store by the address
behind the WAN.
"""

import collections.abc
import pathlib

from onemachine import layout
from onemachine import place
from onemachine import processes
from onemachine.services import common
from onemachine import shell


# The agent of the host that each runs on.
_PUBLISHERS = {'centre': 'repository', 'site': 'edge'}


class Glance:
    """The image services of the centre and of the site."""

    def __init__(self, given: place.Place) -> None:
        self._given = given
        self._where = given.where

    def configure(self, site_groups: common.Groups,
                  site_paste: collections.abc.Callable[[str], str]) -> None:
        """Write the configurations.

        :param site_groups: options over those of the site's Glance
        :param site_paste: makes its pipelines of those Glance comes with
        """
        self._write('centre', 'public', 'keystone', {})
        self._write('site', 'internal', 'keystone+cachemanagement',
                    site_groups)
        text = self._original_paste().read_text()
        shell.write(self._paste('centre'), text)
        shell.write(self._paste('site'), site_paste(text))

    def _original_paste(self) -> pathlib.Path:
        return self._where.venv / 'etc/glance/glance-api-paste.ini'

    def _paste(self, which: str) -> pathlib.Path:
        return self.config(which).with_name('glance-api-paste.ini')

    def _write(self, which: str, endpoint: str, flavor: str,
               groups: common.Groups) -> None:
        where = self._where
        folder = where.folder('etc', f'glance-{which}')
        shell.write(folder / 'swift-store.conf', shell.ini({'ref1': {
            'user': 'service:glance',
            'key': where.password('glance'),
            'auth_address': f'{where.url("keystone")}/v3',
            'auth_version': 3,
            'project_domain_name': 'Default',
            'user_domain_name': 'Default',
        }}))
        data = where.folder('data', f'glance-{which}')
        common.write(
            where, f'glance-{which}/glance-api.conf', common.logging(where),
            common.messaging(where), common.database(where, 'glance'),
            common.authtoken(where, 'glance'),
            common.concurrency(where, f'glance-{which}'),
            {
                'DEFAULT': {
                    'enabled_backends': 'store:swift',
                    'show_multiple_locations': False,
                    'enabled_import_methods': '[glance-direct]',
                    'node_staging_uri': f'file://{data}/staging',
                    'worker_self_reference_url': self.url(which),
                    'image_cache_dir': data / 'cache',
                    'workers': 0,
                    # Readers of notifications see of which site it was.
                    'default_publisher_id': f'image.{_PUBLISHERS[which]}',
                },
                'paste_deploy': {
                    'flavor': flavor,
                    'config_file': self._paste(which)},
                'glance_store': {'default_backend': 'store'},
                'store': {
                    'swift_store_config_file': folder / 'swift-store.conf',
                    'default_swift_reference': 'ref1',
                    'swift_store_create_container_on_put': True,
                    'swift_store_container': 'glance',
                    'swift_store_endpoint_type': f'{endpoint}URL',
                    'swift_store_large_object_size': 4096,
                    # glance_store 5.4, of 2026.1, loses their defaults:
                    # LP #2146432.
                    'swift_store_retry_get_count': 0,
                    'swift_store_expire_soon_interval': 60,
                },
                'os_glance_staging_store': {
                    'filesystem_store_datadir': data / 'staging'},
                'os_glance_tasks_store': {
                    'filesystem_store_datadir': data / 'tasks'},
                'wsgi': {'python_interpreter': where.program('python')},
            }, groups)

    def url(self, which: str) -> str:
        """Return where one of both answers."""
        return f'http://{self._address(which)}:{layout.PORTS["glance"]}'

    def _address(self, which: str) -> str:
        return {'centre': self._where.centre,
                'site': self._where.lan_site}[which]

    def sync(self) -> None:
        """Bring the schema up to date."""
        shell.run(
            *self._given.processes.enter('centre'),
            self._where.program('glance-manage'), '--config-file',
            self.config('centre'), 'db_sync',
            log=self._where.folder('log') / 'glance-manage.log')

    def config(self, which: str) -> pathlib.Path:
        """Return the configuration of one of both."""
        return self._where.etc / f'glance-{which}' / 'glance-api.conf'

    def ensure(self, which: str) -> bool:
        """Start one of both."""
        management = {'centre': self._where.centre,
                      'site': self._where.site}[which]
        if which == 'site' and self._where.series.own_glance:
            return self._given.processes.ensure(processes.Daemon(
                name='glance-site', place='site',
                inputs=(self.config(which), self._paste(which)),
                command=(self._where.program('glance-api'), '--config-file',
                         self.config(which)),
                ready=lambda: processes.listens(
                    management, layout.PORTS['glance'])))
        return self._given.processes.ensure(self._given.wsgi(
            f'glance-{which}', 'glance.wsgi.api',
            (management, layout.PORTS['glance']),
            (self.config(which), self._paste(which)), place=which, threads=16,
            OS_GLANCE_CONFIG_DIR=str(self.config(which).parent)))
