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
"""MariaDB, and what the databases contain before their first use."""

import functools
import pathlib
import shutil

import pymysql

from onemachine import layout
from onemachine import place
from onemachine import processes
from onemachine import shell

NAMES = ('keystone', 'glance', 'placement', 'nova', 'nova_api', 'nova_cell0',
         'neutron', 'diffcache', 'cinder')
_USER = 'mysql'
# Nothing has to survive the machine, so nothing waits for the disk.
_OPTIONS = (
    '--skip-log-bin', '--skip-name-resolve', '--performance-schema=OFF',
    '--innodb-flush-log-at-trx-commit=0', '--innodb-doublewrite=0',
    '--innodb-buffer-pool-size=192M', '--innodb-log-file-size=64M',
    '--max-connections=800', '--debug-no-sync')


class Database:
    """The database server of the centre."""

    def __init__(self, given: place.Place) -> None:
        self._given = given
        self._where = given.where
        self._folder = given.where.data / 'mariadb'
        self._socket = self._folder / 'mariadb.sock'

    def ensure(self) -> bool:
        """Start the server; the first time with empty databases."""
        self._where.folder('data')
        if not (self._folder / 'data' / 'mysql').exists():
            self._make()
        fresh = self._given.processes.ensure(self._daemon())
        if fresh:
            self.grant()
        return fresh

    def _make(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        shutil.chown(self._folder, _USER, _USER)
        _open_way(self._folder)
        shell.run(
            'setpriv', f'--reuid={_USER}', f'--regid={_USER}',
            '--init-groups', 'mariadb-install-db', '--no-defaults',
            f'--datadir={self._folder}/data', '--skip-test-db',
            '--auth-root-authentication-method=normal', *_OPTIONS[2:7])

    def _daemon(self) -> processes.Daemon:
        return processes.Daemon(
            name='mariadb', place='centre', user=_USER,
            command=(
                'mariadbd', '--no-defaults', f'--datadir={self._folder}/data',
                f'--socket={self._socket}',
                # The caller's may be one that its user can't write to.
                f'--tmpdir={self._folder}',
                f'--port={layout.PORTS["mariadb"]}',
                f'--bind-address={self._where.centre}',
                f'--pid-file={self._folder}/pid', *_OPTIONS),
            ready=self._is_ready)

    def _is_ready(self) -> bool:
        try:
            self.execute('SELECT 1')
        except pymysql.Error:
            return False
        return True

    def grant(self) -> None:
        """Create the databases that are missing, for their users."""
        password = self._where.password('database')
        self.execute(*(
            statement.format(name=name, password=password)
            for name in NAMES for statement in (
                'CREATE DATABASE IF NOT EXISTS {name} CHARACTER SET utf8mb3',
                "GRANT ALL ON {name}.* TO '{name}'@'%'"
                " IDENTIFIED BY '{password}'")))
        self.execute(*(
            f"GRANT ALL ON {name}.* TO 'nova'@'%'"
            for name in ('nova_api', 'nova_cell0')))

    def execute(self, *statements: str) -> list[tuple]:
        """Run statements as administrator; returns the last one's rows."""
        with pymysql.connect(unix_socket=str(self._socket), user='root',
                             autocommit=True) as admin:
            with admin.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
                return list(cursor.fetchall())

    def has_tables(self, name: str) -> bool:
        """Return whether a database was filled."""
        return bool(self.execute(
            'SELECT 1 FROM information_schema.tables'
            f" WHERE table_schema = '{name}' LIMIT 1"))

    @functools.cached_property
    def _dumps(self) -> pathlib.Path:
        return self._where.folder('cache', 'databases')

    def has_dump(self, key: str) -> bool:
        """Return whether the databases can be filled from a dump."""
        return (self._dumps / f'{key}.sql').exists()

    def dump(self, key: str) -> None:
        """Keep what all databases contain."""
        text = shell.run('mariadb-dump', '--no-defaults', '--user=root',
                         f'--socket={self._socket}', '--single-transaction',
                         '--databases', *NAMES)
        for old in self._dumps.glob('*.sql'):
            old.unlink()
        shell.write(self._dumps / f'{key}.sql', text, 0o600)

    def load(self, key: str) -> None:
        """Fill the databases from a dump."""
        shell.run('mariadb', '--no-defaults', '--user=root',
                  f'--socket={self._socket}',
                  data=(self._dumps / f'{key}.sql').read_text())


def _open_way(path: pathlib.Path) -> None:
    """Let other users pass through the folders above a path."""
    for parent in path.parents:
        mode = parent.stat().st_mode
        if not mode & 0o001:
            parent.chmod(mode & 0o7777 | 0o011)
