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
"""Reading tables in parts, for listings.

A part is cut by key, not by number: a marker names the last entry of the part
before, so that entries which come or go meanwhile shift nothing, and the
hundredth part costs what the first one does.

Entries are plain dicts that JSON can carry. Each function makes a number of
queries that does not depend on how many entries there are.
"""

import collections.abc
import datetime
import functools
import json
import typing

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.common import exceptions
from diffcache_openstack.db import models

Entry = dict[str, typing.Any]
# What runs a listing's queries; a connection is the cheaper of the two.
Reader = orm.Session | sa.Connection


class Page(typing.NamedTuple):
    """Which part of a listing is wanted.

    :ivar limit: entries at most
    :ivar marker: key of the last entry of the part before, None to begin
    """

    limit: int
    marker: str | None = None


class Part(typing.NamedTuple):
    """A part of a listing; ``next_marker`` is None at its end."""

    entries: list[Entry]
    next_marker: str | None


class Viewer(typing.NamedTuple):
    """The caller of a listing: its project, and whether it sees all."""

    project_id: str | None
    sees_all: bool


def part_by_key(session: Reader, query: sa.Select,
                key: orm.InstrumentedAttribute, page: Page) -> Part:
    """Select a part of a query's rows, in the order of a unique column.

    :param query: of columns; the key is among them
    """
    if page.marker is not None:
        query = query.where(key > page.marker)
    return cut(_entries(session, query.order_by(key).limit(page.limit + 1)),
               page, key.key)


def rows_by_key(session: Reader, query: sa.Select,
                key: orm.InstrumentedAttribute, page: Page,
                entry: collections.abc.Callable[[typing.Mapping], Entry]
                ) -> Part:
    """Select a part as :func:`part_by_key` does, of rows to be converted.

    :param entry: make an entry of a row, with the key under its label
    """
    if page.marker is not None:
        query = query.where(key > page.marker)
    rows = session.execute(query.order_by(key).limit(page.limit + 1))
    return cut([entry(row) for row in rows.mappings()], page, key.key)


class Latest(typing.NamedTuple):
    """The order of rows by time, the latest first.

    :ivar when: column of time of a model, whose column ``id`` makes the order
        total
    :ivar visible: query of rows that a marker may name: one that is not
        visible is as unknown as one that does not exist
    """

    when: orm.InstrumentedAttribute
    visible: sa.Select


def part_by_time(session: Reader, query: sa.Select, order: Latest, page: Page
                 ) -> Part:
    """Select a part of a query's rows, the latest first.

    :raises InvalidInput: no visible row has the marker's id
    """
    when = order.when
    table = when.class_
    if page.marker is not None:
        since = session.scalar(order.visible.with_only_columns(when).where(
            table.id == page.marker))
        if since is None:
            raise exceptions.InvalidInput(
                f'The marker {page.marker} names no entry; begin again'
                f' without one.')
        query = query.where(sa.or_(
            when < since, sa.and_(when == since, table.id > page.marker)))
    return cut(_entries(session, query.order_by(when.desc(), table.id).limit(
        page.limit + 1)), page, 'id')


def joined_id(*keys: orm.InstrumentedAttribute) -> sa.Label:
    """Return the column ``id`` of rows that several columns identify.

    :param keys: of texts; only the first may have full stops
    """
    joined: sa.ColumnElement = sa.type_coerce(keys[0], sa.Text)
    for key in keys[1:]:
        joined = joined + '.' + key
    return joined.label('id')


def part_by_keys(session: Reader, query: sa.Select,
                 keys: collections.abc.Sequence[orm.InstrumentedAttribute],
                 page: Page) -> Part:
    """Select a part of a query's rows, in the order of several columns.

    :param query: of columns; :func:`joined_id` of the keys is among them
    :param keys: unique together
    :raises InvalidInput: the marker is not the id of such a row
    """
    if page.marker is not None:
        values = page.marker.rsplit('.', len(keys) - 1)
        if len(values) < len(keys):
            raise exceptions.InvalidInput(
                f'The marker {page.marker} names no entry; begin again'
                f' without one.')
        # The first condition lets the database begin there in an index.
        query = query.where(keys[0] >= values[0], _after(keys, values))
    return cut(_entries(session, query.order_by(*keys).limit(
        page.limit + 1)), page, 'id')


def _after(keys, values):
    """Return the condition for rows after the one with some keys."""
    later = keys[0] > values[0]
    if len(keys) == 1:
        return later
    return sa.or_(later, sa.and_(keys[0] == values[0],
                                 _after(keys[1:], values[1:])))


def only(session: Reader, query: sa.Select,
         missing: exceptions.NotFound) -> Entry:
    """Select the one row of a query.

    :param missing: the error to raise if there is no row
    :raises NotFound: ``missing``
    """
    row = session.execute(query).mappings().one_or_none()
    if row is None:
        raise missing
    return plain(row)


def _entries(session, query):
    """Convert rows to dicts that JSON can carry.

    The database makes one text of each row: taking a row's columns apart
    costs a driver that is written in Python more than all else that listing
    takes together.
    """
    columns = list(query.selected_columns)
    texts = session.execute(query.with_only_columns(
        _row_text(tuple(columns)), maintain_column_froms=True)
    ).scalars().all()
    names = [column.key for column in columns]
    entries = [dict(zip(names, row))
               for row in json.loads(f'[{",".join(texts)}]')]
    for column in columns:
        convert = _FROM_JSON.get(type(column.type))
        if convert is not None:
            for entry in entries:
                value = entry[column.key]
                entry[column.key] = None if value is None else convert(value)
    return entries


# Views keep their columns: putting the same text together again and again
# costs about what asking for it does.
@functools.lru_cache(maxsize=64)
def _row_text(columns):
    return sa.func.json_array(*columns, type_=sa.Text)


def _stored_instant(text):
    """Convert a time to the form of the database, without its zone."""
    return text.replace(' ', 'T').removesuffix('.000000') + 'Z'


class Packed(sa.TypeDecorator):
    """A list of values that a subquery gives as one."""

    impl = sa.Text
    cache_ok = True

    def process_result_value(self, value: typing.Any, dialect: sa.Dialect
                             ) -> list | None:
        """Decode the list."""
        return None if value is None else unpacked(value)


def unpacked(value: str | list) -> list:
    """Decode packed values, which databases may have nested or quoted."""
    return json.loads(value) if isinstance(value, str) else value


def packed(*values: sa.ColumnElement) -> sa.ColumnElement:
    """Pack several values into one, for one correlated subquery."""
    return sa.func.json_array(*values, type_=Packed)


# What databases do not have as JSON has it.
_FROM_JSON = {sa.Boolean: bool, models.UTCDateTime: _stored_instant,
              Packed: unpacked}


def cut(entries: list[Entry], page: Page, key: str) -> Part:
    """Cut a page of entries; one beyond the limit means there are more."""
    more = len(entries) > page.limit
    del entries[page.limit:]
    return Part(entries, entries[-1][key] if more else None)


def plain(row: typing.Mapping) -> Entry:
    """Convert a row to a dict for JSON; times are ISO 8601 in UTC."""
    return {name: instant(value) if isinstance(value, datetime.datetime)
            else value for name, value in row.items()}


def instant(value: datetime.datetime | None) -> str | None:
    """Format a time as ISO 8601 in UTC."""
    if value is None:
        return None
    return value.astimezone(datetime.UTC).isoformat().replace('+00:00', 'Z')


def narrowed(query: sa.Select, model: typing.Any,
             filters: collections.abc.Mapping[str, typing.Any],
             names: collections.abc.Iterable[str]) -> sa.Select:
    """Restrict a query to rows whose columns have the given values.

    :param names: of the filters that are columns
    """
    for name in names:
        if name in filters:
            query = query.where(getattr(model, name) == filters[name])
    return query


def of_viewer(model: typing.Any, names: collections.abc.Iterable[str],
              viewer: Viewer) -> sa.Select:
    """Select columns of the rows that a viewer may see."""
    query = sa.select(*columns(model, names))
    if viewer.sees_all:
        return query
    return query.where(model.project_id.is_not(None),
                       model.project_id == viewer.project_id)


def columns(model: typing.Any, names: collections.abc.Iterable[str]
            ) -> list[orm.InstrumentedAttribute]:
    """Return columns of a model by name."""
    return [getattr(model, name) for name in names]
