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
"""Where everything is: folders, addresses, ports and passwords.

All of it follows from the state folder and the number of compute hosts, so
that a second command finds what the first one made.
"""

import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import secrets

from onemachine import releases

CHECKOUT = pathlib.Path(__file__).resolve().parents[3]

# Ports of the centre, on its address in the management network.
PORTS = {
    'mariadb': 3306,
    'rabbitmq': 5672,
    'epmd': 4369,
    'rabbitmq-distribution': 25672,
    'memcached': 11211,
    'keystone': 5000,
    'swift-proxy': 8080,
    'swift-object': 6200,
    'swift-container': 6201,
    'swift-account': 6202,
    'glance': 9292,
    'placement': 8778,
    'nova': 8774,
    'cinder': 8776,
    'neutron': 9696,
    'diffcache': 8796,
    'data-plane': 9192,
    'horizon': 8081,
}

# A third octet for each network of one OpenStack, four for each state folder.
_NETWORKS = ('management', 'wan', 'lan')
_FIRST_OCTET = 32
_STRIDE = 4
_OPENSTACKS = 48

SERVICE_USERS = ('glance', 'placement', 'nova', 'neutron', 'diffcache')
# With volumes only.
VOLUME_USER = 'cinder'


@dataclasses.dataclass(frozen=True)
class Layout:
    """One OpenStack.

    :ivar state: folder for all of it; absolute
    :ivar computes: number of compute hosts of the site
    :ivar volumes: whether it has Cinder
    :ivar dashboard: whether it has Horizon
    :ivar series: of its services
    """

    state: pathlib.Path
    computes: int = 1
    volumes: bool = False
    dashboard: bool = False
    series: releases.Series = releases.ALL[releases.LATEST]

    @functools.cached_property
    def number(self) -> int:
        """A number for the networks of this OpenStack on the machine."""
        digest = hashlib.sha256(str(self.state).encode()).digest()
        return int.from_bytes(digest[:4], 'big') % _OPENSTACKS

    @property
    def prefix(self) -> str:
        """Start of the names of interfaces and network namespaces."""
        return f'dc{self.number:02d}'

    def network(self, name: str) -> str:
        """Return the first three octets of a network."""
        octet = (_FIRST_OCTET + _STRIDE * self.number
                 + _NETWORKS.index(name))
        return f'172.29.{octet}'

    @property
    def centre(self) -> str:
        """Address of the centre in the management network."""
        return f'{self.network("management")}.1'

    @property
    def site(self) -> str:
        """Address of the site's own Glance in the management network."""
        return f'{self.network("management")}.2'

    @property
    def machine(self) -> str:
        """Address of the machine itself in the management network."""
        return f'{self.network("management")}.254'

    @property
    def wan_centre(self) -> str:
        """Address of the centre's end of the WAN."""
        return f'{self.network("wan")}.1'

    @property
    def wan_site(self) -> str:
        """Address of the site's end of the WAN."""
        return f'{self.network("wan")}.2'

    @property
    def lan_site(self) -> str:
        """Address of the site's router and Glance in the site's network."""
        return f'{self.network("lan")}.1'

    def management(self, host: str) -> str:
        """Return a compute host's address in the management network."""
        return f'{self.network("management")}.{10 + self.host_number(host)}'

    def lan(self, host: str) -> str:
        """Return the address of a compute host in the site's network."""
        return f'{self.network("lan")}.{10 + self.host_number(host)}'

    @property
    def hosts(self) -> list[str]:
        """Names of the compute hosts."""
        return [f'compute-{number}'
                for number in range(1, self.computes + 1)]

    @staticmethod
    def host_number(host: str) -> int:
        """Return the number in a compute host's name."""
        return int(host.rpartition('-')[2])

    def namespace(self, place: str) -> str:
        """Network namespace of ``centre``, ``site`` or a compute host."""
        return f'{self.prefix}-{place}'

    @property
    def venv(self) -> pathlib.Path:
        """The Python environment of OpenStack's services."""
        return self.state / f'openstack-{self.series.name}'

    @property
    def suite_venv(self) -> pathlib.Path:
        """The Python environment of the suite's services and of trials."""
        return self.state / 'venv'

    def program(self, name: str) -> str:
        """Return a console script of OpenStack."""
        return str(self.venv / 'bin' / name)

    def suite_program(self, name: str) -> str:
        """Return a console script of the suite."""
        return str(self.suite_venv / 'bin' / name)

    @property
    def etc(self) -> pathlib.Path:
        return self.state / 'etc'

    @property
    def log(self) -> pathlib.Path:
        return self.state / 'log'

    @property
    def run(self) -> pathlib.Path:
        return self.state / 'run'

    @property
    def data(self) -> pathlib.Path:
        return self.state / 'data'

    @property
    def cache(self) -> pathlib.Path:
        """What a purge leaves, because it can be used again."""
        return self.state / 'cache'

    @property
    def host(self) -> pathlib.Path:
        """Where each compute host sees its own disk."""
        return self.state / 'host'

    def folder(self, *parts: str) -> pathlib.Path:
        """Return a folder below the state folder, made if it is missing."""
        path = self.state.joinpath(*parts)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def url(self, service: str) -> str:
        """Return where a service of the centre answers."""
        return f'http://{self.centre}:{PORTS[service]}'

    @functools.cached_property
    def _passwords(self) -> dict[str, str]:
        path = self.folder('cache') / 'passwords.json'
        known = json.loads(path.read_text()) if path.exists() else {}
        missing = {'admin', 'database', 'broker', 'swift', 'dashboard',
                   'traces', *SERVICE_USERS, VOLUME_USER}.difference(known)
        if missing:
            known |= {name: secrets.token_hex(12)
                      for name in sorted(missing)}
            new = path.with_suffix('.new')
            new.touch(mode=0o600)
            new.write_text(json.dumps(known))
            os.rename(new, path)
        return known

    def password(self, name: str) -> str:
        """Return the password of a user, the same over restarts."""
        return self._passwords[name]

    def database(self, name: str) -> str:
        """URL of a database for oslo.db."""
        return (f'mysql+pymysql://{name}:{self.password("database")}'
                f'@{self.centre}:{PORTS["mariadb"]}/{name}?charset=utf8mb4')

    @property
    def transport(self) -> str:
        """URL of the broker for oslo.messaging."""
        return (f'rabbit://openstack:{self.password("broker")}'
                f'@{self.centre}:{PORTS["rabbitmq"]}/')
