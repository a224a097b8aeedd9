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
"""Stores of versions: their sizes, and when each was kept up last.

Tasks are forgotten some time after they ended, intervals may be longer: what
an interval is counted from is kept here.
"""

import datetime
import typing

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.common import exceptions
from diffcache_openstack.db import listing
from diffcache_openstack.db import models
from diffcache_openstack.db.versions import server_versions as db_versions
from diffcache_openstack.objects import versions

_SHOWN = ('project_id', 'bytes', 'verified_at', 'copied_at')


def note_size(session: orm.Session, project_id: str, size: int,
              when: datetime.datetime) -> None:
    """Store how many bytes a project's store has."""
    _row(session, project_id, when).bytes = size
    session.flush()


def note_done(session: orm.Session, task: models.VersionTask,
              left: int, when: datetime.datetime) -> None:
    """Note that a task on a project's store was done.

    :param left: packs with a former key that it has left
    """
    row = _row(session, task.project_id, when)
    if task.kind == versions.FORGET:
        row.deleted_at = when
        row.unpruned_since = row.unpruned_since or when
    elif task.kind == versions.PRUNE:
        later = (row.deleted_at is not None
                 and row.deleted_at > task.created_at)
        # What was deleted meanwhile may have been left.
        row.unpruned_since = row.deleted_at if later else None
    elif task.kind == versions.VERIFY:
        row.verified_at = when
    elif task.kind == versions.REPLICATE:
        # What was saved meanwhile may have been left.
        row.copied_at = task.created_at
    elif task.kind == versions.REKEY:
        row.rekeying = left > 0
    session.flush()


def stop_rekeying(session: orm.Session, project_id: str,
                  when: datetime.datetime) -> None:
    """Note that an operator has to continue replacing a key."""
    _row(session, project_id, when).rekeying = False


def to_prune(session: orm.Session, interval: datetime.timedelta,
             retry: datetime.timedelta, now: datetime.datetime) -> list[str]:
    """List projects whose stores have deletions that are due to be pruned.

    :param interval: since the first of them
    :param retry: since the last attempt, which failed
    """
    table = models.VersionStore
    return list(session.scalars(
        sa.select(table.project_id).where(
            table.unpruned_since <= now - interval,
            _tried_before(table.prune_tried_at, now - retry))
        .order_by(table.unpruned_since, table.project_id)))


def to_verify(session: orm.Session, interval: datetime.timedelta,
              retry: datetime.timedelta, now: datetime.datetime
              ) -> list[str]:
    """List projects with versions whose stores are due to be verified.

    Parameters are those of :func:`to_prune`; the interval counts since the
    last verification, or since the store is known.
    """
    table = models.VersionStore
    since = sa.func.coalesce(table.verified_at, table.created_at)
    return list(session.scalars(
        sa.select(table.project_id).where(
            since <= now - interval,
            _tried_before(table.verify_tried_at, now - retry),
            table.project_id.in_(db_versions.projects()))
        .order_by(since, table.project_id)))


def to_replicate(session: orm.Session, interval: datetime.timedelta,
                 retry: datetime.timedelta, now: datetime.datetime
                 ) -> list[str]:
    """List projects with versions whose stores are due to be copied.

    Parameters are those of :func:`to_prune`; the interval counts since the
    last copy.
    """
    table = models.VersionStore
    return list(session.scalars(
        sa.select(table.project_id).where(
            _tried_before(table.copied_at, now - interval),
            _tried_before(table.copy_tried_at, now - retry),
            sa.or_(table.copied_at.is_not(None),
                   table.project_id.in_(db_versions.projects())))
        .order_by(table.copied_at, table.project_id)))


def get_store(session: listing.Reader, viewer: listing.Viewer,
              project_id: str) -> listing.Entry:
    """Return the store of a project, and what its copy lacks.

    :raises NotFound: there is none that the viewer may see
    """
    table = models.VersionStore
    entry = listing.only(
        session, listing.of_viewer(table, _SHOWN, viewer).where(
            table.project_id == project_id), exceptions.NotFound(
            f'Project {project_id} has no store of versions.'))
    return entry | {'copy_lag': lag(session, project_id)}


def lag(session: listing.Reader, project_id: str | None = None
        ) -> dict[str, typing.Any] | None:
    """Return how many versions and bytes copies lack, and since when.

    :param project_id: whose; None for those of all projects
    :returns: None if nothing was copied yet
    """
    version, store = models.ServerVersion, models.VersionStore
    own = [] if project_id is None else [store.project_id == project_id]
    if not session.scalar(sa.select(store.project_id).where(
            store.copied_at.is_not(None), *own).limit(1)):
        return None
    row = session.execute(
        sa.select(sa.func.count().label('versions'),
                  sa.func.coalesce(sa.func.sum(version.bytes_stored), 0)
                  .label('bytes'), sa.func.min(version.saved_at)
                  .label('oldest'))
        .join_from(version, store, version.project_id == store.project_id)
        .where(version.state == versions.AVAILABLE, *own,
               sa.or_(store.copied_at.is_(None),
                      version.saved_at > store.copied_at))).mappings().one()
    return listing.plain(row) | {'bytes': int(row['bytes'])}


def to_rekey(session: orm.Session) -> list[str]:
    """List projects whose stores have packs that are to be rewritten."""
    table = models.VersionStore
    return list(session.scalars(
        sa.select(table.project_id).where(table.rekeying)
        .order_by(table.project_id)))


def note_attempt(session: orm.Session, kind: str, project_id: str,
                 when: datetime.datetime) -> None:
    """Note that a task of the upkeep is queued."""
    row = _row(session, project_id, when)
    if kind == versions.PRUNE:
        row.prune_tried_at = when
    elif kind == versions.VERIFY:
        row.verify_tried_at = when
    elif kind == versions.REPLICATE:
        row.copy_tried_at = when


def _tried_before(column, before):
    return sa.or_(column.is_(None), column <= before)


def _row(session, project_id, when) -> models.VersionStore:
    row = session.get(models.VersionStore, project_id, with_for_update=True)
    if row is None:
        row = models.VersionStore(project_id=project_id, rekeying=False,
                                  created_at=when)
        session.add(row)
        session.flush()
    return row
