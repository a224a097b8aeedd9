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
"""Work on versions: what is to be done, where, and how far it is."""

import collections.abc
import datetime
import json
import typing
import uuid

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.common import exceptions
from diffcache_openstack.db import listing
from diffcache_openstack.db import models
from diffcache_openstack.db.versions import server_versions as db_versions
from diffcache_openstack.db.versions import stores
from diffcache_openstack import objects
from diffcache_openstack.objects import versions

_SHOWN = ('id', 'kind', 'state', 'project_id', 'server_id', 'version_id',
          'host', 'done', 'total', 'result', 'error', 'error_code',
          'created_at', 'updated_at')
_FILTERS = ('server_id', 'version_id', 'project_id', 'state', 'kind')
# A host loses a task that it has not reported for this long.
LEASE_TIME = datetime.timedelta(seconds=versions.LEASE_SECONDS)
_LOST = 'lease_lost'
_CANCELLED = db_versions.Failure('It was cancelled.', 'cancelled')


class Open(typing.NamedTuple):
    """A task that has not ended.

    :ivar host: that performs it, or did before it was queued again
    :ivar seen_at: when its host last reported it
    """

    task: objects.VersionTask
    state: str
    host: str | None
    sent_at: datetime.datetime | None
    seen_at: datetime.datetime | None


def create(session: orm.Session, task: objects.VersionTask,
           when: datetime.datetime) -> None:
    """Queue a task; again is no error."""
    table = models.VersionTask
    if session.get(table, task.id) is not None:
        return
    session.add(table(
        id=task.id, kind=task.kind, state=versions.QUEUED,
        project_id=task.project_id, server_id=task.server_id,
        version_id=task.version_id, done=0, total=0, result='{}',
        cancelling=False, task=json.dumps(task.obj_to_primitive()),
        created_at=when, updated_at=when))
    session.flush()


def is_known(session: orm.Session, task_id: str) -> bool:
    """Return whether a task with an ID exists, or did not long ago."""
    return session.get(models.VersionTask, task_id) is not None


def is_any_open(session: orm.Session) -> bool:
    """Return whether a task has not ended."""
    table = models.VersionTask
    return session.scalar(sa.select(table.id).where(
        table.state.not_in(versions.ENDED)).limit(1)) is not None


def open_tasks(session: orm.Session) -> list[Open]:
    """List tasks that have not ended, oldest first."""
    table = models.VersionTask
    rows = session.scalars(
        sa.select(table).where(table.state.not_in(versions.ENDED))
        .order_by(table.created_at, table.id))
    return [Open(_task(row), row.state, row.host, row.sent_at, row.seen_at)
            for row in rows]


def find(session: orm.Session, task_id: str
         ) -> tuple[objects.VersionTask | None, str | None]:
    """Return a task and its host; None for each that does not exist."""
    row = session.get(models.VersionTask, task_id)
    return (None, None) if row is None else (_task(row), row.host)


def take(session: orm.Session, task_id: str, host: str,
         when: datetime.datetime) -> objects.VersionTask:
    """Return a task on a volume, which a host begins to perform.

    :raises Forbidden: it is not this host's, or is wanted no longer
    """
    row = _find(session, task_id)
    task = None if row is None else _task(row)
    if (row is None or task is None or task.volume_id is None
            or row.host != host or row.cancelling
            or row.state != versions.RUNNING):
        raise exceptions.Forbidden(
            f'Host {host} has no task {task_id} on a volume.')
    row.seen_at = row.updated_at = when
    return task


def busy_server(session: orm.Session, server_id: str,
                kinds: collections.abc.Collection[str]) -> str | None:
    """Return the ID of a server's open task of these kinds, or None."""
    table = models.VersionTask
    return session.scalar(
        sa.select(table.id).where(table.server_id == server_id,
                                  table.kind.in_(list(kinds)),
                                  table.state.not_in(versions.ENDED))
        .limit(1))


def sent(session: orm.Session, task_id: str, host: str,
         when: datetime.datetime) -> bool:
    """Note that a task is sent to a host; False if it has ended."""
    row = _find(session, task_id)
    if row is None or row.state in versions.ENDED:
        return False
    if (row.state, row.host) != (versions.RUNNING, host):
        row.leased_until = when + LEASE_TIME
    row.state, row.host, row.sent_at = versions.RUNNING, host, when
    row.updated_at = when
    return True


def end_lapsed(session: orm.Session, when: datetime.datetime) -> list[str]:
    """Take tasks from hosts that have not reported them within their lease.

    :returns: IDs of the tasks
    """
    table = models.VersionTask
    return _take(session, table.leased_until < when, when)


def end_of_host(session: orm.Session, host: str, when: datetime.datetime
                ) -> list[str]:
    """Take all tasks from a host that is removed; return their IDs."""
    return _take(session, models.VersionTask.host == host, when)


def _take(session, condition, when):
    """End running tasks of servers' disks; have others done elsewhere."""
    table = models.VersionTask
    rows = session.scalars(
        sa.select(table).where(table.state == versions.RUNNING, condition)
        .with_for_update()).all()
    for row in rows:
        if row.cancelling:
            _end(session, row, versions.CANCELLED, _CANCELLED, when)
        elif row.kind in versions.AT_THE_DISK:
            error = exceptions.LeaseLost(
                f'Host {row.host} has not reported the {row.kind} for'
                f' {LEASE_TIME.seconds} s, or was removed. Try again when its'
                f' agent runs.')
            _end(session, row, versions.FAILED, db_versions.Failure(
                str(error), exceptions.code_of(error)), when)
        else:
            row.state, row.updated_at = versions.QUEUED, when
    return [row.id for row in rows]


def expire(session: orm.Session, before: datetime.datetime,
           when: datetime.datetime) -> list[str]:
    """End tasks that could not be sent since an instant; return their IDs."""
    table = models.VersionTask
    rows = session.scalars(
        sa.select(table).where(table.state == versions.QUEUED,
                               table.created_at < before)
        .with_for_update()).all()
    error = exceptions.ServiceUnavailable(
        'No host could perform it since it was requested. Try again when the'
        ' agents that can do so are alive.')
    for row in rows:
        _end(session, row, versions.FAILED, db_versions.Failure(
            str(error), exceptions.code_of(error)), when)
    return [row.id for row in rows]


def cancel(session: orm.Session, task_id: str, when: datetime.datetime
           ) -> str | None:
    """Cancel a task; one that has ended stays as it is.

    :returns: the host to notify
    :raises NotFound: there is none with that id
    :raises Conflict: it is of a kind that has to complete
    """
    row = _find(session, task_id)
    if row is None:
        raise unknown_task(task_id)
    if row.state in versions.ENDED:
        return None
    if row.kind in (versions.RESTORE, versions.FORGET) and \
            row.state == versions.RUNNING:
        raise exceptions.Conflict(
            f'Cannot cancel task {task_id}: it is a {row.kind} that has'
            f' started. Wait until it completes.')
    if row.state == versions.QUEUED:
        _end(session, row, versions.CANCELLED, _CANCELLED, when)
        return None
    row.cancelling = True
    return row.host


def report(session: orm.Session, reported: objects.TaskReport,
           when: datetime.datetime, host: str | None = None) -> bool:
    """Note how far a host is with a task.

    :param host: that reports it; None if that was not verified
    :returns: whether the host shall continue; False if the task is cancelled
    :raises Forbidden: the task was sent to another host
    """
    row = _find(session, reported.task_id)
    if row is None or (row.state in versions.ENDED
                       and not _is_late(row, reported)):
        return False
    if host not in (None, row.host):
        raise exceptions.Forbidden(
            f'Host {host} reported task {reported.task_id}, which was sent to'
            f' {row.host}.')
    row.done, row.total = reported.done, reported.total
    row.seen_at = row.updated_at = when
    row.leased_until = when + LEASE_TIME
    if reported.store_bytes is not None:
        stores.note_size(session, row.project_id, reported.store_bytes, when)
    if reported.kept is not None:
        _saved(session, row, _task(row).keep_version, reported.kept, when)
    if reported.state == versions.DONE:
        _done(session, row, reported, when)
    elif reported.state in versions.ENDED:
        _end(session, row, reported.state, db_versions.Failure(
            reported.error, reported.error_code), when)
    elif row.cancelling:
        return False
    return True


def _is_late(row, reported):
    """Return whether a host has done a task after it had lost it."""
    return (row.state == versions.FAILED and row.error_code == _LOST
            and reported.state == versions.DONE)


def _saved(session, row, version_id, saved, when):
    """Note what the store has of a version that a task has saved.

    :raises Forbidden: the task saves none, or another version has its disks
    """
    if version_id is None:
        raise exceptions.Forbidden(
            f'Host {row.host} reported a version that was saved by task'
            f' {row.id}, which saves none.')
    db_versions.check_unnamed(session, row.project_id, version_id,
                              saved.disks)
    if session.get(models.ServerVersion, version_id) is not None:
        db_versions.saved(session, version_id, row.host, saved, when)
        return
    # It was deleted when it seemed to have failed.
    create(session, objects.VersionTask(
        id=str(uuid.uuid5(uuid.UUID(row.id), 'forget')),
        kind=versions.FORGET, project_id=row.project_id,
        server_id=row.server_id, version_id=version_id,
        disks=saved.disks), when)


def fail(session: orm.Session, task_id: str,
         error: exceptions.DiffCacheError, when: datetime.datetime) -> None:
    """Note that a task cannot be done."""
    row = _find(session, task_id)
    if row is not None and row.state not in versions.ENDED:
        _end(session, row, versions.FAILED, db_versions.Failure(
            str(error), exceptions.code_of(error)), when)


def prune(session: orm.Session, before: datetime.datetime) -> int:
    """Delete tasks that ended before an instant; return how many."""
    table = models.VersionTask
    return session.execute(
        sa.delete(table).where(table.state.in_(versions.ENDED),
                               table.updated_at < before)
        .execution_options(synchronize_session=False)).rowcount


def open_of_kind(session: orm.Session, kind: str, project_id: str) -> bool:
    """Return whether a project has an open task of a kind."""
    table = models.VersionTask
    return session.scalar(
        sa.select(table.id).where(
            table.project_id == project_id, table.kind == kind,
            table.state.not_in(versions.ENDED)).limit(1)) is not None


def work_on(session: orm.Session, version_id: str,
            kinds: collections.abc.Collection[str]
            ) -> list[models.VersionTask]:
    """Return the rows of open tasks on a version, to change them."""
    table = models.VersionTask
    return list(session.scalars(
        sa.select(table).where(table.version_id == version_id,
                               table.kind.in_(list(kinds)),
                               table.state.not_in(versions.ENDED))
        .with_for_update()))


def cancel_work(session: orm.Session, version_id: str,
                kinds: collections.abc.Collection[str],
                when: datetime.datetime) -> list[tuple[str, str | None]]:
    """Cancel the tasks on a backup of a volume.

    :returns: those that have begun, with their hosts, which are to be notified
    """
    begun = []
    for row in work_on(session, version_id, kinds):
        if row.seen_at is None:
            _end(session, row, versions.CANCELLED, _CANCELLED, when)
        else:
            row.cancelling = True
            begun.append((row.id, row.host))
    return begun


def is_being_forgotten(session: orm.Session, version_id: str) -> bool:
    """Return whether a version has an open task that deletes it."""
    table = models.VersionTask
    return session.scalar(
        sa.select(table.id).where(
            table.version_id == version_id, table.kind == versions.FORGET,
            table.state.not_in(versions.ENDED)).limit(1)) is not None


def servers_saving(session: orm.Session) -> set[str | None]:
    """Return the IDs of servers with a save that has not ended."""
    table = models.VersionTask
    return set(session.scalars(
        sa.select(table.server_id).where(
            table.kind == versions.SAVE,
            table.state.not_in(versions.ENDED))))


def list_tasks(session: listing.Reader, viewer: listing.Viewer,
               filters: collections.abc.Mapping[str, typing.Any],
               page: listing.Page) -> listing.Part:
    """List the tasks that a viewer may see, the latest first.

    :param filters: server_id, version_id, project_id, state, kind
    """
    table = models.VersionTask
    visible = _visible(viewer)
    part = listing.part_by_time(
        session, listing.narrowed(visible, table, filters, _FILTERS),
        listing.Latest(table.created_at, visible), page)
    _complete(part.entries)
    return part


def get_task(session: listing.Reader, viewer: listing.Viewer, task_id: str
             ) -> listing.Entry:
    """Return one task, as :func:`list_tasks` shows it.

    :raises NotFound: there is none that the viewer may see
    """
    entry = listing.only(
        session, _visible(viewer).where(models.VersionTask.id == task_id),
        unknown_task(task_id))
    _complete([entry])
    return entry


def unknown_task(task_id: str) -> exceptions.NotFound:
    """Return the error for a task that the caller cannot see."""
    return exceptions.NotFound(
        f'Task {task_id} is unknown; tasks that ended are forgotten after a'
        f' while.')


def _visible(viewer):
    return listing.of_viewer(models.VersionTask, _SHOWN, viewer)


def _complete(entries):
    for entry in entries:
        entry['result'] = json.loads(entry['result'])


def _find(session, task_id):
    return session.scalar(sa.select(models.VersionTask).where(
        models.VersionTask.id == task_id).with_for_update())


def _task(row) -> objects.VersionTask:
    return objects.VersionTask.load(json.loads(row.task))


def _done(session, row, reported, when):
    """Apply a finished task's result to its version."""
    result = json.loads(reported.result)
    row.state, row.result = versions.DONE, reported.result
    row.error = row.error_code = None
    stores.note_done(session, row, result.get('packs_left', 0), when)
    if row.kind == versions.SAVE:
        _saved(session, row, row.version_id, reported.saved, when)
    elif row.kind == versions.EXPORT:
        [disk] = _task(row).disks
        db_versions.exported(session, row.version_id, disk.version,
                             result['image_id'])
    elif row.kind == versions.FORGET:
        db_versions.remove(session, row.version_id)
    elif row.kind == versions.VERIFY:
        row.result = json.dumps(result | {
            'versions_damaged': db_versions.with_disks(
                session, row.project_id,
                set(result.get('disks_damaged', ())))})


def _end(session, row, state, failure, when):
    """Apply the end of a task without a result to its version."""
    row.state, row.updated_at = state, when
    row.error, row.error_code = failure
    if row.kind == versions.SAVE:
        db_versions.failed(session, row.version_id, failure, when)
    elif row.kind == versions.FORGET:
        db_versions.stays(session, row.version_id,
                          state == versions.CANCELLED, failure, when)
    elif row.kind == versions.REKEY:
        stores.stop_rekeying(session, row.project_id, when)
    kept = _task(row).keep_version
    if kept is not None:
        kept_row = session.get(models.ServerVersion, kept)
        if kept_row is not None and kept_row.state == versions.SAVING:
            db_versions.failed(session, kept, failure, when)
