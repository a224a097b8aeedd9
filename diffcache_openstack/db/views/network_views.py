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
"""Links, fills and repositories of a host as it reported them."""

import typing

from sqlalchemy import orm

from diffcache_openstack.common import time_windows
from diffcache_openstack.db import listing
from diffcache_openstack.db.sites import networks
from diffcache_openstack import objects

_STANDING = ('answers', 'since', 'reason', 'mbps', 'transfers', 'failures',
             'bytes')


def show(session: orm.Session, host: str) -> dict[str, typing.Any]:
    """Return what a host reported, and what others did of it.

    :returns: fill, measured, repositories and clients
    """
    found = networks.of_host(session, host)
    return {
        'fill': found and _fill(found), 'measured': found and _rates(found),
        'repositories': [{'name': each.name, **_standing(each)}
                         for each in found.repositories] if found else [],
        'clients': [{'host': name, **_standing(each)} for name, each
                    in networks.clients_of(session, host).items()]}


def _fill(network: objects.HostNetwork) -> dict[str, typing.Any]:
    opened = time_windows.Windows(network.fill_windows)
    return {'max_rate': network.fill_rate, 'windows': network.fill_windows,
            'seconds_per_day': opened.seconds_per_day()}


def _rates(network: objects.HostNetwork) -> dict[str, float | None]:
    rates = [each.mbps for each in network.repositories
             if each.mbps is not None]
    return {'peer': network.peer_mbps, 'repo': max(rates, default=None)}


def _standing(seen: objects.RepositoryStanding) -> dict[str, typing.Any]:
    return listing.plain({name: getattr(seen, name) for name in _STANDING})
