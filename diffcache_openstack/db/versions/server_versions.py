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
"""Versions of servers and volumes, as the catalogue has them.

Those of volumes are Cinder's backups, with the same ids: users see and delete
them there, and no policy does.
"""

import collections.abc
import datetime
import json
import typing

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.common import exceptions
from diffcache_openstack.db import listing
from diffcache_openstack.db import models
from diffcache_openstack.db.versions import heads as version_heads
from diffcache_openstack import objects
from diffcache_openstack.objects import versions

_GIVEN = ('id', 'name', 'description', 'server_id', 'project_id', 'user_id',
          'request_id', 'trigger', 'protected', 'alpha', 'base_image')
_OF_VOLUMES = ('volume_id', 'volume_metadata')
_SAVED = ('size', 'bytes_changed', 'bytes_read', 'bytes_stored', 'seconds',
          'pause_ms', 'frozen_ms', 'quiesced')
_SHOWN = (*_GIVEN, *_SAVED, 'parent_id', 'state', 'generation', 'host',
          'image_id', 'disks', 'error', 'error_code', 'created_at',
          'updated_at')
_FILTERS = ('server_id', 'project_id', 'state', 'trigger')
CHANGEABLE = ('name', 'description', 'protected')


def create(session: orm.Session, new: objects.NewVersion,
           when: datetime.datetime) -> bool:
    """Note a version that is about to be saved; False if it is known."""
    table = models.ServerVersion
    if session.get(table, new.id) is not None:
        return False
    session.add(table(
        **{name: getattr(new, name) for name in (*_GIVEN, *_OF_VOLUMES)},
        parent_id=_newest(session, new), state=versions.SAVING,
        generation=1, size=0, bytes_changed=0, bytes_read=0, bytes_stored=0,
        quiesced=False, disks='[]', created_at=when, updated_at=when))
    session.flush()
    return True


def _newest(session, new):
    """Return the ID of the last version of the same server or volume."""
    table = models.ServerVersion
    same = (table.volume_id == new.volume_id if new.volume_id
            else table.server_id == new.server_id)
    return session.scalar(
        sa.select(table.id).where(same, table.state != versions.ERROR)
        .order_by(table.created_at.desc(), table.id).limit(1))


def update(session: orm.Session, version_id: str, seen: int,
           values: dict[str, typing.Any], when: datetime.datetime) -> None:
    """Change a version's name, description or protection.

    :param seen: the generation that the caller knows
    :raises NotFound: there is none with that id
    :raises Busy: it has another generation by now
    """
    row = need(session, version_id)
    if row.generation != seen:
        raise exceptions.Busy(
            f'Version {version_id} has generation {row.generation}, not'
            f' {seen}: it was changed meanwhile; read it again.')
    for name in CHANGEABLE:
        if name in values:
            setattr(row, name, values[name])
    row.generation += 1
    row.updated_at = when


def begin_deleting(session: orm.Session, version_id: str,
                   when: datetime.datetime) -> bool:
    """Mark a version as being deleted.

    :returns: whether the store has blocks of it to delete; if not, its row
        is removed at once
    :raises NotFound: there is none with that id
    :raises Conflict: it is protected, or being saved
    """
    row = need(session, version_id)
    if row.protected:
        raise exceptions.Conflict(
            f'Cannot delete version {version_id}: it is protected. Remove the'
            f' protection first (openstack server version set --unprotected'
            f' {version_id}).')
    if row.state == versions.SAVING:
        raise exceptions.Conflict(
            f'Cannot delete version {version_id}: it is being saved. Wait'
            f' until that completes, or cancel its task.')
    if not json.loads(row.disks) and row.volume_id is None:
        # Its save failed.
        remove(session, version_id)
        return False
    row.state, row.updated_at = versions.DELETING, when
    return True


def saved(session: orm.Session, version_id: str, host: str | None,
          what: objects.SavedVersion, when: datetime.datetime) -> None:
    """Note that the store has a version now."""
    row = need(session, version_id)
    if row.state == versions.DELETING:
        return  # A task that removes it from the store follows.
    for name in _SAVED:
        setattr(row, name, getattr(what, name))
    row.disks = json.dumps([
        {name: getattr(disk, name) for name in disk.fields}
        for disk in what.disks])
    row.host, row.state = host, versions.AVAILABLE
    row.error = row.error_code = None
    row.updated_at = row.saved_at = when


def check_unnamed(session: orm.Session, project_id: str,
                  version_id: str | None,
                  disks: collections.abc.Iterable[objects.VersionDisk]
                  ) -> None:
    """Refuse disks that another version of a project has.

    They would be deleted with either.

    :raises Forbidden: another version has one of them
    """
    table = models.ServerVersion
    for disk in disks:
        other = session.scalar(sa.select(table.id).where(
            table.project_id == project_id, table.id != version_id,
            table.disks.contains(disk.version, autoescape=True)).limit(1))
        if other is not None:
            raise exceptions.Forbidden(
                f'Disk {disk.version} was reported as one of version'
                f' {version_id}, and version {other} has it.')


class Failure(typing.NamedTuple):
    """Why something failed.

    :ivar error: as it was raised, maybe with names of hosts and paths
    :ivar code: of the error; None for one that has no code
    """

    error: str | None
    code: str | None


def failed(session: orm.Session, version_id: str, failure: Failure,
           when: datetime.datetime) -> None:
    """Note that a version was not saved, or not deleted."""
    row = session.get(models.ServerVersion, version_id)
    if row is not None and row.state != versions.DELETING:
        row.state, row.updated_at = versions.ERROR, when
        row.error, row.error_code = failure


def stays(session: orm.Session, version_id: str, wanted: bool,
          failure: Failure, when: datetime.datetime) -> None:
    """Note that a version was not deleted: the store has all of it.

    :param wanted: whether it is not to be deleted any more
    """
    row = session.get(models.ServerVersion, version_id)
    if row is None:
        return
    row.updated_at = when
    if wanted:
        row.state, row.error, row.error_code = versions.AVAILABLE, None, None
    else:
        # It is deleted later: see :func:`undeleted`.
        row.error, row.error_code = failure


def undeleted(session: orm.Session, before: datetime.datetime) -> list[str]:
    """List versions whose deletion failed before an instant."""
    table, task = models.ServerVersion, models.VersionTask
    return list(session.scalars(
        sa.select(table.id).where(
            table.state == versions.DELETING, table.updated_at < before,
            ~sa.exists().where(task.version_id == table.id,
                               task.kind == versions.FORGET,
                               task.state.not_in(versions.ENDED)))
        .order_by(table.created_at, table.id)))


def forget_failed(session: orm.Session, before: datetime.datetime) -> int:
    """Delete versions of servers that were not saved, after a while.

    Backups go when they are deleted in Cinder, which shows them as failed.

    :param before: when they failed
    :returns: how many there were
    """
    table = models.ServerVersion
    gone = list(session.scalars(sa.select(table.id).where(
        table.state == versions.ERROR, table.disks == '[]',
        table.volume_id.is_(None), ~table.protected,
        table.updated_at < before)))
    for version_id in gone:
        remove(session, version_id)
    return len(gone)


def exported(session: orm.Session, version_id: str, disk: str, image_id: str
             ) -> None:
    """Record the image that the first disk of a version was exported as.

    :param disk: the store's ID of the disk that was exported
    """
    row = session.get(models.ServerVersion, version_id)
    if row is not None and disks(row)[0].version == disk:
        row.image_id = image_id


def remove(session: orm.Session, version_id: str) -> None:
    """Delete a version, if it exists."""
    table = models.ServerVersion
    session.execute(sa.update(table).where(table.parent_id == version_id)
                    .values(parent_id=None)
                    .execution_options(synchronize_session=False))
    session.execute(sa.delete(table).where(table.id == version_id)
                    .execution_options(synchronize_session=False))


def with_disks(session: orm.Session, project_id: str,
               damaged: collections.abc.Collection[str]) -> list[str]:
    """List the IDs of a project's versions that have given disk versions.

    :param damaged: what the store calls the disks' versions
    """
    table = models.ServerVersion
    rows = session.execute(sa.select(table.id, table.disks).where(
        table.project_id == project_id).order_by(table.created_at))
    return [version_id for version_id, encoded in rows
            if any(disk['version'] in damaged for disk in json.loads(encoded))]


def refuse(session: orm.Session, project_id: str,
           refused: collections.abc.Collection[str],
           when: datetime.datetime) -> None:
    """Mark versions as failed that the store has not accepted.

    :param refused: what the store calls the disks' versions
    """
    changed = False
    for version_id in with_disks(session, project_id, refused):
        row = need(session, version_id)
        if row.state == versions.AVAILABLE:
            changed = True
            failed(session, version_id, Failure(
                'The store did not accept what the host has added: save the'
                ' server again.', 'integrity_error'), when)
    if changed:
        # What the conductor decided about them is void.
        version_heads.forget(session, project_id)


def disks(row: models.ServerVersion) -> list[objects.VersionDisk]:
    """Decode the disks of a version in the store."""
    return [objects.VersionDisk(**disk) for disk in json.loads(row.disks)]


class Kept(typing.NamedTuple):
    """What retention looks at."""

    id: str
    number: int
    created_at: str


def prunable(session: orm.Session, server_id: str) -> list[Kept]:
    """List versions of a server that a policy may delete, oldest first.

    Those of images count for nothing: the next image ends them.
    """
    table = models.ServerVersion
    rows = session.execute(
        sa.select(table.id, table.created_at)
        .where(table.server_id == server_id,
               table.state == versions.AVAILABLE, ~table.protected,
               table.trigger != versions.IMAGE)
        .order_by(table.created_at, table.id)).all()
    return [Kept(version_id, number, created_at.isoformat())
            for number, (version_id, created_at) in enumerate(rows)]


def of_images(session: orm.Session, server_id: str) -> list[str]:
    """List the complete, unprotected versions of a server's images."""
    table = models.ServerVersion
    return list(session.scalars(
        sa.select(table.id).where(
            table.server_id == server_id, table.state == versions.AVAILABLE,
            ~table.protected, table.trigger == versions.IMAGE)))


def last_saves(session: orm.Session,
               server_ids: collections.abc.Collection[str]
               ) -> dict[str, datetime.datetime]:
    """Return the time of the last save, or attempt, of each server."""
    table = models.ServerVersion
    rows = session.execute(
        sa.select(table.server_id, sa.func.max(table.created_at))
        .where(table.server_id.in_(list(server_ids)))
        .group_by(table.server_id))
    return {server_id: when for server_id, when in rows
            if server_id is not None}


def servers_of(session: orm.Session, project_id: str) -> list[str]:
    """Return servers of a project that have versions."""
    table = models.ServerVersion
    return list(session.scalars(
        sa.select(table.server_id).where(table.project_id == project_id,
                                         table.server_id.is_not(None))
        .distinct().order_by(table.server_id)))


def changed_servers(session: orm.Session, since: datetime.datetime
                    ) -> dict[str, str]:
    """Return servers with versions that became usable, or were changed.

    :returns: their projects by id
    """
    table = models.ServerVersion
    rows = session.execute(
        sa.select(table.server_id, table.project_id).where(
            table.state == versions.AVAILABLE, table.updated_at >= since,
            table.server_id.is_not(None)).distinct())
    return {server_id: project_id for server_id, project_id in rows
            if server_id is not None}


def has_any(session: orm.Session, project_id: str) -> bool:
    """Return whether a project has versions of servers or volumes."""
    table = models.ServerVersion
    return session.scalar(sa.select(table.id).where(
        table.project_id == project_id).limit(1)) is not None


def projects() -> sa.Select[str]:
    """Return the query for projects that have versions."""
    table = models.ServerVersion
    return sa.select(table.project_id).where(
        table.state == versions.AVAILABLE).distinct()


def list_versions(session: listing.Reader, viewer: listing.Viewer,
                  filters: collections.abc.Mapping[str, typing.Any],
                  page: listing.Page) -> listing.Part:
    """List the versions that a viewer may see, the latest first.

    :param filters: server_id, project_id, state, trigger
    """
    table = models.ServerVersion
    visible = _visible(viewer)
    part = listing.part_by_time(
        session, listing.narrowed(visible, table, filters, _FILTERS),
        listing.Latest(table.created_at, visible), page)
    _complete(session, part.entries)
    return part


def get_version(session: listing.Reader, viewer: listing.Viewer,
                version_id: str) -> listing.Entry:
    """Return one version, as :func:`list_versions` shows it.

    :raises NotFound: there is none that the viewer may see
    """
    entry = listing.only(
        session,
        _visible(viewer).where(models.ServerVersion.id == version_id),
        unknown_version(version_id))
    _complete(session, [entry])
    return entry


def need(session: orm.Session, version_id: str) -> models.ServerVersion:
    """Return the row of a version, to change it.

    :raises NotFound: there is none with that id
    """
    row = session.scalar(sa.select(models.ServerVersion).where(
        models.ServerVersion.id == version_id).with_for_update())
    if row is None:
        raise unknown_version(version_id)
    return row


def unknown_version(version_id: str) -> exceptions.NotFound:
    """Return the error for a version that the caller cannot see."""
    return exceptions.NotFound(
        f'Version {version_id} is unknown; see "openstack server version'
        f' list".')


def _visible(viewer):
    return listing.of_viewer(models.ServerVersion, _SHOWN, viewer).where(
        models.ServerVersion.volume_id.is_(None))


def _complete(session, entries):
    """Add how far the work on each is, and lists in place of texts."""
    table = models.VersionTask
    rows = session.execute(
        sa.select(table.version_id, table.id, table.kind, table.state,
                  table.done, table.total)
        .where(table.version_id.in_([entry['id'] for entry in entries]),
               table.state.not_in(versions.ENDED))
        .order_by(table.created_at.desc()))
    work = {version_id: dict(zip(('id', 'kind', 'state', 'done', 'total'),
                                 values)) for version_id, *values in rows}
    for entry in entries:
        # Names of files of hosts are none of the users' business.
        entry['disks'] = [
            {name: disk[name] for name in ('device', 'size', 'volume_id')}
            for disk in json.loads(entry['disks'])]
        entry['task'] = work.get(entry['id'])
