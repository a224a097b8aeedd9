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
"""What hosts report of their links, of repositories and of their fills."""

import json

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.common import time_windows
from diffcache_openstack.db import models
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack import objects

_STANDING = tuple(objects.RepositoryStanding.fields)


def put(session: orm.Session, host: str, network: objects.HostNetwork
        ) -> bool:
    """Replace what a host reported.

    :returns: whether a measured rate is another than before
    :raises NotFound: the host is not registered
    :raises InvalidInput: a window cannot be parsed
    """
    time_windows.Windows(network.fill_windows)
    host_id = host_rows.lock_host(session, host)
    before = _rates(of_host(session, host))
    for table in (models.HostNetwork, models.RepositoryStanding):
        session.execute(sa.delete(table).where(table.host_id == host_id)
                        .execution_options(synchronize_session=False))
    session.execute(sa.insert(models.HostNetwork), [{
        'host_id': host_id, 'fill_rate': network.fill_rate,
        'fill_windows': json.dumps(network.fill_windows),
        'peer_mbps': network.peer_mbps}])
    rows = [{'host_id': host_id,
             **{name: getattr(each, name) for name in _STANDING}}
            for each in {each.name: each
                         for each in network.repositories}.values()]
    if rows:
        session.execute(sa.insert(models.RepositoryStanding), rows)
    return _rates(network) != before


def of_site(session: orm.Session, site: str
            ) -> dict[str, objects.HostNetwork]:
    """Return by host what those of a site reported."""
    return _of_hosts(session, models.Host.site == site)


def of_host(session: orm.Session, name: str) -> objects.HostNetwork | None:
    """Return what a host reported; None if it did not yet."""
    return _of_hosts(session, models.Host.name == name).get(name)


def clients_of(session: orm.Session, repository: str
               ) -> dict[str, objects.RepositoryStanding]:
    """Return by host how those that read from a repository see it."""
    table = models.RepositoryStanding
    rows = session.execute(
        sa.select(models.Host.name, table)
        .join(table, table.host_id == models.Host.id)
        .where(table.name == repository).order_by(models.Host.name))
    return {name: _standing(row) for name, row in rows}


def _of_hosts(session, condition):
    host, network = models.Host, models.HostNetwork
    standing = models.RepositoryStanding
    found: dict[str, objects.HostNetwork] = {}
    for name, row, seen in session.execute(
            sa.select(host.name, network, standing)
            .join(network, network.host_id == host.id)
            .outerjoin(standing, standing.host_id == host.id)
            .where(condition).order_by(standing.name)):
        if name not in found:
            found[name] = objects.HostNetwork(
                fill_rate=row.fill_rate, peer_mbps=row.peer_mbps,
                fill_windows=json.loads(row.fill_windows), repositories=[])
        if seen is not None:
            found[name].repositories.append(_standing(seen))
    return found


def _standing(row):
    return objects.RepositoryStanding(**{
        name: getattr(row, name) for name in _STANDING})


def _rates(network):
    if network is None:
        return None, {}
    return network.peer_mbps, {each.name: each.mbps
                               for each in network.repositories}
