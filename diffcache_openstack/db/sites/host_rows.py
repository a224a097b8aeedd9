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
"""Hosts of sites.

Every change to what a site's map shows raises the map's generation in the
same transaction, and is reported to the caller as the set of sites whose
agents should be notified.
"""

import collections.abc
import datetime
import typing

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.common import exceptions
from diffcache_openstack.db import models
from diffcache_openstack.db.sites import generations
from diffcache_openstack.db.versions import tasks
from diffcache_openstack import objects
from diffcache_openstack.objects import site as site_objects
from diffcache_openstack.objects import versioned

# What a map shows of a host beside its holdings.
_SHOWN = ('site', 'role', 'url', 'capacity', 'alive')
# In the order of Numbers.
_NUMBERS = (
    models.Site.map_generation.label('site_map'),
    models.Site.plan_generation.label('site_plan'),
    sa.select(sa.func.coalesce(sa.func.max(models.RevokedKey.number), 0))
    .scalar_subquery().label('revoked'))


def put_host(session: orm.Session, host: objects.Host,
             when: datetime.datetime) -> tuple[objects.Host, set[str]]:
    """Register a host or renew its registration; it is alive from now on.

    :returns: the host as it is known, and the sites whose map changed
    """
    generations.ensure_site(session, host.site, when)
    row = _find_host(session, host.name)
    before = _shown(row)
    if row is None:
        row = models.Host(name=host.name)
        session.add(row)
    row.site, row.role, row.url = host.site, host.role, host.url
    row.capacity, row.alive, row.seen_at = host.capacity, True, when
    row.plan_generation = host.plan_generation
    session.flush()
    changed = set()
    if _shown(row) != before:
        changed = generations.affected(session, row.site, row.role)
        changes = [generations.Change(generations.HOST, row.name)]
        if before is not None:
            changed |= generations.affected(session, before[0], before[1])
            if before[:2] != _shown(row)[:2]:
                changes.append(
                    generations.Change(generations.HOLDINGS, row.name))
        generations.raise_generation(session, changed, changes)
    return to_host(row), changed


class Numbers(typing.NamedTuple):
    """What a host compares with what it has.

    :ivar revoked: of the list of revoked keys
    """

    map_generation: int
    plan_generation: int
    revoked: int


def numbers_of(session: orm.Session, site: str) -> Numbers:
    """Return the numbers that hosts of a site are answered."""
    return Numbers(*session.execute(
        sa.select(*_NUMBERS).where(models.Site.name == site)).one())


def renew_hosts(session: orm.Session,
                hosts: collections.abc.Sequence[objects.Host],
                when: datetime.datetime) -> dict[str, Numbers]:
    """Note heartbeats of those hosts that are as they are known.

    :returns: numbers by name; those that are left out have to be put
    """
    table = models.Host
    found = {row.name: row for row in session.execute(
        sa.select(table.id, table.name, table.plan_generation,
                  *(getattr(table, field) for field in _SHOWN), *_NUMBERS)
        .join(models.Site, models.Site.name == table.site)
        .where(table.name.in_({host.name for host in hosts})))}
    others = {host.name for host in hosts
              if host.name not in found
              or not _is_same(host, found[host.name])}
    same = {name: row for name, row in found.items() if name not in others}
    if not same:
        return {}
    renewed = session.execute(
        sa.update(table).where(
            table.id.in_(sorted(row.id for row in same.values())),
            table.alive)
        .values(seen_at=when)
        .execution_options(synchronize_session=False)).rowcount
    if renewed != len(same):
        # One was declared dead, or removed, meanwhile.
        return {}
    return {name: Numbers(*row[-len(Numbers._fields):])
            for name, row in same.items()}


def _is_same(host, row):
    return row.alive and host.plan_generation == row.plan_generation and all(
        getattr(host, field) == getattr(row, field)
        for field in _SHOWN if field != 'alive')


def lock_host(session: orm.Session, name: str) -> int:
    """Return the ID of a host's row, which is locked until the session ends.

    So two reports of a host do not mix.

    :raises NotFound: the host is not registered
    """
    host_id = session.scalar(sa.select(models.Host.id).where(
        models.Host.name == name).with_for_update())
    if host_id is None:
        raise unknown_host(name)
    return host_id


def locked_host(session, name):
    """Return a host's row, locked as :func:`lock_host` does."""
    row = session.scalar(sa.select(models.Host).where(
        models.Host.name == name).with_for_update())
    if row is None:
        raise unknown_host(name)
    return row


def any_silent(session: orm.Session, before: datetime.datetime) -> bool:
    """Return whether a host counts as alive and was not heard of since."""
    return session.scalar(sa.select(models.Host.id).where(
        models.Host.alive, models.Host.seen_at < before).limit(1)) is not None


def expire_hosts(session: orm.Session, before: datetime.datetime
                 ) -> tuple[list[str], set[str]]:
    """Declare hosts dead that sent no heartbeat since an instant.

    :returns: their names, and the sites whose map changed
    """
    silent = session.scalars(sa.select(models.Host).where(
        models.Host.alive, models.Host.seen_at < before)).all()
    changed = set()
    for row in silent:
        row.alive = False
        changed |= generations.affected(session, row.site, row.role)
    session.flush()
    generations.raise_generation(
        session, changed, [generations.Change(generations.HOST, row.name)
                           for row in silent])
    return [row.name for row in silent], changed


def remove_host(session: orm.Session, name: str) -> set[str]:
    """Delete a host and its objects, but not its history; end its tasks.

    :returns: the sites whose map changed
    :raises NotFound: the host is not registered
    """
    row = need_host(session, name)
    changed = generations.affected(session, row.site, row.role)
    tasks.end_of_host(session, name, versioned.now())
    for table in (models.Holding, models.Borrowed):
        session.execute(sa.delete(table).where(table.host_id == row.id))
    session.delete(row)
    session.flush()
    generations.raise_generation(session, changed,
                                 [generations.Change(generations.HOST, name)])
    return changed


def remove_dead_host(session: orm.Session, name: str) -> set[str]:
    """Delete a host that is not alive.

    :returns: the sites whose map changed
    :raises NotFound: the host is not registered
    :raises Conflict: it is alive, and would be back with its next report
    """
    row = need_host(session, name)
    if row.alive:
        raise exceptions.Conflict(
            f'Host {name} is alive, it was last heard of at'
            f' {row.seen_at.isoformat(timespec="seconds")}, and would be back'
            f' with its next report; stop its diffcache-agent, and delete it'
            f' when it counts as dead, [conductor] host_timeout later.')
    return remove_host(session, name)


def need_live_host(session: orm.Session, name: str) -> None:
    """Refuse a host that would not answer.

    :raises NotFound: the host is not registered
    :raises ServiceUnavailable: it does not report
    """
    row = need_host(session, name)
    if not row.alive:
        raise exceptions.ServiceUnavailable(
            f'Host {name} was last heard of at'
            f' {row.seen_at.isoformat(timespec="seconds")}; start its'
            f' diffcache-agent, or see why it does not reach the message'
            f' broker.')


def host_id(session: orm.Session, name: str) -> int:
    """Return the number of a host's row.

    :raises NotFound: the host is not registered
    """
    return need_host(session, name).id


def list_hosts(session: orm.Session, site: str | None = None
               ) -> list[objects.Host]:
    """List hosts by name, of one site or of all, without their objects."""
    query = sa.select(models.Host).order_by(models.Host.name)
    if site is not None:
        query = query.where(models.Host.site == site)
    return [to_host(row) for row in session.scalars(query)]


def by_site(session: orm.Session, names: collections.abc.Collection[str]
            ) -> dict[str, list[str]]:
    """Return those of some hosts that are registered, by site."""
    found: dict[str, list[str]] = {}
    for name, site in session.execute(
            sa.select(models.Host.name, models.Host.site)
            .where(models.Host.name.in_(names)).order_by(models.Host.name)):
        found.setdefault(site, []).append(name)
    return found


def hosts_of_map(session: orm.Session, site: str, names: set[str]
                 ) -> list[tuple[int, objects.Host]]:
    """Return those of some hosts that a site's map has, without objects.

    :returns: with the number of their row, by name
    """
    rows = session.scalars(
        sa.select(models.Host).where(
            models.Host.name.in_(names),
            sa.or_(models.Host.site == site,
                   models.Host.role == site_objects.REPOSITORY))
        .order_by(models.Host.name))
    return [(row.id, to_host(row)) for row in rows]


def hosts_on_map(session: orm.Session, site: str) -> list[str]:
    """List the living hosts of a site and all living repositories."""
    return list(session.scalars(
        sa.select(models.Host.name).where(models.Host.alive, sa.or_(
            models.Host.site == site,
            models.Host.role == site_objects.REPOSITORY,
        )).order_by(models.Host.name)))


def rows_of_map(session, site):
    query = sa.select(models.Host).order_by(models.Host.name)
    if site is not None:
        query = query.where(sa.or_(
            models.Host.site == site,
            models.Host.role == site_objects.REPOSITORY))
    return session.scalars(query).all()


def raise_generation_of(session: orm.Session, host: str) -> set[str]:
    """Mark the map of a host's site as changed, and name the site.

    :raises NotFound: the host is not registered
    """
    changed = {need_host(session, host).site}
    generations.raise_generation(session, changed)
    return changed


def unknown_host(name: str) -> exceptions.NotFound:
    """Return the error for a host that does not exist."""
    return exceptions.NotFound(
        f'Host {name} is not registered; start its diffcache-agent, or see'
        f' "openstack image cache host list" for the hosts there are.')


def _find_host(session, name):
    return session.scalar(sa.select(models.Host).where(
        models.Host.name == name))


def need_host(session, name):
    row = _find_host(session, name)
    if row is None:
        raise unknown_host(name)
    return row


def _shown(row):
    return row and tuple(getattr(row, field) for field in _SHOWN)


def to_host(row):
    return objects.Host(
        name=row.name, site=row.site, role=row.role, url=row.url,
        capacity=row.capacity, alive=row.alive,
        plan_generation=row.plan_generation, seen_at=row.seen_at)
