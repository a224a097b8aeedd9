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
"""Precache jobs, and how far each is at each host."""

import collections.abc
import datetime
import json
import typing

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.common import exceptions
from diffcache_openstack.db import listing
from diffcache_openstack.db import models
from diffcache_openstack import objects
from diffcache_openstack.objects import precache

_LISTS = ('images', 'families', 'hosts', 'aggregates', 'availability_zones')
_PLAIN = ('id', 'name', 'project_id', 'user_id', 'request_id', 'state',
          'generation', 'priority', 'rate', 'window', 'pinned', 'message',
          'expires_at')
_SHOWN = (*_PLAIN, *_LISTS, 'boot_set', 'created_at', 'updated_at')
CHANGEABLE = ('name', 'priority', 'rate', 'window', 'pinned', 'expires_at')
_PROGRESS = ('state', 'way', 'bytes_done', 'attempts', 'retry_at', 'message')
# Changes of these alone make no new plan.
_HARMLESS = {'name', 'expires_at'}

# Requests to expect soon for a job of the middle priority, and what steps of
# the priority double or halve them.
_REQUESTS = 10.0
_MIDDLE = 50
_DOUBLING = 10


class WantedImage(typing.NamedTuple):
    """An image that a job wants on each of its hosts.

    :ivar size: bytes of its content; None if it is gone
    """

    image_id: str
    content_id: str | None
    size: int | None


class Progress(typing.NamedTuple):
    """How far an image is at a host.

    :ivar attempts: that failed since the host was assigned it
    :ivar retry_at: when there is another
    """

    host: str
    image_id: str
    state: str
    way: str | None = None
    bytes_done: int = 0
    attempts: int = 0
    retry_at: datetime.datetime | None = None
    message: str | None = None


def create(session: orm.Session, job: objects.PrecacheJob,
           when: datetime.datetime, boot_set: bool = False) -> None:
    """Create a job, unless one with its ID exists.

    :param boot_set: whether it wants the boot sets of its images, not the
        images
    """
    if session.get(models.PrecacheJob, job.id) is not None:
        return
    session.add(models.PrecacheJob(
        **{name: getattr(job, name) for name in _PLAIN},
        **{name: json.dumps(getattr(job, name)) for name in _LISTS},
        boot_set=boot_set, is_open=False, dirty=True, created_at=when,
        updated_at=when))
    session.flush()


def get(session: orm.Session, job_id: str) -> objects.PrecacheJob:
    """Return a job.

    :raises NotFound: there is none with that id
    """
    return _job(_need(session, job_id))


def update(session: orm.Session, job_id: str, seen: int,
           values: dict[str, typing.Any], when: datetime.datetime) -> None:
    """Change some fields of a job.

    :param seen: the generation that the caller knows
    :raises NotFound: there is none with that id
    :raises Busy: it has another generation by now
    :raises Conflict: it has ended
    """
    row = _seen(session, job_id, seen)
    _check_living(row)
    for name in CHANGEABLE:
        if name in values:
            setattr(row, name, values[name])
    row.dirty = row.dirty or bool(set(values) - _HARMLESS)
    _touch(row, when)


def cancel(session: orm.Session, job_id: str, seen: int | None,
           when: datetime.datetime) -> None:
    """End a job; one that has ended stays as it is.

    :raises NotFound: there is none with that id
    :raises Busy: it has another generation by now than the one given
    """
    row = _seen(session, job_id, seen)
    if row.state in precache.LIVING:
        _end(session, row, precache.CANCELLED, when)


def mark(session: orm.Session, job_id: str) -> objects.PrecacheJob:
    """Mark a job as needing new plans.

    :raises NotFound: there is none with that id
    :raises Conflict: it has ended
    """
    row = _need(session, job_id)
    _check_living(row)
    row.dirty = True
    return _job(row)


def expire(session: orm.Session, now: datetime.datetime) -> list[str]:
    """End the jobs whose time is over; returns their ids."""
    table = models.PrecacheJob
    rows = session.scalars(sa.select(table).where(
        table.state.in_(precache.LIVING), table.expires_at <= now)).all()
    for row in rows:
        _end(session, row, precache.EXPIRED, now)
    return [row.id for row in rows]


def prune(session: orm.Session, before: datetime.datetime) -> int:
    """Delete jobs that ended before an instant; return how many."""
    table = models.PrecacheJob
    old = list(session.scalars(sa.select(table.id).where(
        table.state.not_in(precache.LIVING), table.updated_at < before)))
    for column in (models.PrecacheTarget.job_id, table.id):
        session.execute(sa.delete(column.class_).where(column.in_(old))
                        .execution_options(synchronize_session=False))
    return len(old)


def living(session: orm.Session) -> list[objects.PrecacheJob]:
    """List active jobs, the most important first."""
    table = models.PrecacheJob
    return [_job(row) for row in session.scalars(
        sa.select(table).where(table.state.in_(precache.LIVING))
        .order_by(table.priority.desc(), table.created_at, table.id))]


def boot_set_jobs(session: orm.Session) -> set[str]:
    """Return the ids of jobs that want boot sets, also of ended ones."""
    table = models.PrecacheJob
    return set(session.scalars(sa.select(table.id).where(table.boot_set)))


def boot_set_pins(session: orm.Session, site: str) -> list[tuple[str, str]]:
    """Return (host, content id) of the sets that jobs want at a site.

    Those of the most important jobs come first. A job whose window is closed
    keeps what it has brought already.
    """
    job, target = models.PrecacheJob, models.PrecacheTarget
    rows = session.execute(
        sa.select(target.host, target.content_id,
                  sa.func.max(job.priority).label('priority'))
        .join(job, job.id == target.job_id)
        .join(models.Host, models.Host.name == target.host)
        .where(models.Host.site == site, target.content_id.is_not(None),
               job.boot_set, job.state.in_(precache.LIVING),
               sa.or_(job.is_open, target.state == precache.READY))
        .group_by(target.host, target.content_id)
        .order_by(sa.desc('priority'), target.host, target.content_id))
    return [(host, content_id) for host, content_id, _priority in rows
            if content_id is not None]


def dirty(session: orm.Session) -> list[objects.PrecacheJob]:
    """List jobs, ended or not, whose sites need a new plan."""
    table = models.PrecacheJob
    return [_job(row) for row in session.scalars(
        sa.select(table).where(table.dirty).order_by(
            table.priority.desc(), table.id))]


def clean(session: orm.Session, job_id: str, generation: int) -> None:
    """Note that plans were made, unless the job was changed meanwhile."""
    table = models.PrecacheJob
    session.execute(
        sa.update(table).where(table.id == job_id,
                               table.generation == generation)
        .values(dirty=False).execution_options(synchronize_session=False))


def set_open(session: orm.Session, job_id: str, is_open: bool) -> None:
    """Note whether a job's time window is open."""
    row = _need(session, job_id)
    if row.is_open != is_open:
        row.is_open, row.dirty = is_open, True


def set_message(session: orm.Session, job_id: str, message: str | None
                ) -> None:
    """Set or clear the message of a job."""
    _need(session, job_id).message = message


def wanted_images(session: orm.Session, job: objects.PrecacheJob
                  ) -> list[WantedImage]:
    """List the images of a job by ID: named ones and those of families."""
    table = models.Image
    rows = session.execute(
        sa.select(table.id, table.content_id, table.data_size, table.status)
        .where(sa.or_(table.id.in_([*job.images, *job.families]),
                      table.family.in_(job.families)))).all()
    found = {image_id: WantedImage(image_id, content_id, size)
             for image_id, content_id, size, status in rows
             if status == objects.ACTIVE}
    for image_id in job.images:
        found.setdefault(image_id, WantedImage(image_id, None, None))
    return [found[image_id] for image_id in sorted(found)]


def sync_targets(session: orm.Session, job_id: str,
                 hosts: collections.abc.Sequence[str],
                 images: collections.abc.Sequence[WantedImage],
                 when: datetime.datetime) -> bool:
    """Set a job's targets to the given images at the given hosts.

    Those of a job that has ended stay as they are.

    :returns: whether there was another one
    """
    job = _need(session, job_id)
    if job.state not in precache.LIVING:
        return False
    table = models.PrecacheTarget
    rows = {(row.host, row.image_id): row for row in session.scalars(
        sa.select(table).where(table.job_id == job_id))}
    known = {image.image_id: image for image in images}
    wanted = {(host, image) for host in hosts for image in known}
    for key in rows.keys() - wanted:
        session.delete(rows[key])
    added = sorted(wanted - rows.keys())
    session.add_all(
        models.PrecacheTarget(
            job_id=job_id, host=host, image_id=image,
            content_id=known[image].content_id, state=precache.WAITING,
            bytes_total=known[image].size or 0, bytes_done=0,
            updated_at=when)
        for host, image in added)
    changed = bool(added or rows.keys() - wanted)
    for key in wanted & rows.keys():
        image = known[key[1]]
        rows[key].content_id = image.content_id
        # A boot set has no size before anything is known of boots.
        changed |= not rows[key].bytes_total and bool(image.size)
        rows[key].bytes_total = image.size or 0
    session.flush()
    job.dirty = job.dirty or changed
    return changed


def targets(session: orm.Session, job_id: str
            ) -> list[models.PrecacheTarget]:
    """Select rows of a job's targets."""
    table = models.PrecacheTarget
    return list(session.scalars(
        sa.select(table).where(table.job_id == job_id)
        .order_by(table.host, table.image_id)))


def set_progress(session: orm.Session, job_id: str,
                 progress: collections.abc.Sequence[Progress],
                 when: datetime.datetime) -> None:
    """Note how far the targets of a job are; the job's state follows.

    Those of a job that has ended meanwhile stay as they are.
    """
    # Locked before the targets, in the order in which a job is ended.
    job = _need(session, job_id)
    if job.state not in precache.LIVING:
        return
    rows = {(row.host, row.image_id): row
            for row in targets(session, job_id)}
    for found in progress:
        row = rows.get((found.host, found.image_id))
        if row is None or all(getattr(row, name) == getattr(found, name)
                              for name in _PROGRESS):
            continue
        for name in _PROGRESS:
            setattr(row, name, getattr(found, name))
        row.updated_at = when
    ready = bool(rows) and all(row.state == precache.READY
                               for row in rows.values())
    job.state = precache.READY if ready else precache.RUNNING


def demand(session: orm.Session, site: str) -> list[objects.PrecacheDemand]:
    """Return the demand that jobs add to a site.

    A job whose window is closed adds what it has brought already, so that it
    stays, and asks for no more.
    """
    job, target = models.PrecacheJob, models.PrecacheTarget
    rows = session.execute(
        sa.select(target.host, target.content_id,
                  sa.func.max(job.priority), sa.func.max(job.pinned))
        .join(job, job.id == target.job_id)
        .join(models.Host, models.Host.name == target.host)
        .where(models.Host.site == site, target.content_id.is_not(None),
               job.state.in_(precache.LIVING), sa.not_(job.boot_set),
               sa.or_(job.is_open, target.state == precache.READY))
        .group_by(target.host, target.content_id)
        .order_by(target.host, target.content_id))
    return [objects.PrecacheDemand(
        host=host, content_id=content_id, pinned=bool(pinned),
        requests=_REQUESTS * 2 ** ((priority - _MIDDLE) / _DOUBLING))
        for host, content_id, priority, pinned in rows]


def planned_objects(session: orm.Session) -> set[tuple[str, str]]:
    """Return host and id of every object of a current plan."""
    item = models.PlanItem
    rows = session.execute(
        sa.select(item.host, item.object_id)
        .join(models.Plan, models.Plan.id == item.plan_id)
        .join(models.Site, sa.and_(
            models.Site.name == models.Plan.site,
            models.Site.plan_generation == models.Plan.generation)))
    return {(host, object_id) for host, object_id in rows}


def sites_of(session: orm.Session, job_id: str) -> list[str]:
    """Return sites of the hosts of a job, by name."""
    return list(session.scalars(
        sa.select(models.Host.site).distinct()
        .join(models.PrecacheTarget,
              models.PrecacheTarget.host == models.Host.name)
        .where(models.PrecacheTarget.job_id == job_id)
        .order_by(models.Host.site)))


def list_jobs(session: listing.Reader, viewer: listing.Viewer,
              filters: collections.abc.Mapping[str, typing.Any],
              page: listing.Page) -> listing.Part:
    """List the jobs that a viewer may see, by ID, with their progress.

    :param filters: state, project_id
    """
    query = listing.narrowed(_visible(viewer), models.PrecacheJob, filters,
                             ('state', 'project_id'))
    part = listing.part_by_key(session, query, models.PrecacheJob.id, page)
    _complete(session, part.entries)
    return part


def get_job(session: listing.Reader, viewer: listing.Viewer, job_id: str
            ) -> listing.Entry:
    """Return one job, as :func:`list_jobs` shows it.

    :raises NotFound: there is none that the viewer may see
    """
    entry = listing.only(
        session, _visible(viewer).where(models.PrecacheJob.id == job_id),
        unknown_job(job_id))
    _complete(session, [entry])
    return entry


def list_targets(session: listing.Reader, job_id: str,
                 filters: collections.abc.Mapping[str, typing.Any],
                 page: listing.Page) -> listing.Part:
    """List the progress of a job by host and image.

    :param filters: state, host
    :raises InvalidInput: the marker is no target's id
    """
    table = models.PrecacheTarget
    query = listing.narrowed(
        sa.select(*listing.columns(table, (
            'host', 'image_id', *_PROGRESS, 'bytes_total',
            'updated_at'))).where(
            table.job_id == job_id), table, filters, ('state', 'host'))
    if page.marker is not None:
        host, separator, image_id = page.marker.rpartition('/')
        if not separator:
            raise exceptions.InvalidInput(
                f'The marker {page.marker} names no target; begin again'
                f' without one.')
        query = query.where(sa.or_(table.host > host, sa.and_(
            table.host == host, table.image_id > image_id)))
    rows = session.execute(
        query.order_by(table.host, table.image_id).limit(page.limit + 1)
    ).mappings()
    return listing.cut(
        [{'id': f'{row["host"]}/{row["image_id"]}', **listing.plain(row)}
         for row in rows], page, 'id')


def target_hosts(session: listing.Reader, job_id: str) -> list[str]:
    """Return the names of the hosts of a job's targets."""
    table = models.PrecacheTarget
    return list(session.execute(
        sa.select(table.host).where(table.job_id == job_id)
        .distinct().order_by(table.host)).scalars())


def unknown_job(job_id: str) -> exceptions.NotFound:
    """Return the error for a job that the caller cannot see."""
    return exceptions.NotFound(
        f'Precache job {job_id} is unknown; see "openstack image precache'
        f' list".')


def _visible(viewer):
    return listing.of_viewer(models.PrecacheJob, _SHOWN, viewer)


def _complete(session, entries):
    """Add progress, and lists in place of their texts."""
    table = models.PrecacheTarget

    def count(state):
        return sa.func.sum(sa.case((table.state == state, 1), else_=0))

    rows = session.execute(
        sa.select(table.job_id, sa.func.count(), count(precache.READY),
                  count(precache.FAILED), sa.func.sum(table.bytes_total),
                  sa.func.sum(table.bytes_done))
        .where(table.job_id.in_([entry['id'] for entry in entries]))
        .group_by(table.job_id))
    known = {job_id: numbers for job_id, *numbers in rows}
    for entry in entries:
        numbers = known.get(entry['id'], (0,) * 5)
        entry['progress'] = dict(zip(
            ('targets', 'ready', 'failed', 'bytes', 'bytes_done'),
            (int(number) for number in numbers)))
        for name in _LISTS:
            entry[name] = json.loads(entry[name])


def _end(session, row, state, when):
    row.state, row.dirty = state, True
    _touch(row, when)
    table = models.PrecacheTarget
    session.execute(
        sa.update(table).where(table.job_id == row.id,
                               table.state != precache.READY)
        .values(state=precache.CANCELLED, updated_at=when)
        .execution_options(synchronize_session=False))


def _touch(row, when):
    row.generation += 1
    row.updated_at = when


def _check_living(row):
    if row.state not in precache.LIVING:
        raise exceptions.Conflict(
            f'Precache job {row.id} is {row.state}; create a new one.')


def _seen(session, job_id, seen):
    row = _need(session, job_id)
    if seen is not None and row.generation != seen:
        raise exceptions.Busy(
            f'Precache job {job_id} has generation {row.generation}, not'
            f' {seen}: it was changed meanwhile; read it again.')
    return row


def _need(session, job_id):
    row = session.scalar(sa.select(models.PrecacheJob).where(
        models.PrecacheJob.id == job_id).with_for_update())
    if row is None:
        raise unknown_job(job_id)
    return row


def _job(row):
    return objects.PrecacheJob(
        **{name: getattr(row, name) for name in _PLAIN},
        **{name: json.loads(getattr(row, name)) for name in _LISTS})
