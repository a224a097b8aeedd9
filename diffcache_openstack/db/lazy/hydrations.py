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
"""Hydrations of servers' images, as agents report them."""

import collections.abc
import datetime
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

# Of a row; all else is in its document.
_COLUMNS = ('server_id', 'image_id', 'content_id', 'state')
_INSTANTS = ('deadline_at', 'expected_at')
# What a report and a change replace.
_STATUS = ('state', 'document', 'updated_at')
# Longer than a report takes from its collection on. Generations of an image
# that is served anew begin at 0, so older rows do not count.
_REPORT_TIME = datetime.timedelta(minutes=1)


def owners(session: orm.Session, host: str) -> dict[str, str]:
    """Return the projects of a host's servers that are known."""
    table = models.Hydration
    rows = session.execute(
        sa.select(table.server_id, table.project_id)
        .join(models.Host, models.Host.id == table.host_id)
        .where(models.Host.name == host, table.project_id.is_not(None)))
    return {server: project for server, project in rows
            if project is not None}


def put(session: orm.Session, host: str,
        found: collections.abc.Iterable[objects.Hydration],
        projects: collections.abc.Mapping[str, str]) -> None:
    """Replace the hydrations of a host.

    A server has one row. While it migrates, two hosts report it: the row is
    that of the host where Nova says that it is. What a change left stays
    where a report was collected before it.

    :param projects: of servers that are on this host
    :raises NotFound: the host is not registered
    """
    table = models.Hydration
    host_id = host_rows.lock_host(session, host)
    reported = {each.server_id: each for each in found}
    changed = _just_changed(session, host_id)
    session.execute(
        sa.delete(table).where(sa.or_(
            table.host_id == host_id,
            table.server_id.in_(set(reported) & set(projects))))
        .execution_options(synchronize_session=False))
    elsewhere = set(session.scalars(
        sa.select(table.server_id).where(table.server_id.in_(reported))))
    rows = [{**_newer(_row(each), changed.get(server_id)),
             'host_id': host_id, 'project_id': projects.get(server_id)}
            for server_id, each in reported.items()
            if server_id not in elsewhere]
    if rows:
        session.execute(sa.insert(table), rows)


def update(session: orm.Session, host: str, hydration: objects.Hydration
           ) -> None:
    """Note what a hydration is after a change, unless it is gone.

    Servers of the same image on the host share it.

    :raises NotFound: the host is not registered
    """
    table = models.Hydration
    row = _row(hydration)
    host_id = host_rows.lock_host(session, host)
    session.execute(
        sa.update(table)
        .where(table.host_id == host_id,
               table.content_id == hydration.content_id)
        .values({name: row[name] for name in _STATUS})
        .execution_options(synchronize_session=False))


def host_of(session: orm.Session, server_id: str) -> str:
    """Return the host where a server runs from an image that is arriving.

    :raises NotFound: it runs from none
    """
    table = models.Hydration
    host = session.scalar(
        sa.select(models.Host.name)
        .join(table, table.host_id == models.Host.id)
        .where(table.server_id == server_id))
    if host is None:
        raise unknown(server_id)
    return host


def unknown(server_id: str) -> exceptions.NotFound:
    """Return the error for a server that runs from no arriving image."""
    return exceptions.NotFound(
        f'Server {server_id} runs from no image that is arriving; see'
        f' "openstack server hydration list".')


def _just_changed(session: orm.Session, host_id: int
                  ) -> dict[str, dict[str, typing.Any]]:
    """Return the rows of a host that reports under way may be older than."""
    table = models.Hydration
    rows = session.execute(
        sa.select(table.server_id, *(
            getattr(table, name) for name in (*_COLUMNS[1:], *_STATUS[1:])))
        .where(table.host_id == host_id,
               table.updated_at > versioned.now() - _REPORT_TIME))
    return {row.server_id: dict(row._mapping) for row in rows}


def _newer(reported: dict[str, typing.Any],
           known: dict[str, typing.Any] | None) -> dict[str, typing.Any]:
    """Return the row of the later settings, of those of the same image."""
    if known is None or known['content_id'] != reported['content_id'] \
            or _generation(known) <= _generation(reported):
        return reported
    return {**reported, **{name: known[name] for name in _STATUS}}


def _generation(row: dict[str, typing.Any]) -> int:
    return json.loads(row['document']).get('generation', 0)


def _row(hydration: objects.Hydration) -> dict[str, typing.Any]:
    document = {name: getattr(hydration, name)
                for name in objects.Hydration.fields
                if name not in _COLUMNS}
    for name in _INSTANTS:
        document[name] = listing.instant(document[name])
    document['sources'] = [
        {name: getattr(source, name)
         for name in objects.HydrationSource.fields}
        for source in hydration.sources]
    return {**{name: getattr(hydration, name) for name in _COLUMNS},
            'document': json.dumps(document), 'updated_at': versioned.now()}
