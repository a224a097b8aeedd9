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
"""Swift with one replica: the object store in which Glance keeps images.

The lightest real store that works over a network: it comes with the rest from
PyPI, and Glance's driver for it lets a site reach the same objects by another
address, which is that of the WAN.
"""

import pathlib

from onemachine import layout
from onemachine import place
from onemachine import processes
from onemachine.services import common
from onemachine import shell

_PARTS = ('account', 'container', 'object')


class Swift:
    """The object store of the centre."""

    def __init__(self, given: place.Place) -> None:
        self._given = given
        self._where = given.where
        self._etc = given.where.etc / 'swift'

    def configure(self) -> None:
        """Write the configurations."""
        shell.write(self._etc / 'swift.conf', shell.ini({
            'swift-hash': {'swift_hash_path_suffix': 'onemachine',
                           'swift_hash_path_prefix': 'onemachine'},
            'storage-policy:0': {'name': 'gold', 'default': 'yes'},
        }))
        self._where.folder('data/swift/d1')
        for part in _PARTS:
            self._configure_part(part)
        self._configure_proxy()

    def _default(self, name: str, port: str) -> common.Groups:
        return {'DEFAULT': {
            'bind_ip': self._where.centre,
            'bind_port': layout.PORTS[port],
            'workers': 0,
            'swift_dir': self._etc,
            'devices': self._where.data / 'swift',
            'mount_check': False,
            'disable_fallocate': True,
            'fallocate_reserve': 0,
            'user': 'root',
            'log_name': name,
            'log_level': 'WARNING',
            'log_address': '/nonexistent',
            'log_udp_host': '127.0.0.1',
            'client_timeout': 600,
        }}

    def _configure_part(self, part: str) -> None:
        common.write(
            self._where, f'swift/{part}-server.conf',
            self._default(part, f'swift-{part}'),
            {'pipeline:main': {'pipeline': f'{part}-server'},
             f'app:{part}-server': {'use': f'egg:swift#{part}'}})

    def _ensure_ring(self, part: str) -> None:
        if (self._etc / f'{part}.ring.gz').exists():
            return
        builder = self._etc / f'{part}.builder'
        port = layout.PORTS[f'swift-{part}']
        program = self._where.program('swift-ring-builder')
        pathlib.Path(builder).unlink(missing_ok=True)
        shell.run(program, builder, 'create', 4, 1, 1)
        shell.run(program, builder, 'add',
                  f'r1z1-{self._where.centre}:{port}/d1', 100)
        shell.run(program, builder, 'rebalance')

    def _configure_proxy(self) -> None:
        where = self._where
        authtoken = common.authtoken(where, 'glance')['keystone_authtoken']
        common.write(
            where, 'swift/proxy-server.conf',
            self._default('proxy', 'swift-proxy'),
            {
                # The namespace has the address of the WAN, too.
                'DEFAULT': {'bind_ip': '0.0.0.0'},
                'pipeline:main': {
                    'pipeline': 'catch_errors healthcheck cache authtoken'
                                ' keystoneauth dlo proxy-server'},
                'app:proxy-server': {
                    'use': 'egg:swift#proxy',
                    'account_autocreate': True,
                    'node_timeout': 60,
                },
                'filter:catch_errors': {'use': 'egg:swift#catch_errors'},
                'filter:healthcheck': {'use': 'egg:swift#healthcheck'},
                'filter:dlo': {'use': 'egg:swift#dlo'},
                'filter:cache': {
                    'use': 'egg:swift#memcache',
                    'memcache_servers':
                        f'{where.centre}:{layout.PORTS["memcached"]}'},
                'filter:authtoken': {
                    'paste.filter_factory':
                        'keystonemiddleware.auth_token:filter_factory',
                    'delay_auth_decision': True,
                    **{key: value for key, value in authtoken.items()
                       if not key.startswith('service_token')},
                },
                'filter:keystoneauth': {
                    'use': 'egg:swift#keystoneauth',
                    'operator_roles': 'admin, service'},
            })

    def ensure(self) -> bool:
        """Start the servers, the first time with new rings."""
        for part in _PARTS:
            self._ensure_ring(part)
        started = False
        for part in (*_PARTS, 'proxy'):
            port = layout.PORTS[f'swift-{part}']
            started |= self._given.processes.ensure(processes.Daemon(
                name=f'swift-{part}', place='centre',
                inputs=(self._etc / f'{part}-server.conf',),
                command=(self._where.program(f'swift-{part}-server'),
                         self._etc / f'{part}-server.conf', '-v'),
                ready=lambda port=port: processes.listens(
                    self._where.centre, port)))
        return started
