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
"""How far hosts are with what their plans want."""

import collections.abc

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.db import models
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack import objects

_COPIED = ('kind', 'active', 'bytes_total', 'bytes_done', 'attempts', 'error',
           'retry_at')


def put(session: orm.Session, host: str,
        fills: collections.abc.Iterable[objects.Fill]) -> None:
    """Replace what is known of a host.

    :raises NotFound: the host is not registered
    """
    host_id = host_rows.lock_host(session, host)
    session.execute(
        sa.delete(models.Fill).where(models.Fill.host_id == host_id)
        .execution_options(synchronize_session=False))
    rows = [{'host_id': host_id, 'object_id': fill.id,
             **{name: getattr(fill, name) for name in _COPIED}}
            for fill in fills]
    if rows:
        session.execute(sa.insert(models.Fill), rows)


def by_object(session: orm.Session) -> dict[tuple[str, str], objects.Fill]:
    """Return what living hosts are missing, by host and ID of the object."""
    table = models.Fill
    rows = session.execute(
        sa.select(models.Host.name, table.object_id.label('id'),
                  *(getattr(table, name) for name in _COPIED))
        .join(models.Host, models.Host.id == table.host_id)
        .where(models.Host.alive)).mappings()
    return {(row['name'], row['id']): objects.Fill(
        id=row['id'], **{name: row[name] for name in _COPIED})
        for row in rows}
