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
"""Boot sets: which hosts they are planned for, and what hosts report."""

import collections
import collections.abc
import datetime
import typing

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.db.lazy import profiles as profile_table
from diffcache_openstack.db import models
from diffcache_openstack.db.planning import plans
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack import objects
from diffcache_openstack.objects import boot_set
from diffcache_openstack.prefetch import boots
from diffcache_openstack.prefetch import profiles

_PRIVATE = 'private'
# A host that does not report for this long serves no image that arrives.
_REPORT_TIME = datetime.timedelta(minutes=15)
# That it reported is noted so often.
_NOTE_TIME = datetime.timedelta(minutes=1)
# Part of the chunks of a set that has to change to replace those of a host.
_MUCH = 0.1
_EXPLAINED = ('requests', 'wait_seconds', 'from_peer', 'saved_seconds',
              'pinned')
_REPORTED = ('state', 'held_bytes', 'message')


class BootReads(typing.NamedTuple):
    """What boots read of a content.

    :ivar image_id: of one of the images that have it
    :ivar bytes: of its chunks
    """

    image_id: str
    bytes: int
    rows: profiles.Rows


class BootContent(typing.NamedTuple):
    """A content that hosts may boot from, and how it is prefetched.

    :ivar size: bytes that a guest sees
    :ivar threshold: ``[lazy] threshold``
    """

    content_id: str
    size: int
    threshold: float


class PlannedSet(typing.NamedTuple):
    """A set that is planned for a host, and why.

    Units are those of :class:`.models.BootSet`.
    """

    host: str
    content_id: str
    image: BootReads
    requests: float
    wait_seconds: float
    from_peer: bool
    saved_seconds: float
    pinned: bool


class HeldSet(typing.NamedTuple):
    """What a host has of a set.

    :ivar state: one of :data:`.boot_set.STATES`
    :ivar message: why it failed last
    """

    content_id: str
    held_bytes: int
    state: str
    message: str | None = None


class SiteSets(typing.NamedTuple):
    """Sets of the hosts of a site.

    :ivar hosts: names of those that serve images while they arrive
    :ivar present: (host, content id) of sets that are there
    """

    hosts: frozenset[str]
    present: frozenset[tuple[str, str]]


class _Read(typing.NamedTuple):
    """What servers read of an image of this many bytes."""

    image_id: str
    size: int
    rows: profiles.Rows


def of_images(session: orm.Session, threshold: float) -> dict[str, BootReads]:
    """Return by content id what boots read, as far as others may know it.

    A set shows users of the content on its host what was read. So only
    profiles of all projects count. Of a content without any, those of a
    project count if all its images are private ones of one owner.

    :param threshold: ``[lazy] threshold``
    """
    return _of_images(session, threshold, sa.true())


def of_content(session: orm.Session, content_id: str, threshold: float
               ) -> BootReads | None:
    """Return what boots read of one content; see :func:`of_images`."""
    return _of_images(session, threshold,
                      models.Image.content_id == content_id).get(content_id)


def _of_images(session, threshold, which):
    """Return what boots read of some contents.

    :param which: condition of images
    """
    image, profile = models.Image, models.Profile
    private = _private_contents(session, which)
    read: dict[str, dict[str, _Read]] = collections.defaultdict(dict)
    for content_id, image_id, size, project, packed in session.execute(
            sa.select(image.content_id, image.id, image.size,
                      profile.project_id, profile.rows)
            .join(profile, profile.image_id == image.id)
            .where(image.status == objects.ACTIVE, profile.chunks > 0,
                   which)
            .order_by(image.content_id, image.id, profile.id)):
        by_project = read[content_id]
        known = by_project.get(project, _Read(image_id, size, {}))
        by_project[project] = known._replace(
            rows=profiles.added(known.rows, profiles.unpacked(packed)))
    found = ((content_id, _image(each, threshold))
             for content_id, by_project in read.items()
             for each in _that_others_may_know(
                 by_project, content_id in private))
    # Before a number of instances is reached, nothing is known of boots.
    return {content_id: reads for content_id, reads in found if reads.rows}


def _private_contents(session, which):
    """Return the contents that one owner alone can boot."""
    image = models.Image
    is_open = sa.case((image.visibility != _PRIVATE, 1), else_=0)
    return frozenset(session.scalars(
        sa.select(image.content_id)
        .where(image.status == objects.ACTIVE, which)
        .group_by(image.content_id)
        .having(sa.func.max(is_open) == 0,
                sa.func.count(image.owner.distinct()) == 1)))


def _that_others_may_know(by_project, is_private):
    """Return what was read, or nothing."""
    if profile_table.SHARED in by_project:
        return [by_project[profile_table.SHARED]]
    is_told = is_private and len(by_project) == 1
    return by_project.values() if is_told else []


def _image(read, threshold):
    rows = profiles.chosen(read.rows, threshold)
    return BootReads(read.image_id, profiles.size_of(rows, read.size), rows)


def standing(session: orm.Session, site: str, now: datetime.datetime
             ) -> SiteSets:
    """Return which hosts of a site may have sets, and which they have."""
    host, known = models.Host, models.BootSetHost
    table = models.BootSet
    names = frozenset(session.scalars(
        sa.select(host.name).join(known, known.host_id == host.id)
        .where(host.site == site,
               known.reported_at > now - _REPORT_TIME)))
    present = session.execute(
        sa.select(host.name, table.content_id)
        .join(table, table.host_id == host.id)
        .where(host.name.in_(names), table.held_bytes > 0))
    return SiteSets(names, frozenset((name, content_id)
                                     for name, content_id in present))


def reads(session: orm.Session, site: str, content: BootContent,
          now: datetime.datetime) -> dict[str, boots.Reads]:
    """Return what lazy boots read of a content at hosts of a site.

    :returns: by host, of those that serve images while they arrive; nothing
        if it is not known what boots read
    """
    image = of_content(session, content.content_id, content.threshold)
    if image is None:
        return {}
    host, known = models.Host, models.BootSetHost
    table = models.BootSet
    rows = session.execute(
        sa.select(host.name, table.rows, table.bytes, table.held_bytes)
        .join(known, known.host_id == host.id)
        .outerjoin(table, sa.and_(table.host_id == host.id,
                                  table.content_id == content.content_id))
        .where(host.site == site,
               known.reported_at > now - _REPORT_TIME)).all()
    # Most hosts have the same set.
    chunks = {packed: frozenset(profiles.unpacked(packed))
              for _name, packed, _bytes, held_bytes in rows if held_bytes}
    return boots.at_hosts(
        image.rows, content.size, [name for name, *_set in rows],
        {name: boots.HeldSet(chunks[packed], min(1.0, held_bytes / size))
         for name, packed, size, held_bytes in rows if held_bytes and size})


def serving(session: orm.Session, now: datetime.datetime) -> frozenset[str]:
    """Return the names of the hosts that report boot sets, of all sites."""
    host, known = models.Host, models.BootSetHost
    return frozenset(session.scalars(
        sa.select(host.name).join(known, known.host_id == host.id)
        .where(known.reported_at > now - _REPORT_TIME)))


def put_wanted(session: orm.Session, basis: plans.Basis,
               hosts: collections.abc.Iterable[str],
               wanted: collections.abc.Iterable[PlannedSet],
               now: datetime.datetime) -> None:
    """Replace the sets planned for some hosts; each gets them when it reports.

    Rows of a set that was planned before stay as long as they are
    much the same: what was fetched is not given up for little.

    :param basis: the plan that the sets were chosen beside
    :raises Busy: the site has another plan meanwhile
    """
    by_host: dict[str, list[PlannedSet]] = collections.defaultdict(list)
    for each in wanted:
        by_host[each.host].append(each)
    for name in sorted(hosts):
        host_id = session.scalar(sa.select(models.Host.id).where(
            models.Host.name == name).with_for_update())
        if host_id is not None:
            _put(session, host_id, by_host[name], now)
    # Last: reports lock hosts before they lock the site.
    plans.check_basis(session, basis)


def _put(session, host_id, wanted, now):
    known = _rows_of(session, host_id)
    before = _demanded(known.values())
    after = {each.content_id: each for each in wanted}
    for content_id, row in known.items():
        if content_id not in after:
            row.wanted = row.pinned = False
    for content_id, each in after.items():
        row = known.get(content_id)
        if row is None:
            row = known[content_id] = _new_row(host_id, content_id, now)
            session.add(row)
        if not row.wanted or _differ(profiles.unpacked(row.rows),
                                     each.image.rows):
            row.rows = profiles.packed(each.image.rows)
            row.bytes = each.image.bytes
        row.wanted, row.image_id = True, each.image.image_id
        for name in _EXPLAINED:
            setattr(row, name, getattr(each, name))
    if _demanded(known.values()) != before:
        _raise(session, host_id, now)
    _drop_unused(session, known.values())
    session.flush()


def _differ(old, new):
    """Return whether chunks of two sets differ much."""
    return len(old.keys() ^ new.keys()) > _MUCH * max(len(old), len(new))


def _demanded(rows):
    return {(row.content_id, row.bytes, row.rows)
            for row in rows if row.wanted}


def exchange(session: orm.Session, host: str,
             reports: collections.abc.Iterable[HeldSet], known: int | None,
             now: datetime.datetime) -> dict[str, typing.Any] | None:
    """Replace what a host reported; return the sets planned for it.

    A host that reports first makes its site due for a plan.

    :param known: generation of the sets that the host knows
    :returns: ``generation`` and ``sets``, each with ``content_id``,
        ``image_id``, ``bytes`` and ``rows``; None if the host knows them
    :raises NotFound: the host is not registered
    """
    host_id = host_rows.lock_host(session, host)
    row = session.get(models.BootSetHost, host_id)
    if row is None:
        row = models.BootSetHost(
            host_id=host_id, reported_at=now,
            generation=int(now.timestamp()))
        session.add(row)
        plans.set_planned(session, session.scalar(sa.select(
            models.Host.site).where(models.Host.id == host_id)), None)
    elif row.reported_at < now - _NOTE_TIME:
        row.reported_at = now
    rows = _rows_of(session, host_id)
    _note(session, host_id, rows,
          {each.content_id: each for each in reports}, now)
    _drop_unused(session, rows.values())
    session.flush()
    if row.generation == known:
        return None
    return {'generation': row.generation, 'sets': [
        {'content_id': each.content_id, 'image_id': each.image_id,
         'bytes': each.bytes,
         'rows': profiles.listed(profiles.unpacked(each.rows))}
        for _content_id, each in sorted(rows.items()) if each.wanted]}


def _note(session, host_id, rows, reports, now):
    for content_id, row in rows.items():
        found = reports.get(content_id, HeldSet(
            content_id, 0, boot_set.WAITING))
        values = found.held_bytes, found.state, found.message
        if values != (row.held_bytes, row.state, row.message):
            row.held_bytes, row.state, row.message = values
            row.updated_at = now
    for content_id, found in reports.items():
        if content_id not in rows and found.held_bytes:
            row = rows[content_id] = _new_row(host_id, content_id, now)
            for name in _REPORTED:
                setattr(row, name, getattr(found, name))
            session.add(row)


def _drop_unused(session, rows):
    """Remove sets that a host neither has nor is planned to have."""
    for row in rows:
        if not row.wanted and not row.held_bytes:
            if row in session.new:
                session.expunge(row)
            else:
                session.delete(row)


def _new_row(host_id, content_id, now):
    return models.BootSet(
        host_id=host_id, content_id=content_id, image_id='', wanted=False,
        pinned=False, bytes=0, rows=profiles.packed({}), requests=0.0,
        wait_seconds=0.0, from_peer=False, saved_seconds=0.0,
        state=boot_set.WAITING, held_bytes=0, message=None, updated_at=now)


def _rows_of(session, host_id):
    table = models.BootSet
    return {row.content_id: row for row in session.scalars(
        sa.select(table).where(table.host_id == host_id))}


def _raise(session, host_id, now):
    """Raise a host's generation of sets, so that it fetches them.

    Generations are times: they also rise after the database was restored.
    """
    row = session.get(models.BootSetHost, host_id)
    if row is not None:
        row.generation = max(row.generation + 1, int(now.timestamp()))


def by_object(session: orm.Session
              ) -> dict[tuple[str, str], models.BootSet]:
    """Return the sets of all hosts, by host and content id.

    Without ``rows``, which are most of the bytes.
    """
    table = models.BootSet
    rows = session.execute(
        sa.select(models.Host.name, table)
        .join(table, table.host_id == models.Host.id)
        .options(orm.defer(table.rows, raiseload=True)))
    return {(name, row.content_id): row for name, row in rows}
