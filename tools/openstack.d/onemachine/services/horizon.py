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
"""Horizon, with the panels of this suite."""

import collections.abc
import hashlib
import pathlib
import shutil

from onemachine import layout
from onemachine import place
from onemachine import processes
from onemachine.services import memcache
from onemachine import shell

_PANELS = layout.CHECKOUT / 'diffcache_openstack/dashboard'
_ENVIRONMENT = {'DJANGO_SETTINGS_MODULE': 'openstack_dashboard.settings'}


class Horizon:
    """The dashboard of the centre.

    It is installed as its operators do: settings and files of panels are in
    its package, which belongs to this OpenStack's environment.
    """

    def __init__(self, given: place.Place) -> None:
        self._given = given
        self._where = given.where

    @property
    def _settings(self) -> pathlib.Path:
        return self._where.etc / 'horizon/local_settings.py'

    @property
    def _static(self) -> pathlib.Path:
        return self._where.data / 'horizon/static'

    @property
    def _local(self) -> pathlib.Path:
        """The package with an installation's own settings and panels."""
        [package] = self._where.venv.glob(
            'lib/python3*/site-packages/openstack_dashboard')
        return package / 'local'

    def configure(self) -> None:
        """Write the settings, and enable the panels."""
        shell.write(self._settings, ''.join(
            f'{name} = {value!r}\n'
            for name, value in self.settings().items()))
        link = self._local / self._settings.name
        link.unlink(missing_ok=True)
        link.symlink_to(self._settings)
        enabled = self._local / 'enabled'
        wanted = {path.name for path in self._panels()}
        for path in enabled.glob('*image_cache*.py'):
            if path.name not in wanted:
                path.unlink()
        for path in self._panels():
            shutil.copy(path, enabled)

    def settings(self) -> dict[str, object]:
        """Return the settings over Horizon's own, by name."""
        where = self._where
        return {
            'ALLOWED_HOSTS': [where.centre],
            'SECRET_KEY': where.password('dashboard'),
            'OPENSTACK_KEYSTONE_URL': f'{where.url("keystone")}/v3',
            'OPENSTACK_KEYSTONE_DEFAULT_ROLE': 'member',
            'TIME_ZONE': 'UTC',
            'STATIC_ROOT': str(self._static),
            # Pages refer to files that "compress" has written.
            'COMPRESS_OFFLINE': True,
            'SESSION_ENGINE': 'django.contrib.sessions.backends.cache',
            'CACHES': {'default': {
                'BACKEND':
                    'django.core.cache.backends.memcached.PyMemcacheCache',
                'LOCATION': ':'.join(map(str, memcache.address(where)))}},
        }

    @staticmethod
    def _panels() -> list[pathlib.Path]:
        return sorted((_PANELS / 'enabled').glob('_[0-9]*.py'))

    def ensure_static(self) -> bool:
        """Collect and compress the static files of Horizon and the panels."""
        mark = self._static.with_name('static.digest')
        wanted = self._digest()
        if mark.exists() and mark.read_text() == wanted:
            return False
        mark.unlink(missing_ok=True)
        shutil.rmtree(self._static, ignore_errors=True)
        for command in (('collectstatic', '--noinput', '--verbosity', '0'),
                        ('compress', '--force', '--verbosity', '0')):
            self._manage(*command)
        shell.write(mark, wanted)
        return True

    def _digest(self) -> str:
        """Return a checksum over what the static files are made from."""
        files: collections.abc.Iterable[pathlib.Path] = (
            layout.CHECKOUT / 'constraints.txt', self._settings,
            *self._panels(),
            *_files(_PANELS / 'static'), *_files(_PANELS / 'templates'))
        return hashlib.sha256(b'\0'.join(
            path.read_bytes() for path in files)).hexdigest()

    def _manage(self, *words: str) -> None:
        shell.run(
            self._where.program('python'), '-W', 'ignore', '-m', 'django',
            *words, env=_ENVIRONMENT,
            log=self._where.folder('log') / 'horizon-manage.log')

    def ensure(self) -> bool:
        """Start it."""
        return self._given.processes.ensure(self._daemon())

    def _daemon(self) -> processes.Daemon:
        return self._given.wsgi(
            'horizon', 'openstack_dashboard.wsgi',
            (self._where.centre, layout.PORTS['horizon']),
            # Pages name static files as they were when it started.
            (layout.CHECKOUT / 'constraints.txt', self._settings,
             *_files(_PANELS)),
            UWSGI_STATIC_MAP=f'/static={self._static}',
            **_ENVIRONMENT)


def _files(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return the files below a folder, without those of bytecode."""
    return sorted(path for path in folder.rglob('*')
                  if path.is_file() and path.parent.name != '__pycache__')
