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
"""Profiles of images: what instances read of them, by image and label."""

import datetime
import typing
import uuid

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.common import exceptions
from diffcache_openstack.db import models
from diffcache_openstack.objects import catalogue
from diffcache_openstack.prefetch import profiles

# Labels come from users: further ones of an image count for no label.
MOST_LABELS = 32
# Of the contribution that a user imported; no host is called that.
IMPORTED = ''
# Counted for a label before its profile is used alone.
ENOUGH_INSTANCES = 4
# Share of the instances whose reads are advice, by default.
_ADVISED = 0.1
# A host has what others counted halved no sooner again.
_AGING = datetime.timedelta(hours=1)
# Of profiles of all projects.
SHARED = ''


class Subject(typing.NamedTuple):
    """What a profile is of.

    :ivar project_id: whose servers it is of; :data:`SHARED` for all
    :ivar label: of servers that read alike; empty for none
    """

    image_id: str
    project_id: str
    label: str


def scope(session: orm.Session, image_id: str, projects: typing.Sequence[str],
          share: bool) -> str | None:
    """Return the project that reads of an image belong to.

    :param projects: whose servers have read
    :param share: whether projects share the profiles of public images
    :returns: :data:`SHARED` for all projects; None if the reads of several
        projects cannot be separated
    :raises NotFound: there is no such image
    """
    image = _need_image(session, image_id)
    if share and image.visibility == catalogue.PUBLIC:
        return SHARED
    return projects[0] if len(projects) == 1 else None


def report(session: orm.Session, subject: Subject, host: str,
           numbers: tuple[int, int], rows: list, when: datetime.datetime
           ) -> None:
    """Replace what a host has reported of a profile.

    :param numbers: of the run, and of the report within it
    :param rows: [chunk, count, total_us] of all of the run
    :raises InvalidInput: a row cannot be one of the image
    :raises NotFound: there is no such image
    """
    image = _need_image(session, subject.image_id)
    parsed = profiles.parse(rows, image.size)
    profile = locked(session, _within_limit(session, subject), when)
    known = session.get(models.ProfileContribution, (profile.id, host))
    before = _contribution(known)
    after = before.report(*numbers, parsed)
    if after is before:
        return
    others = profiles.without(profiles.unpacked(profile.rows),
                              before.counted())
    after = after.beside(others)
    aged_at = known.aged_at if known is not None else None
    if (aged_at is None or when - aged_at >= _AGING) and profiles.is_unread(
            profiles.chosen(others, _ADVISED), parsed):
        others, aged_at = profiles.halved(others), when
    _put(session, profile.id, host, after, aged_at)
    _set_rows(profile, profiles.added(others, after.counted()), when)


def import_rows(session: orm.Session, profile_id: str, subject: Subject,
                rows: list, when: datetime.datetime) -> models.Profile:
    """Add a profile that a user imports; it counts for as much as a host.

    What was imported into the same profile before is replaced.

    :param profile_id: the id of the profile if there is none yet
    :raises InvalidInput: a row cannot be one of the image
    :raises Conflict: the image has as many labels as are possible
    """
    image = _need_image(session, subject.image_id)
    parsed = profiles.parse(rows, image.size)
    if _within_limit(session, subject) != subject:
        raise exceptions.Conflict(
            f'Image {subject.image_id} has profiles of {MOST_LABELS} labels,'
            f' and no more are possible; delete one of them first.')
    profile = locked(session, subject, when, profile_id)
    known = session.get(models.ProfileContribution,
                        (profile.id, IMPORTED))
    before = _contribution(known)
    after = profiles.Contribution(rows=parsed)
    _put(session, profile.id, IMPORTED, after)
    _set_rows(profile, profiles.added(
        profiles.without(profiles.unpacked(profile.rows), before.counted()),
        after.counted()), when)
    _end_carried(profile)
    return profile


class Advice(typing.NamedTuple):
    """A profile to boot with.

    :ivar id: of the profile that most of it is from
    :ivar generation: another one for other rows
    """

    id: str
    generation: int
    rows: profiles.Rows


def find(session: orm.Session, subject: Subject) -> Advice | None:
    """Return what to boot with: the profile of the label.

    While few instances are counted there, that of the label with the most
    instances is added, with as much weight. None if nothing is known.
    """
    table = models.Profile
    found = session.scalars(
        sa.select(table)
        .where(table.image_id == subject.image_id,
               table.project_id == subject.project_id, table.chunks > 0)
        .order_by(table.label != subject.label, table.instances.desc(),
                  table.label).limit(2)).all()
    if not found:
        return None
    first = found[0]
    rows, generation = profiles.unpacked(first.rows), first.generation
    if first.label == subject.label and first.instances < ENOUGH_INSTANCES:
        for other in found[1:]:
            rows = profiles.added(rows, profiles.scaled(
                profiles.unpacked(other.rows), first.instances))
            generation += other.generation
    return Advice(first.id, generation, profiles.bounded(rows))


def delete(session: orm.Session, profile_id: str) -> None:
    """Delete a profile, which is learned anew.

    :raises NotFound: there is none
    """
    profile = session.get(models.Profile, profile_id)
    if profile is None:
        raise unknown_profile(profile_id)
    session.execute(
        sa.delete(models.ProfileContribution)
        .where(models.ProfileContribution.profile_id == profile_id)
        .execution_options(synchronize_session=False))
    session.delete(profile)


def locked(session: orm.Session, subject: Subject, when: datetime.datetime,
           profile_id: str | None = None) -> models.Profile:
    """Return the row of a profile, locked; an empty one if there is none.

    :param profile_id: of the row if there is none yet
    """
    table = models.Profile
    found = session.scalar(sa.select(table).where(
        *(getattr(table, name) == value
          for name, value in subject._asdict().items())).with_for_update())
    if found is None:
        found = table(id=profile_id or str(uuid.uuid4()), generation=0,
                      instances=0, chunks=0, rows=profiles.packed({}),
                      created_at=when, updated_at=when, **subject._asdict())
        session.add(found)
        session.flush()
    return found


def unknown_profile(profile_id: str) -> exceptions.NotFound:
    """Return the error for a profile that the caller cannot see."""
    return exceptions.NotFound(
        f'There is no profile {profile_id}; see "openstack image profile'
        f' list".')


def _need_image(session, image_id):
    image = session.get(models.Image, image_id)
    if image is None or image.status == catalogue.DELETED:
        raise exceptions.NotFound(
            f'Image {image_id} is not in the catalogue, so that it has no'
            f' profile.')
    return image


def _within_limit(session, subject):
    """Return the subject, without its label if the image has too many.

    Labels that nothing was counted for yet take no room.
    """
    table = models.Profile
    labels = set(session.scalars(
        sa.select(table.label).where(
            table.image_id == subject.image_id,
            table.project_id == subject.project_id, table.chunks > 0)))
    if subject.label in labels or len(labels) < MOST_LABELS:
        return subject
    return subject._replace(label='')


def _contribution(row):
    if row is None:
        return profiles.Contribution()
    return profiles.Contribution(row.run, row.number,
                                 profiles.unpacked(row.past),
                                 profiles.unpacked(row.rows))


def _put(session, profile_id, host, contribution, aged_at=None):
    session.merge(models.ProfileContribution(
        profile_id=profile_id, host=host, run=contribution.run,
        number=contribution.number, aged_at=aged_at,
        past=profiles.packed(contribution.past),
        rows=profiles.packed(contribution.rows)))


def _set_rows(profile, rows, when):
    profile.rows = profiles.packed(rows)
    profile.chunks = len(rows)
    profile.instances = profiles.instances(rows)
    profile.generation += 1
    profile.updated_at = when
    if profile.instances >= ENOUGH_INSTANCES:
        _end_carried(profile)


def _end_carried(profile):
    """Forget what was carried: what was read of the image itself is enough."""
    profile.carried_from = profile.carried_instances = None
    profile.carried_chunks = profile.carried_rows = None
