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
"""The files of a first deployment: what each of its machines needs.

A directory has a folder for each machine, to be copied to its
``/etc/diffcache``, and what stays where keys are issued.
"""

import collections.abc
import dataclasses
import json
import os
import pathlib
import secrets
import tempfile
import typing

from diffcache_openstack.cmd.manage import agent_certificates
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import keys
from diffcache_openstack.common.signing import host_keys

CONFIGURATION = pathlib.PurePosixPath('/etc/diffcache')
# Of the machine that is controller and repository: the agent's own options.
AGENT_CONF = 'diffcache-agent.conf'
_CONF = 'diffcache.conf'
_ANSWERS = 'answers.json'
_AUTHORITY = 'authority'
_PORT = 9192
_DAYS = 3650

Groups = dict[str, dict[str, str]]


class Machine(typing.NamedTuple):
    """A machine: its host name, and where others reach it."""

    name: str
    address: str


@dataclasses.dataclass(frozen=True)
class Deployment:
    """What an operator says of a deployment.

    :ivar keystone: URL of Keystone
    :ivar broker_password: of the user ``diffcache`` at the broker; all
        machines have it
    :ivar database_password: of the user in the database; only the controller
        has it
    :ivar keystone_password: of the user in Keystone, an administrator; no
        compute host has it
    """

    controller: Machine
    repository: Machine
    site: str
    keystone: str
    broker_password: str
    database_password: str
    keystone_password: str

    def check_host(self, machine: Machine) -> None:
        """Check that a machine may be a compute host.

        :raises InvalidInput: it is the controller or the repository
        """
        if machine.name in (self.controller.name, self.repository.name):
            raise exceptions.InvalidInput(
                f'{machine.name} is the controller or the repository; a'
                f' compute host is another machine.')

    @classmethod
    def new(cls, controller: Machine, repository: Machine, site: str,
            keystone: str) -> 'Deployment':
        """Return one with passwords of its own."""
        return cls(controller, repository, site, keystone,
                   *(secrets.token_hex(24) for _password in range(3)))


class Files:
    """The directory with the files of a deployment.

    What is there stays: compute hosts are added later. A folder appears when
    it is complete.

    :param directory: only its owner may read it
    """

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory

    def read(self) -> Deployment | None:
        """Return the deployment that the directory has files of.

        :raises InvalidInput: its answers cannot be read
        """
        path = self._directory / _ANSWERS
        if not path.exists():
            return None
        try:
            found = json.loads(keys.read_secret(path))
            return Deployment(**found | {
                name: Machine(*found[name])
                for name in ('controller', 'repository')})
        except (ValueError, TypeError, KeyError) as error:
            raise exceptions.InvalidInput(
                f'{path} is damaged: {error}; choose another directory.'
            ) from error

    def begin(self, deployment: Deployment) -> None:
        """Write what all machines share, and what the first two need.

        :raises Conflict: the directory exists, and is not empty
        """
        parent = self._directory.absolute().parent
        try:
            parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix='.', dir=parent) as part:
                made = pathlib.Path(part) / 'made'
                made.mkdir(mode=0o700)
                _begin(made, deployment)
                os.rename(made, self._directory)
        except OSError as error:
            raise exceptions.Conflict(
                f'{self._directory} cannot be created: {error.strerror};'
                f' choose another directory.') from error

    def add_host(self, deployment: Deployment, machine: Machine) -> bool:
        """Write what a compute host needs; return whether it is new.

        :raises InvalidInput: it is the controller or the repository
        """
        deployment.check_host(machine)
        folder = self._directory / machine.name
        if folder.exists():
            return False
        with tempfile.TemporaryDirectory(prefix='.',
                                         dir=self._directory) as part:
            made = pathlib.Path(part) / machine.name
            made.mkdir(mode=0o700)
            _agent(made, self._directory / _AUTHORITY, _Agent(
                machine, host_keys.COMPUTE, deployment, _COMPUTE))
            _write(made / 'nova.conf', _NOVA)
            os.rename(made, folder)
        return True


class _Agent(typing.NamedTuple):
    """An agent's machine, role and options besides those of all agents."""

    machine: Machine
    role: str
    deployment: Deployment
    options: Groups


def _begin(directory: pathlib.Path, deployment: Deployment) -> None:
    authority = directory / _AUTHORITY
    authority.mkdir(mode=0o700)
    host_keys.create_authority(authority / 'authority.key',
                               authority / 'authority.pem', _DAYS)
    agent_certificates.create_authority(authority / 'agents-ca.key',
                                        authority / 'agents-ca.pem')
    keys.create_key(authority / 'site.key')
    for machine in {deployment.controller, deployment.repository}:
        (directory / machine.name).mkdir(mode=0o700)
    _controller(directory / deployment.controller.name, authority, deployment)
    _agent(directory / deployment.repository.name, authority, _Agent(
        deployment.repository, host_keys.REPOSITORY, deployment,
        _repository(deployment)))
    _write(directory / 'services.sh', _services(deployment))
    _write(directory / _ANSWERS,
           json.dumps(dataclasses.asdict(deployment), indent=1))


def _controller(folder: pathlib.Path, authority: pathlib.Path,
                deployment: Deployment) -> None:
    host_keys.create_host_key(
        (authority / 'authority.key', authority / 'authority.pem'),
        host_keys.Subject(deployment.controller.name, host_keys.CONTROLLER),
        folder / 'controller.key', _DAYS)
    _share(authority, folder, 'authority.pem')
    _write(folder / _CONF, _ini(_common(deployment, 'controller.key') | {
        'database': {'connection': 'mysql+pymysql://diffcache:'
                     f'{deployment.database_password}@'
                     f'{deployment.controller.address}/diffcache'},
        'api': {'bind_host': deployment.controller.address},
        'nova': _login(deployment), 'cinder': _login(deployment),
        'keystone_authtoken': {
            **_login(deployment),
            'www_authenticate_uri': deployment.keystone}}))


def _agent(folder: pathlib.Path, authority: pathlib.Path, agent: _Agent
           ) -> None:
    machine, deployment = agent.machine, agent.deployment
    host_keys.create_host_key(
        (authority / 'authority.key', authority / 'authority.pem'),
        host_keys.Subject(machine.name, agent.role, deployment.site),
        folder / 'agent.key', _DAYS)
    agent_certificates.create_certificate(
        (authority / 'agents-ca.key', authority / 'agents-ca.pem'),
        tuple(dict.fromkeys(machine)), folder / 'agent-tls.key',
        folder / 'agent-tls.pem')
    for name in ('authority.pem', 'agents-ca.pem', 'site.key'):
        _share(authority, folder, name)
    groups = _common(deployment, 'agent.key') | agent.options | {
        'agent': {'host': machine.name, 'site': deployment.site,
                  **agent.options['agent']},
        'data_plane': {
            'key_file': _place('site.key'),
            'tls_ca_file': _place('agents-ca.pem'),
            'tls_cert_file': _place('agent-tls.pem'),
            'tls_key_file': _place('agent-tls.key'),
            'advertise_url': f'https://{machine.address}:{_PORT}'}}
    # A controller's file is there, which agents read first.
    name = AGENT_CONF if (folder / _CONF).exists() else _CONF
    _write(folder / name, _ini(groups))


def _share(authority: pathlib.Path, folder: pathlib.Path, name: str) -> None:
    """Copy a file that several machines have."""
    if not (folder / name).exists():
        keys.write_secret(folder / name, (authority / name).read_bytes())


def _write(path: pathlib.Path, text: str) -> None:
    keys.write_secret(path, text.encode())


def _place(name: str) -> str:
    return str(CONFIGURATION / name)


def _common(deployment: Deployment, key: str) -> Groups:
    return {
        'DEFAULT': {'transport_url': f'rabbit://diffcache:'
                    f'{deployment.broker_password}@'
                    f'{deployment.controller.address}:5672/'},
        'messaging': {'key_file': _place(key),
                      'authority_file': _place('authority.pem')}}


def _login(deployment: Deployment) -> dict[str, str]:
    return {'auth_type': 'password', 'auth_url': deployment.keystone,
            'username': 'diffcache',
            'password': deployment.keystone_password,
            'project_name': 'service', 'user_domain_name': 'Default',
            'project_domain_name': 'Default'}


def _repository(deployment: Deployment) -> Groups:
    return {'agent': {'role': 'repository'},
            'repository': {'image_source': 'glance'},
            'glance': _login(deployment)}


_COMPUTE: Groups = {'agent': {
    'cache_capacity': '50GB', 'socket_group': 'diffcache-nova',
    'output_directories': '/var/lib/nova/instances'},
    # The rate of the link is not among the questions.
    'fill': {'# Bytes per second that fills of the cache may take of the link;'
             ' without a limit:\n#max_rate': '2MB'}}
# What nova.conf of a compute host has besides.
_NOVA = '''[DEFAULT]
config_source = diffcache_hook
compute_driver = diffcache.LibvirtDriver

[diffcache_hook]
driver = diffcache

[diffcache]
socket = /var/lib/diffcache/agent.sock
'''


def _services(deployment: Deployment) -> str:
    """Return commands that create the users, the database and the API."""
    api = deployment.controller.address
    conf = f'{deployment.controller.name}/{_CONF}'
    return f'''#!/bin/sh
# Run on the controller, as root, with an administrator's OS_ variables. It can
# be run again, such as after it failed.
set -eu
here=$(dirname "$0")
broker_password={deployment.broker_password}
database_password={deployment.database_password}
keystone_password={deployment.keystone_password}
# MariaDB no longer has the name of MySQL's client everywhere.
"$(command -v mariadb || command -v mysql)" <<SQL
CREATE DATABASE IF NOT EXISTS diffcache CHARACTER SET utf8mb4;
CREATE USER IF NOT EXISTS diffcache IDENTIFIED BY '$database_password';
ALTER USER diffcache IDENTIFIED BY '$database_password';
GRANT ALL ON diffcache.* TO diffcache;
SQL
rabbitmqctl add_user diffcache "$broker_password" ||
    rabbitmqctl change_password diffcache "$broker_password"
rabbitmqctl set_permissions diffcache '.*' '.*' '.*'
openstack user create --or-show --password="$keystone_password" diffcache
openstack user set --password="$keystone_password" diffcache
openstack role add --project service --user diffcache admin
openstack service show diffcache >/dev/null 2>&1 ||
    openstack service create --name diffcache diffcache
region=${{OS_REGION_NAME:-RegionOne}}
endpoints=$(openstack endpoint list --service diffcache --region "$region" \\
    --interface public -f value -c ID)
test -n "$endpoints" || openstack endpoint create --region "$region" \\
    diffcache public http://{api}:8796
diffcache-manage --config-file "$here/{conf}" db sync
'''


def _ini(groups: collections.abc.Mapping[str, dict[str, str]]) -> str:
    return '\n'.join(
        f'[{group}]\n' + ''.join(f'{name} = {value}\n'
                                 for name, value in options.items())
        for group, options in groups.items())
