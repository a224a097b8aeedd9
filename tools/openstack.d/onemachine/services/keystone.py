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
"""Keystone, with the catalogue and users of all services."""

from onemachine import layout
from onemachine import place
from onemachine.services import common
from onemachine import shell


class Keystone:
    """The identity service of the centre."""

    def __init__(self, given: place.Place) -> None:
        self._given = given
        self._where = given.where

    def configure(self) -> None:
        """Write the configuration."""
        where = self._where
        memcached = f'{where.centre}:{layout.PORTS["memcached"]}'
        common.write(
            where, 'keystone/keystone.conf', common.logging(where),
            common.database(where, 'keystone'),
            {
                'DEFAULT': {'public_endpoint': where.url('keystone')},
                'cache': {
                    'enabled': True,
                    'backend': 'dogpile.cache.pymemcache',
                    'memcache_servers': memcached,
                },
                'token': {'provider': 'fernet', 'expiration': 86400},
                'fernet_tokens': {
                    'key_repository': where.folder('etc/keystone/fernet')},
                'credential': {
                    'key_repository': where.folder('etc/keystone/creds')},
            })

    def ensure_keys(self) -> bool:
        """Make the keys with which tokens are made."""
        made = False
        for name, command in (('fernet', 'fernet_setup'),
                              ('creds', 'credential_setup')):
            if not (self._where.etc / 'keystone' / name / '0').exists():
                made = True
                # Needs no database, and comes before there are networks.
                self._manage('machine', command, '--keystone-user', 'root',
                             '--keystone-group', 'root')
        return made

    def sync(self) -> None:
        """Bring the schema up to date, and add the administrator."""
        self._manage('centre', 'db_sync')
        url = f'{self._where.url("keystone")}/v3'
        self._manage(
            'centre', 'bootstrap', '--bootstrap-password',
            self._where.password('admin'), '--bootstrap-admin-url', url,
            '--bootstrap-internal-url', url, '--bootstrap-public-url', url,
            '--bootstrap-region-id', 'RegionOne')

    def ensure(self) -> bool:
        """Start the service."""
        return self._given.processes.ensure(self._given.wsgi(
            'keystone', 'keystone.wsgi.api',
            (self._where.centre, layout.PORTS['keystone']),
            (self._where.etc / 'keystone/keystone.conf',),
            OS_KEYSTONE_CONFIG_DIR=str(self._where.etc / 'keystone')))

    def _manage(self, where: str, *words: str) -> None:
        shell.run(
            *self._given.processes.enter(where),
            self._where.program('keystone-manage'), '--config-file',
            self._where.etc / 'keystone/keystone.conf', *words,
            log=self._where.folder('log') / 'keystone-manage.log')
