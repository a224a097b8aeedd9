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
"""Sites, their hosts and what those hold.

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
from diffcache_openstack.db.versions import tasks
from diffcache_openstack import objects
from diffcache_openstack.objects import base
from diffcache_openstack.objects import site as site_objects

# What a map shows of a host beside its holdings.
_SHOWN = ('site', 'role', 'url', 'capacity', 'alive')
# Holdings of a host that are noted one by one; of more, that all changed.
_NOTED_HOLDINGS = 1000
# Rows per statement, below the limits on parameters of all engines.
_BATCH = 500


TEMPLATE = 'template'
PATCH = 'patch'
HOST = 'host'
HOLDING = 'holding'
HOLDINGS = 'holdings'


class Change(typing.NamedTuple):
    """Something that a generation of a map changed.

    :param what: one of the names above
    :param name: id of the template or patch, or name of the host
    :param kind: of the object that is held
    :param object_id: the same
    """

    what: str
    name: str
    kind: str | None = None
    object_id: str | None = None


def put_host(session: orm.Session, host: objects.Host,
             when: datetime.datetime) -> tuple[objects.Host, set[str]]:
    """Register a host or renew its registration; it is alive from now on.

    :returns: the host as it is known, and the sites whose map changed
    """
    _ensure_site(session, host.site, when)
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
        changed = _affected(session, row.site, row.role)
        changes = [Change(HOST, row.name)]
        if before is not None:
            changed |= _affected(session, before[0], before[1])
            if before[:2] != _shown(row)[:2]:
                changes.append(Change(HOLDINGS, row.name))
        raise_generation(session, changed, changes)
    return _host(row), changed


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


def put_holdings(session: orm.Session, name: str,
                 holdings: collections.abc.Sequence[objects.Holding],
                 when: datetime.datetime) -> set[str]:
    """Replace the objects of a host; counts as a heartbeat.

    :returns: the sites whose map changed
    :raises NotFound: the host is not registered
    """
    row = _locked_host(session, name)
    # Columns, not entities: entities that are deleted and added again with
    # another size would meet themselves in the session.
    before = {(kind, object_id): size for kind, object_id, size in
              session.execute(sa.select(
                  models.Holding.kind, models.Holding.object_id,
                  models.Holding.bytes).where(
                  models.Holding.host_id == row.id))}
    after = {(held.kind, held.id): held.bytes for held in holdings}
    row.held_objects, row.held_bytes = len(after), sum(after.values())
    revived, row.alive, row.seen_at = not row.alive, True, when
    if before == after and not revived:
        return set()
    dropped = [key for key in before if before[key] != after.get(key)]
    _drop_holdings(session, row.id, dropped)
    return _add_holdings(
        session, row, revived, dropped,
        {key: size for key, size in after.items() if before.get(key) != size})


class HoldingsDelta(typing.NamedTuple):
    """A change of the objects of a host.

    :param added: new ones, and those whose size is another now
    :param removed: those that it does not hold any more
    :param count: of all that it holds now
    :param total: bytes of all that it holds now
    """

    added: collections.abc.Sequence[objects.Holding]
    removed: collections.abc.Sequence[objects.Holding]
    count: int
    total: int


def change_holdings(session: orm.Session, name: str, delta: HoldingsDelta,
                    when: datetime.datetime) -> set[str]:
    """Change the objects of a host; counts as a heartbeat.

    :returns: the sites whose map changed
    :raises NotFound: the host is not registered
    :raises Conflict: the result is not what the host has
    """
    row = _locked_host(session, name)
    revived, row.alive, row.seen_at = not row.alive, True, when
    added = {(held.kind, held.id): held.bytes for held in delta.added}
    removed = [(held.kind, held.id) for held in delta.removed]
    changed = set()
    if added or removed or revived:
        dropped = sorted({*removed, *added})
        sums = _sums_of(session, row.id, dropped)
        _drop_holdings(session, row.id, dropped)
        row.held_objects += len(added) - sums[0]
        row.held_bytes += sum(added.values()) - sums[1]
        changed = _add_holdings(session, row, revived, dropped, added)
    if (row.held_objects, row.held_bytes) != (delta.count, delta.total):
        raise exceptions.Conflict(
            f'The objects of host {name} are not known as it has them:'
            f' {row.held_objects} instead of {delta.count}; report all of'
            f' them.')
    return changed


def _locked_host(session, name):
    """Return a host's row, locked as :func:`lock_host` does."""
    row = session.scalar(sa.select(models.Host).where(
        models.Host.name == name).with_for_update())
    if row is None:
        raise unknown_host(name)
    return row


def _add_holdings(session, row, revived, dropped, added):
    """Add holdings to a host, and note these and dropped ones as changed."""
    session.add_all(
        models.Holding(host_id=row.id, kind=kind, object_id=object_id,
                       bytes=size)
        for (kind, object_id), size in added.items())
    session.flush()
    changed = _affected(session, row.site, row.role)
    changes = [Change(HOST, row.name)] if revived else []
    keys = {*dropped, *added}
    if len(keys) > _NOTED_HOLDINGS:
        changes.append(Change(HOLDINGS, row.name))
    else:
        changes += [Change(HOLDING, row.name, *key) for key in sorted(keys)]
    raise_generation(session, changed, changes)
    return changed


def _drop_holdings(session, host_id, keys):
    for condition in _each_batch(host_id, keys):
        session.execute(sa.delete(models.Holding).where(condition)
                        .execution_options(synchronize_session=False))


def _sums_of(session, host_id, keys):
    """Return number and bytes of those of some objects that a host holds."""
    size = models.Holding.bytes
    sums = [session.execute(
        sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(size), 0))
        .where(condition)).one() for condition in _each_batch(host_id, keys)]
    return sum(count for count, _ in sums), sum(int(each) for _, each in sums)


def _each_batch(host_id, keys):
    """Yield conditions that select some objects of a host, in batches."""
    table = models.Holding
    for kind in sorted({kind for kind, _ in keys}):
        ids = [object_id for key, object_id in keys if key == kind]
        for start in range(0, len(ids), _BATCH):
            yield sa.and_(table.host_id == host_id, table.kind == kind,
                          table.object_id.in_(ids[start:start + _BATCH]))


def put_borrowed(session: orm.Session, name: str,
                 templates: collections.abc.Iterable[objects.Holding]
                 ) -> set[str]:
    """Replace the templates that a host reads from files of other services.

    They are on maps like what it holds, and count nowhere else.

    :returns: the sites whose map changed
    :raises NotFound: the host is not registered
    """
    number = lock_host(session, name)
    row = _need_host(session, name)
    table = models.Borrowed
    before = dict(session.execute(
        sa.select(table.object_id, table.bytes)
        .where(table.host_id == number)).tuples().all())
    after = {held.id: held.bytes for held in templates
             if held.kind == objects.TEMPLATES}
    changes = [Change(HOLDING, name, objects.TEMPLATES, object_id)
               for object_id in sorted(before.keys() | after.keys())
               if before.get(object_id) != after.get(object_id)]
    if not changes:
        return set()
    session.execute(sa.delete(table).where(table.host_id == number)
                    .execution_options(synchronize_session=False))
    if after:
        session.execute(sa.insert(table), [
            {'host_id': number, 'object_id': object_id, 'bytes': size}
            for object_id, size in after.items()])
    changed = _affected(session, row.site, row.role)
    raise_generation(session, changed, changes)
    return changed


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
        changed |= _affected(session, row.site, row.role)
    session.flush()
    raise_generation(session, changed,
                     [Change(HOST, row.name) for row in silent])
    return [row.name for row in silent], changed


def remove_host(session: orm.Session, name: str) -> set[str]:
    """Delete a host and its objects, but not its history; end its tasks.

    :returns: the sites whose map changed
    :raises NotFound: the host is not registered
    """
    row = _need_host(session, name)
    changed = _affected(session, row.site, row.role)
    tasks.end_of_host(session, name, base.now())
    for table in (models.Holding, models.Borrowed):
        session.execute(sa.delete(table).where(table.host_id == row.id))
    session.delete(row)
    session.flush()
    raise_generation(session, changed, [Change(HOST, name)])
    return changed


def remove_dead_host(session: orm.Session, name: str) -> set[str]:
    """Delete a host that is not alive.

    :returns: the sites whose map changed
    :raises NotFound: the host is not registered
    :raises Conflict: it is alive, and would be back with its next report
    """
    row = _need_host(session, name)
    if row.alive:
        raise exceptions.Conflict(
            f'Host {name} is alive, it was last heard of at'
            f' {row.seen_at.isoformat(timespec="seconds")}, and would be back'
            f' with its next report; stop its diffcache-agent, and delete it'
            f' when it counts as dead, [conductor] host_timeout later.')
    return remove_host(session, name)


def get_host(session: orm.Session, name: str) -> objects.Host:
    """Return a host with the objects that it holds.

    :raises NotFound: the host is not registered
    """
    row = _need_host(session, name)
    host = _host(row)
    host.holdings = _holdings(session, [row]).get(row.id, [])
    return host


def host_id(session: orm.Session, name: str) -> int:
    """Return the number of a host's row.

    :raises NotFound: the host is not registered
    """
    return _need_host(session, name).id


def is_held(host_id: int, content: typing.Any) -> sa.ColumnElement[bool]:
    """Return the condition that a host holds an image.

    :param content: a column with its content
    """
    return sa.exists().where(
        models.Holding.host_id == host_id,
        models.Holding.kind == objects.TEMPLATES,
        models.Holding.object_id == content)


def list_hosts(session: orm.Session, site: str | None = None
               ) -> list[objects.Host]:
    """List hosts by name, of one site or of all, without their objects."""
    query = sa.select(models.Host).order_by(models.Host.name)
    if site is not None:
        query = query.where(models.Host.site == site)
    return [_host(row) for row in session.scalars(query)]


def map_hosts(session: orm.Session, site: str | None = None
              ) -> list[objects.Host]:
    """List hosts by name, with the objects that they hold or borrow.

    :param site: only the hosts of this site, and every repository
    """
    rows = _rows_of_map(session, site)
    return _with_holdings(rows, _readable(session, rows))


def holding_hosts(session: orm.Session) -> list[objects.Host]:
    """List all hosts by name, with the objects that they hold."""
    rows = _rows_of_map(session, None)
    return _with_holdings(rows, _holdings(session, rows))


def _rows_of_map(session, site):
    query = sa.select(models.Host).order_by(models.Host.name)
    if site is not None:
        query = query.where(sa.or_(
            models.Host.site == site,
            models.Host.role == site_objects.REPOSITORY))
    return session.scalars(query).all()


def _with_holdings(rows, held):
    hosts = []
    for row in rows:
        host = _host(row)
        host.holdings = held.get(row.id, [])
        hosts.append(host)
    return hosts


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
    return [(row.id, _host(row)) for row in rows]


def holdings_of(session: orm.Session, host_id: int,
                ids: collections.abc.Sequence[str] | None = None
                ) -> list[objects.Holding]:
    """Return what a host holds or borrows, of all objects or of some."""
    found: dict[tuple[str, str], int] = {}
    for table, kind in ((models.Borrowed, sa.literal(objects.TEMPLATES)),
                        (models.Holding, models.Holding.kind)):
        query = sa.select(kind, table.object_id, table.bytes).where(
            table.host_id == host_id)
        if ids is not None:
            query = query.where(table.object_id.in_(ids))
        found.update({(kind, object_id): size for kind, object_id, size
                      in session.execute(query)})
    return [objects.Holding(kind=kind, id=object_id, bytes=size)
            for (kind, object_id), size in sorted(found.items())]


def hosts_on_map(session: orm.Session, site: str) -> list[str]:
    """List the living hosts of a site and all living repositories."""
    return list(session.scalars(
        sa.select(models.Host.name).where(models.Host.alive, sa.or_(
            models.Host.site == site,
            models.Host.role == site_objects.REPOSITORY,
        )).order_by(models.Host.name)))


def list_sites(session: orm.Session) -> list[str]:
    """List the names of all sites that ever had a host."""
    return list(session.scalars(
        sa.select(models.Site.name).order_by(models.Site.name)))


def map_generation(session: orm.Session, site: str) -> int:
    """Return the generation of a site's map.

    :raises NotFound: no host of the site was ever registered
    """
    generation = session.scalar(sa.select(models.Site.map_generation).where(
        models.Site.name == site))
    if generation is None:
        raise unknown_site(site)
    return generation


def raise_generation(session: orm.Session, sites: set[str],
                     changes: collections.abc.Iterable[Change] = ()
                     ) -> None:
    """Mark the maps of some sites as changed.

    :param changes: what the new generation changed; none if only options
        that each map has
    """
    if sites:
        # It locks the rows of the sites, so that generations, and the changes
        # that are noted for them, are committed in order.
        session.execute(
            sa.update(models.Site).where(models.Site.name.in_(sites))
            .values(map_generation=models.Site.map_generation + 1)
            .execution_options(synchronize_session=False))
        _note_changes(session, models.Site.name.in_(sites), changes, 0)


def raise_generation_of(session: orm.Session, host: str) -> set[str]:
    """Mark the map of a host's site as changed, and name the site.

    :raises NotFound: the host is not registered
    """
    changed = {_need_host(session, host).site}
    raise_generation(session, changed)
    return changed


def raise_all_generations(session: orm.Session,
                          changes: collections.abc.Iterable[Change]
                          ) -> set[str]:
    """Mark the maps of all sites as changed, and name the sites."""
    sites = set(list_sites(session))
    raise_generation(session, sites, changes)
    return sites


def note_for_next(session: orm.Session, change: Change) -> None:
    """Send a change with the next generation of all maps, whenever that is."""
    _note_changes(session, sa.true(), [change], 1)


def _note_changes(session, condition, changes, ahead):
    noted = [change._asdict() for change in changes]
    if not noted:
        return
    generations = session.execute(
        sa.select(models.Site.name, models.Site.map_generation)
        .where(condition)).all()
    rows = [{'site': name, 'generation': generation + ahead, **change}
            for name, generation in generations for change in noted]
    if rows:
        session.execute(sa.insert(models.MapChange), rows)


def unknown_site(site: str) -> exceptions.NotFound:
    """Return the error for a site that does not exist."""
    return exceptions.NotFound(
        f'Site {site} is unknown; start an agent with [agent] site = {site},'
        f' or see "openstack image cache site list" for the sites there are.')


def unknown_host(name: str) -> exceptions.NotFound:
    """Return the error for a host that does not exist."""
    return exceptions.NotFound(
        f'Host {name} is not registered; start its diffcache-agent, or see'
        f' "openstack image cache host list" for the hosts there are.')


def _ensure_site(session, name, when):
    if session.get(models.Site, name) is None:
        # Starting from the clock, the generations of a database that is made
        # anew differ from those that agents remember.
        generation = int(when.timestamp())
        session.add(models.Site(name=name, plan_generation=0,
                                map_generation=generation,
                                map_floor=generation))
        session.flush()


def _find_host(session, name):
    return session.scalar(sa.select(models.Host).where(
        models.Host.name == name))


def _need_host(session, name):
    row = _find_host(session, name)
    if row is None:
        raise unknown_host(name)
    return row


def _shown(row):
    return row and tuple(getattr(row, field) for field in _SHOWN)


def _affected(session, site, role):
    if role == site_objects.REPOSITORY:
        return set(list_sites(session))
    return {site}


def _holdings(session, rows):
    held: dict[int, list[objects.Holding]] = {}
    query = sa.select(models.Holding).where(
        models.Holding.host_id.in_([row.id for row in rows])).order_by(
        models.Holding.host_id, models.Holding.kind,
        models.Holding.object_id)
    for row in session.scalars(query):
        held.setdefault(row.host_id, []).append(objects.Holding(
            kind=row.kind, id=row.object_id, bytes=row.bytes))
    return held


def _readable(session, rows):
    """Return by row what hosts hold, and what they borrow besides."""
    found = _holdings(session, rows)
    held = {(number, each.id) for number, listed in found.items()
            for each in listed if each.kind == objects.TEMPLATES}
    table = models.Borrowed
    for row in session.scalars(sa.select(table).where(
            table.host_id.in_([row.id for row in rows])).order_by(
            table.host_id, table.object_id)):
        if (row.host_id, row.object_id) not in held:
            found.setdefault(row.host_id, []).append(objects.Holding(
                kind=objects.TEMPLATES, id=row.object_id, bytes=row.bytes))
    return found


def _host(row):
    return objects.Host(
        name=row.name, site=row.site, role=row.role, url=row.url,
        capacity=row.capacity, alive=row.alive,
        plan_generation=row.plan_generation, seen_at=row.seen_at)
