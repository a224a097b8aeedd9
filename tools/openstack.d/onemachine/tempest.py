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
"""Tempest's configuration for the OpenStack that is up."""

import importlib.resources
import pathlib
import shlex
import sys

from onemachine import layout
from onemachine import shell
from onemachine import trial


class Tempest:
    """A workspace for tempest."""

    def __init__(self, given: trial.Trial) -> None:
        self._trial = given
        self._where = given.where
        self.folder = given.where.folder('tempest')

    def configure(self) -> pathlib.Path:
        """Write the workspace; returns its folder."""
        where = self._where
        flavor = self._trial.flavor('tiny')
        image = self._image()
        groups: dict[str, dict[str, object]] = {
            'DEFAULT': {'log_file': self.folder / 'tempest.log',
                        'use_stderr': False},
            'oslo_concurrency': {'lock_path': self.folder / 'locks'},
            'auth': {
                'admin_username': 'admin',
                'admin_password': where.password('admin'),
                'admin_project_name': 'admin',
                'admin_domain_name': 'Default',
                'use_dynamic_credentials': True,
                'create_isolated_networks': False,
            },
            'identity': {'uri_v3': f'{where.url("keystone")}/v3',
                         'auth_version': 'v3', 'region': 'RegionOne'},
            'compute': {
                'image_ref': image, 'image_ref_alt': image,
                'flavor_ref': flavor, 'flavor_ref_alt': flavor,
                'max_microversion': 'latest', 'build_timeout': 300,
                'min_compute_nodes': where.computes,
            },
            'network': {'project_networks_reachable': False},
            'validation': {'run_validation': False},
            'service_available': {
                'cinder': where.volumes, 'swift': False, 'horizon': False,
                'neutron': True, 'diffcache': True},
            'volume-feature-enabled': {'backup': where.volumes},
            'diffcache': self._ours(),
        }
        self.folder.joinpath('etc').mkdir(exist_ok=True)
        shell.write(self.folder / 'etc/tempest.conf', shell.ini(groups),
                    0o600)
        tests = importlib.resources.files('tempest').joinpath(
            'test_discover')
        shell.write(self.folder / '.stestr.conf', shell.ini({'DEFAULT': {
            'test_path': tests, 'top_dir': tests.parent.parent,
            'group_regex': r'([^\.]*\.)*'}}))
        return self.folder

    def _ours(self) -> dict[str, object]:
        guests = self._trial.guests()
        names = {'guest-base': 'base', 'guest-web': 'derived'}
        site = f'{self._where.site}:{layout.PORTS["glance"]}'
        return {
            'agent_sockets': _pairs({
                host: self._trial.socket(host) for host in self._trial.hosts
            }),
            'base_directories': _pairs({
                host: self._trial.instances(host) / '_base'
                for host in self._trial.hosts}),
            'image_files': _pairs({
                names.get(name, name): path
                for name, path in guests.items()}),
            'wan_bytes_command': self._command('wan'),
            'stop_conductor_command': self._command(
                'stop', 'diffcache-conductor'),
            'start_conductor_command': self._command('up'),
            'site_image_url': f'http://{site}',
        }

    def _image(self) -> str:
        """Return the ID of an image of the family, uploaded if need be."""
        found = self._trial.admin.image.find_image('guest-base')
        if found is not None:
            return found.id
        return self._trial.upload('guest-base',
                                  self._trial.guests()['guest-base'])

    def _command(self, *words: str) -> str:
        """Return a command of this program for the same OpenStack."""
        code = pathlib.Path(__file__).parent.parent
        return shlex.join([
            'env', f'PYTHONPATH={code}', sys.executable, '-m', 'onemachine',
            '--state', str(self._where.state), *words])


def _pairs(values: dict) -> str:
    return ','.join(f'{key}:{value}' for key, value in values.items())
