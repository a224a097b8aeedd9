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

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.common import exceptions
from diffcache_openstack.db import listing
from diffcache_openstack.db import models
from diffcache_openstack.db import quota_usage
from diffcache_openstack.db.versions import versions as db_versions
from diffcache_openstack import objects
from diffcache_openstack.objects import versions

_SHOWN = ('id', 'kind', 'state', 'project_id', 'server_id', 'version_id',
          'host', 'done', 'total', 'result', 'error', 'error_code',
          'created_at', 'updated_at')
_FILTERS = ('server_id', 'version_id', 'project_id', 'state', 'kind')


class Open(typing.NamedTuple):
    """A task that has not ended.

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
        task=json.dumps(task.obj_to_primitive()), created_at=when,
        updated_at=when))
    session.flush()


def is_known(session: orm.Session, task_id: str) -> bool:
    """Return whether a task with an ID exists, or did not long ago."""
    return session.get(models.VersionTask, task_id) is not None


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
    row.state, row.host, row.sent_at = versions.RUNNING, host, when
    row.updated_at = when
    return True


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
        _end(session, row, versions.CANCELLED, db_versions.Failure(
            'It was cancelled.', 'cancelled'), when)
        return None
    return row.host


def report(session: orm.Session, reported: objects.TaskReport,
           when: datetime.datetime, host: str | None = None) -> bool:
    """Note how far a host is with a task.

    :param host: that reports it; None if that was not verified
    :returns: whether the host shall continue; False if the task is cancelled
    :raises Forbidden: the task was sent to another host
    """
    row = _find(session, reported.task_id)
    if row is None or row.state in versions.ENDED:
        return False
    if host not in (None, row.host):
        raise exceptions.Forbidden(
            f'Host {host} reported task {reported.task_id}, which was sent to'
            f' {row.host}.')
    row.done, row.total = reported.done, reported.total
    row.seen_at = row.updated_at = when
    if reported.store_bytes is not None:
        quota_usage.set_store_size(session, row.project_id,
                                   reported.store_bytes, when)
    if reported.kept is not None:
        db_versions.saved(session, _task(row).keep_version, row.host,
                          reported.kept, when)
    if reported.state == versions.DONE:
        _done(session, row, reported, when)
    elif reported.state in versions.ENDED:
        _end(session, row, reported.state, db_versions.Failure(
            reported.error, reported.error_code), when)
    return True


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


def last_of_kind(session: orm.Session, kind: str
                 ) -> dict[str, datetime.datetime]:
    """Return the time of the last task of a kind, by project."""
    table = models.VersionTask
    rows = session.execute(
        sa.select(table.project_id, sa.func.max(table.created_at))
        .where(table.kind == kind).group_by(table.project_id))
    return {project_id: when for project_id, when in rows}


def unfinished_rekeys(session: orm.Session) -> list[str]:
    """List projects whose stores have packs that are to be rewritten.

    The last task of the kind was done, and has left some.
    """
    table = models.VersionTask
    rows = session.execute(
        sa.select(table.project_id, table.state, table.result)
        .where(table.kind == versions.REKEY)
        .order_by(table.created_at, table.id))
    last = {project_id: (state, result) for project_id, state, result in rows}
    return [project_id for project_id, (state, result) in last.items()
            if state == versions.DONE and json.loads(result).get(
                'packs_left')]


def list_tasks(session: listing.Reader, viewer: listing.Viewer,
               filters: collections.abc.Mapping[str, typing.Any],
               page: listing.Page) -> listing.Part:
    """List the tasks that a viewer may see, the latest first.

    :param filters: server_id, version_id, project_id, state, kind
    """
    table = models.VersionTask
    query = listing.narrowed(_visible(viewer), table, filters, _FILTERS)
    part = listing.part_by_time(session, query, table, page,
                                table.created_at)
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
    """Draw the conclusions of a task that was done."""
    result = json.loads(reported.result)
    row.state, row.result = versions.DONE, reported.result
    row.error = row.error_code = None
    if row.kind == versions.SAVE:
        db_versions.saved(session, row.version_id, row.host, reported.saved,
                          when)
    elif row.kind == versions.EXPORT:
        db_versions.exported(session, row.version_id, result['image_id'])
    elif row.kind == versions.FORGET:
        db_versions.remove(session, row.version_id)
    elif row.kind == versions.VERIFY and 'disks_damaged' in result:
        # An agent of an older release does not tell.
        row.result = json.dumps(result | {
            'versions_damaged': db_versions.with_disks(
                session, row.project_id, set(result['disks_damaged']))})


def _end(session, row, state, failure, when):
    """Draw the conclusions of a task that came to nothing."""
    row.state, row.updated_at = state, when
    row.error, row.error_code = failure
    if row.kind in (versions.SAVE, versions.FORGET):
        db_versions.failed(session, row.version_id, failure, when)
    kept = _task(row).keep_version
    if kept is not None:
        kept_row = session.get(models.ServerVersion, kept)
        if kept_row is not None and kept_row.state == versions.SAVING:
            db_versions.failed(session, kept, failure, when)
