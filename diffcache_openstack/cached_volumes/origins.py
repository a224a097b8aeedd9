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
"""Names of volumes' origins.

An absolute path; ``nbd://`` or ``nbd+unix://``; or ``json:`` with QEMU's
options of a block device, which qemu-storage-daemon opens.
"""

import collections.abc
import json
import os
import re
import typing

# Begins an entry of the allowed origins that is a pool of Ceph, not a
# directory.
POOL = 'rbd:'
JSON = 'json:'

# No path of a configuration is among them: libraries of Ceph write to files
# that it names.
_RBD_FIELDS = {'driver', 'pool', 'image', 'user', 'server'}
_NAME = re.compile(r'[A-Za-z0-9_.][A-Za-z0-9_.-]*')


def rbd(name: str, user: str | None,
        monitors: collections.abc.Iterable[tuple[str, str]]) -> str:
    """Return the origin that is an image of Ceph RBD.

    :param name: ``POOL/IMAGE``
    :param user: of Ceph, whose keyring is in /etc/ceph; none if Ceph does not
        authenticate
    :param monitors: hosts and ports; without any, those of ceph.conf
    """
    pool, _, image = name.partition('/')
    options: dict[str, typing.Any] = {
        'driver': 'rbd', 'pool': pool, 'image': image}
    if user is not None:
        options['user'] = user
    servers = [{'host': host.strip('[]'), 'port': str(port)}
               for host, port in monitors]
    if servers:
        options['server'] = servers
    return JSON + json.dumps(options, separators=(',', ':'))


def is_allowed(origin: str, allowed: collections.abc.Iterable[str]) -> bool:
    """Return whether an origin is in a directory or a pool.

    :param allowed: directories, and pools as ``rbd:POOL``
    """
    if origin.startswith(JSON):
        return _pool(origin.removeprefix(JSON)) in {
            each.removeprefix(POOL) for each in allowed
            if each.startswith(POOL)}
    return os.path.normpath(origin) == origin and any(
        origin.startswith(directory.rstrip('/') + '/')
        for directory in allowed if not directory.startswith(POOL))


def _pool(text: str) -> str | None:
    """Return the pool of an image of RBD, if this is nothing else."""
    try:
        options = json.loads(text)
    except ValueError:
        return None
    if not isinstance(options, dict) or not set(options) <= _RBD_FIELDS \
            or options.get('driver') != 'rbd':
        return None
    names = [options.get('pool'), options.get('image'),
             options.get('user', 'admin')]
    if not all(isinstance(name, str) and _NAME.fullmatch(name)
               for name in names):
        return None
    return options['pool'] if _are_servers(options.get('server', [])) else None


def _are_servers(servers: typing.Any) -> bool:
    return isinstance(servers, list) and all(
        isinstance(server, dict) and set(server) == {'host', 'port'}
        and all(isinstance(value, str) for value in server.values())
        for server in servers)
