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
"""Objects that hosts hold or borrow."""

import collections.abc
import datetime
import typing

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.common import exceptions
from diffcache_openstack.db import models
from diffcache_openstack.db.sites import generations
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack import objects

# Holdings of a host that are noted one by one; of more, that all changed.
_NOTED_HOLDINGS = 1000
# Rows per statement, below the limits on parameters of all engines.
_BATCH = 500


def put_holdings(session: orm.Session, name: str,
                 holdings: collections.abc.Sequence[objects.Holding],
                 when: datetime.datetime) -> set[str]:
    """Replace the objects of a host; counts as a heartbeat.

    :returns: the sites whose map changed
    :raises NotFound: the host is not registered
    """
    row = host_rows.locked_host(session, name)
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
    row = host_rows.locked_host(session, name)
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


def _add_holdings(session, row, revived, dropped, added):
    """Add holdings to a host, and note these and dropped ones as changed."""
    session.add_all(
        models.Holding(host_id=row.id, kind=kind, object_id=object_id,
                       bytes=size)
        for (kind, object_id), size in added.items())
    session.flush()
    changed = generations.affected(session, row.site, row.role)
    changes = [
        generations.Change(generations.HOST, row.name)] if revived else []
    keys = {*dropped, *added}
    if len(keys) > _NOTED_HOLDINGS:
        changes.append(generations.Change(generations.HOLDINGS, row.name))
    else:
        changes += [generations.Change(generations.HOLDING, row.name,
                                       *key) for key in sorted(keys)]
    generations.raise_generation(session, changed, changes)
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
                 images: collections.abc.Iterable[objects.Holding]
                 ) -> set[str]:
    """Replace the images that a host reads from files of other services.

    They are on maps like what it holds, and count nowhere else.

    :returns: the sites whose map changed
    :raises NotFound: the host is not registered
    """
    number = host_rows.lock_host(session, name)
    row = host_rows.need_host(session, name)
    table = models.Borrowed
    before = dict(session.execute(
        sa.select(table.object_id, table.bytes)
        .where(table.host_id == number)).tuples().all())
    after = {held.id: held.bytes for held in images
             if held.kind == objects.IMAGES}
    changes = [generations.Change(generations.HOLDING, name, objects.IMAGES,
                                  object_id)
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
    changed = generations.affected(session, row.site, row.role)
    generations.raise_generation(session, changed, changes)
    return changed


def is_held(host_id: int, content: typing.Any) -> sa.ColumnElement[bool]:
    """Return the condition that a host holds an image.

    :param content: a column with its content
    """
    return sa.exists().where(
        models.Holding.host_id == host_id,
        models.Holding.kind == objects.IMAGES,
        models.Holding.object_id == content)


def map_hosts(session: orm.Session, site: str | None = None
              ) -> list[objects.Host]:
    """List hosts by name, with the objects that they hold or borrow.

    :param site: only the hosts of this site, and every repository
    """
    rows = host_rows.rows_of_map(session, site)
    return _with_holdings(rows, _readable(session, rows))


def holding_hosts(session: orm.Session) -> list[objects.Host]:
    """List all hosts by name, with the objects that they hold."""
    rows = host_rows.rows_of_map(session, None)
    return _with_holdings(rows, _holdings(session, rows))


def _with_holdings(rows, held):
    hosts = []
    for row in rows:
        host = host_rows.to_host(row)
        host.holdings = held.get(row.id, [])
        hosts.append(host)
    return hosts


def holdings_of(session: orm.Session, host_id: int,
                ids: collections.abc.Sequence[str] | None = None
                ) -> list[objects.Holding]:
    """Return what a host holds or borrows, of all objects or of some."""
    found: dict[tuple[str, str], int] = {}
    for table, kind in ((models.Borrowed, sa.literal(objects.IMAGES)),
                        (models.Holding, models.Holding.kind)):
        query = sa.select(kind, table.object_id, table.bytes).where(
            table.host_id == host_id)
        if ids is not None:
            query = query.where(table.object_id.in_(ids))
        found.update({(kind, object_id): size for kind, object_id, size
                      in session.execute(query)})
    return [objects.Holding(kind=kind, id=object_id, bytes=size)
            for (kind, object_id), size in sorted(found.items())]


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
            for each in listed if each.kind == objects.IMAGES}
    table = models.Borrowed
    for row in session.scalars(sa.select(table).where(
            table.host_id.in_([row.id for row in rows])).order_by(
            table.host_id, table.object_id)):
        if (row.host_id, row.object_id) not in held:
            found.setdefault(row.host_id, []).append(objects.Holding(
                kind=objects.IMAGES, id=row.object_id, bytes=row.bytes))
    return found
