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
"""SSD caches of hosts and the volumes in them, as agents report them."""

import collections.abc
import json
import typing

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.common import exceptions
from diffcache_openstack.db import listing
from diffcache_openstack.db import models
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from diffcache_openstack.objects import volume_cache
from diffcache_openstack.objects import volume_specs
from diffcache_openstack.ssdcache import room


class VolumeOwner(typing.NamedTuple):
    """The server that a volume is attached to, and its project."""

    server_id: str | None = None
    project_id: str | None = None


class VolumePlace(typing.NamedTuple):
    """Where a volume was reported last, and the server that it is attached to.

    :ivar server_id: None if it is not known
    """

    host: str
    server_id: str | None


class CacheDemand(typing.NamedTuple):
    """Blocks of a host's SSD cache, and of the working sets in it."""

    capacity: int
    working_sets: int


_NOBODY = VolumeOwner()
# Of a row; all else of a volume is in its document.
_COLUMNS = ('id', 'server_id', 'project_id', 'mode')


def put_cache(session: orm.Session, host: str, cache: objects.SsdCache
              ) -> None:
    """Replace what is known of a host's SSD cache.

    :raises NotFound: the host is not registered
    """
    table = models.SsdCache
    host_id = host_rows.lock_host(session, host)
    session.execute(sa.delete(table).where(table.host_id == host_id)
                    .execution_options(synchronize_session=False))
    session.execute(sa.insert(table), [{
        'host_id': host_id, 'state': cache.state, 'capacity': cache.capacity,
        'policy': cache.policy, 'epoch': cache.epoch,
        'updated_at': versioned.now(),
        'decisions': json.dumps([{
            'time': listing.instant(each.time), 'policy': each.policy,
            'changed': each.changed, 'explain': each.explain}
            for each in cache.decisions])}])


def owners(session: orm.Session, host: str) -> dict[str, VolumeOwner]:
    """Return the volumes of a host whose servers are known."""
    table = models.VolumeCache
    rows = session.execute(
        sa.select(table.id, table.server_id, table.project_id)
        .join(models.Host, models.Host.id == table.host_id)
        .where(models.Host.name == host, table.project_id.is_not(None)))
    return {volume: VolumeOwner(server, project)
            for volume, server, project in rows}


def put_volumes(session: orm.Session, host: str,
                volumes: collections.abc.Iterable[objects.VolumeCache],
                found: collections.abc.Mapping[str, VolumeOwner]) -> None:
    """Replace the volumes in a host's SSD cache.

    A volume has one row. While a server migrates, two hosts report it: the
    row is that of the host where Nova says that the server is.

    :param found: servers of this host, by the volumes attached to them
    :raises NotFound: the host is not registered
    """
    table = models.VolumeCache
    host_id = host_rows.lock_host(session, host)
    reported = {each.id: each for each in volumes}
    session.execute(
        sa.delete(table).where(sa.or_(
            table.host_id == host_id,
            table.id.in_(set(reported) & set(found))))
        .execution_options(synchronize_session=False))
    elsewhere = set(session.scalars(
        sa.select(table.id).where(table.id.in_(reported))))
    rows = [_row(host_id, each, found.get(each.id, _NOBODY))
            for each in reported.values() if each.id not in elsewhere]
    if rows:
        session.execute(sa.insert(table), rows)


def left_behind(session: orm.Session, host: str,
                volumes: collections.abc.Iterable[str]) -> dict[str, str]:
    """Return volumes that another host had in write-back, and is dead.

    :param host: that has them now
    :returns: names of those hosts, by volume
    """
    table = models.VolumeCache
    rows = session.execute(
        sa.select(table.id, models.Host.name)
        .join(models.Host, models.Host.id == table.host_id)
        .where(table.id.in_(volumes), models.Host.name != host,
               models.Host.alive.is_(False),
               table.mode == volume_specs.WRITE_BACK))
    return {volume: other for volume, other in rows}


def place_of(session: orm.Session, volume_id: str) -> VolumePlace:
    """Return in whose SSD cache a volume was reported last.

    :raises NotFound: it is in none
    """
    table = models.VolumeCache
    found = session.execute(
        sa.select(models.Host.name, table.server_id)
        .join(table, table.host_id == models.Host.id)
        .where(table.id == volume_id)).one_or_none()
    if found is None:
        raise unknown_volume(volume_id)
    return VolumePlace(*found)


def update_volume(session: orm.Session, host: str,
                  volume: objects.VolumeCache) -> None:
    """Note what a volume is after a change, unless it is gone.

    :param host: that has it now
    :raises NotFound: the host is not registered
    """
    host_id = host_rows.lock_host(session, host)
    row = _row(host_id, volume, _NOBODY)
    session.execute(
        sa.update(models.VolumeCache)
        .where(models.VolumeCache.id == volume.id)
        .values({name: row[name] for name in (
            'host_id', 'mode', 'document', 'curve', 'working_set',
            'updated_at')})
        .execution_options(synchronize_session=False))


def working_set_of(session: orm.Session, server_id: str) -> int:
    """Return the blocks of the working sets of a server's volumes."""
    table = models.VolumeCache
    return int(session.scalar(
        sa.select(sa.func.coalesce(sa.func.sum(table.working_set), 0))
        .where(table.server_id == server_id)))


def demands(session: orm.Session, server_id: str) -> dict[str, CacheDemand]:
    """Return the SSD caches that work, by the names of their hosts.

    :param server_id: a server whose volumes do not count
    """
    cache, volume = models.SsdCache, models.VolumeCache
    # Of a volume of no known server, the comparison is unknown: it counts.
    others = sa.case((volume.server_id == server_id, 0),
                     else_=volume.working_set)
    rows = session.execute(
        sa.select(models.Host.name, cache.capacity,
                  sa.func.coalesce(sa.func.sum(others), 0))
        .join(cache, cache.host_id == models.Host.id)
        .outerjoin(volume, volume.host_id == models.Host.id)
        .where(models.Host.alive, cache.state == volume_cache.OK)
        .group_by(models.Host.name, cache.capacity))
    return {host: CacheDemand(capacity, int(wanted))
            for host, capacity, wanted in rows}


def unknown_volume(volume_id: str) -> exceptions.NotFound:
    """Return the error for a volume that is in no SSD cache."""
    return exceptions.NotFound(
        f'Volume {volume_id} is in no SSD cache; see "openstack volume cache'
        f' list".')


def _row(host_id: int, volume: objects.VolumeCache, owner: VolumeOwner
         ) -> dict[str, typing.Any]:
    document = {name: getattr(volume, name)
                for name in objects.VolumeCache.fields
                if name not in (*_COLUMNS, 'curve')}
    curve = volume.curve and {
        name: getattr(volume.curve, name)
        for name in objects.VolumeCurve.fields}
    return {'id': volume.id, 'host_id': host_id, 'mode': volume.mode,
            'document': json.dumps(document), **owner._asdict(),
            'curve': curve and json.dumps(curve),
            'updated_at': versioned.now(),
            'working_set': _working_set(volume)}


def _working_set(volume: objects.VolumeCache) -> int:
    if volume.mode == volume_specs.PASS_THROUGH:
        return 0
    curve = volume.curve
    # Without a curve, what was cached until now is all that is known.
    found = volume.blocks if curve is None else room.working_set(
        curve.sizes, curve.hits)
    if volume.max is not None:
        found = min(found, volume.max)
    return max(found, volume.min)
