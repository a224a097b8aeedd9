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
"""Profiles of images that no server has read yet, carried from similar ones.

A repository asks for work and gets the images that it holds whose profiles it
can carry: from *near* images, those that a patch to them is wanted or was
created from, or of the same content, else from those that are alike but too
different for a patch, such as other images of a distribution. Of several the
one that most instances have read counts. What it reports is used until enough
instances have read the image itself. Nothing is remembered of work that was
handed out: until it is done, or not wanted any more, the next search finds it
again.
"""

import datetime
import typing

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.common import exceptions
from diffcache_openstack.db.lazy import profiles as table_of_profiles
from diffcache_openstack.db import models
from diffcache_openstack.db.patches import pairs
from diffcache_openstack.db.sites import held_rows
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack.objects import catalogue
from diffcache_openstack.prefetch import profiles

# Profiles that one answer has at most.
_MOST_CARRIED = 64
# Times as many instances of the source from which it is carried again.
_NOTABLE = 2
# Stands for the instances of an image that is not near: any near one that was
# read replaces what was carried from it.
_FAR = 0


class ProfileSource(typing.NamedTuple):
    """A profile to carry.

    :ivar profile_id: of the image that was read
    :ivar content_id: of that image
    """

    profile_id: str
    content_id: str
    rows: profiles.Rows


class Work(typing.NamedTuple):
    """The profiles to carry to one image.

    :ivar content_id: of the image
    """

    image_id: str
    content_id: str
    sources: list[ProfileSource]


class CarriedProfile(typing.NamedTuple):
    """What a repository carried.

    :ivar host: its name
    :ivar image_id: that it was carried to
    :ivar profile_id: that it was carried from
    :ivar rows: [chunk, count, total_us]
    """

    host: str
    image_id: str
    profile_id: str
    rows: list


def work(session: orm.Session, host: str, after: str, share: bool
         ) -> Work | None:
    """Return what a repository can carry to the next image.

    :param after: images with this ID or a lower one are passed over
    :param share: whether projects share the profiles of public images
    :returns: None if there is no such image
    :raises NotFound: the host is not registered
    """
    wanted = _Wanted(share)
    query = wanted.query(host_rows.host_id(session, host))
    image_id = session.scalar(
        query.with_only_columns(wanted.target.id)
        .where(wanted.target.id > after)
        .order_by(wanted.target.id).limit(1))
    if image_id is None:
        return None
    rows = session.execute(
        query.with_only_columns(
            wanted.target.content_id, wanted.read.id.label('profile_id'),
            wanted.source.content_id.label('source_id'),
            wanted.read.project_id, wanted.read.label, wanted.read.rows)
        .where(wanted.target.id == image_id).order_by(*wanted.best_first)
        .limit(_MOST_CARRIED)).all()
    best = {}
    for row in rows:
        best.setdefault((row.project_id, row.label), row)
    return Work(image_id, rows[0].content_id, [
        ProfileSource(row.profile_id, row.source_id,
                      profiles.unpacked(row.rows))
        for row in best.values()])


def store(session: orm.Session, report: CarriedProfile, share: bool,
          when: datetime.datetime) -> bool:
    """Store what a repository carried.

    :param share: whether projects share the profiles of public images
    :returns: False if it is not wanted any more: an image or the profile is
        gone, the image has been read enough, or it was carried before
    :raises InvalidInput: a row cannot be one of the image, or counts more
        instances than the profile that it was carried from
    :raises NotFound: the host is not registered
    """
    wanted = _Wanted(share)
    found = session.execute(
        wanted.query(
            host_rows.host_id(session, report.host)).with_only_columns(
            wanted.target.size, wanted.source.id.label('source_id'),
            wanted.read.project_id, wanted.read.label, wanted.read.instances,
            wanted.near)
        .where(wanted.target.id == report.image_id,
               wanted.read.id == report.profile_id)
        .order_by(*wanted.best_first).limit(1)).first()
    if found is None or not report.rows:
        return False
    rows = profiles.parse(report.rows, found.size)
    if profiles.instances(rows) > found.instances:
        raise exceptions.InvalidInput(
            f'Profile {report.profile_id} counts {found.instances} instances,'
            f' and {profiles.instances(rows)} cannot have been carried from'
            f' it.')
    subject = table_of_profiles.Subject(report.image_id, found.project_id,
                                        found.label)
    if _has_most_labels(session, subject):
        return False
    _put(table_of_profiles.locked(session, subject, when), found,
         profiles.scaled(rows, profiles.HOST_SHARE), when)
    return True


def _put(profile, found, rows, when):
    profile.carried_from = found.source_id
    profile.carried_instances = found.instances if found.near else _FAR
    profile.carried_chunks = len(rows)
    profile.carried_rows = profiles.packed(rows)
    profile.generation += 1
    profile.updated_at = when


def supplemented(session: orm.Session, subject: table_of_profiles.Subject,
                 known: table_of_profiles.Advice | None
                 ) -> table_of_profiles.Advice | None:
    """Return what to boot with, with what was carried.

    While few instances are counted for the image, what was carried for the
    label is added with as much weight; without it, for the label whose
    profile had the most instances.

    :param known: what was read of the image itself; None for nothing
    """
    count = 0 if known is None else profiles.instances(known.rows)
    if count >= table_of_profiles.ENOUGH_INSTANCES:
        return known
    table = models.Profile
    found = session.scalar(
        sa.select(table).where(
            table.image_id == subject.image_id,
            table.project_id == subject.project_id, table.carried_chunks > 0)
        .order_by(table.label != subject.label,
                  table.carried_instances.desc(), table.label).limit(1))
    if found is None:
        return known
    rows = profiles.unpacked(typing.cast(bytes, found.carried_rows))
    if known is None:
        return table_of_profiles.Advice(found.id, found.generation, rows)
    generation = known.generation
    if found.id != known.id:
        generation += found.generation
    return table_of_profiles.Advice(
        known.id, generation, profiles.bounded(profiles.added(
            known.rows, profiles.scaled(rows, count))))


def _has_most_labels(session, subject):
    """Return whether an image can have no profile of a further label."""
    table = models.Profile
    labels = set(session.scalars(
        sa.select(table.label).where(
            table.image_id == subject.image_id,
            table.project_id == subject.project_id)))
    return subject.label not in labels \
        and len(labels) >= table_of_profiles.MOST_LABELS


def _similar():
    """Return pairs of similar contents, and whether they are near.

    Each content is near itself.
    """
    pair, content = models.PatchPair, models.Sketch.content_id
    near = sa.case((pair.state == pairs.DECLINED, 0), else_=1)
    # Not a condition of a join of images: no index answers "or".
    return sa.union_all(
        sa.select(pair.base.label('base'), pair.target.label('target'),
                  near.label('near')).where(pair.state != pairs.FOUND),
        sa.select(content, content, sa.literal(1))).subquery()


class _Wanted:
    """The profiles that are to be carried.

    :ivar read: a profile that servers have read
    :ivar source: its image
    :ivar target: an image that no or few servers have read
    :ivar near: whether both are near
    :ivar best_first: the order in which profiles of a target are preferred
    """

    def __init__(self, share: bool) -> None:
        self.read = orm.aliased(models.Profile)
        self.source = orm.aliased(models.Image)
        self.target = orm.aliased(models.Image)
        self._known = orm.aliased(models.Profile)
        self._similar = _similar()
        self.near = self._similar.c.near
        self.best_first = (self.near.desc(), self.read.instances.desc(),
                           self.read.id)
        self._share = share

    def query(self, host_id: int) -> sa.Select:
        """Return the query of all that a host can carry."""
        read, source, target = self.read, self.source, self.target
        known, similar = self._known, self._similar
        return (
            sa.select(read)
            .join(source, source.id == read.image_id)
            .join(similar, similar.c.base == source.content_id)
            .join(target, target.content_id == similar.c.target)
            .outerjoin(known, sa.and_(known.image_id == target.id,
                                      known.project_id == read.project_id,
                                      known.label == read.label))
            .where(read.chunks > 0, source.id != target.id,
                   source.status == catalogue.ACTIVE,
                   target.status == catalogue.ACTIVE,
                   held_rows.is_held(host_id, source.content_id),
                   held_rows.is_held(host_id, target.content_id),
                   self._may_learn(), self._is_due()))

    def _may_learn(self):
        """Return the condition that no project learns from another one."""
        read = self.read
        shared = read.project_id == table_of_profiles.SHARED
        both = (self.source, self.target)
        if self._share:
            return sa.or_(
                sa.and_(shared, *(image.visibility == catalogue.PUBLIC
                                  for image in both)),
                sa.and_(sa.not_(shared), *(sa.and_(
                    image.owner == read.project_id,
                    image.visibility != catalogue.PUBLIC)
                    for image in both)))
        return sa.and_(sa.not_(shared), *(sa.or_(
            image.owner == read.project_id,
            image.visibility == catalogue.PUBLIC) for image in both))

    def _is_due(self):
        """Return the condition that the target needs the profile."""
        known = self._known
        imported = sa.exists().where(
            models.ProfileContribution.profile_id == known.id,
            models.ProfileContribution.host == table_of_profiles.IMPORTED)
        return sa.or_(
            known.id.is_(None),
            sa.and_(known.instances < table_of_profiles.ENOUGH_INSTANCES,
                    sa.not_(imported), sa.or_(
                        known.carried_instances.is_(None),
                        sa.and_(self.near == 1, known.carried_instances
                                * _NOTABLE <= self.read.instances))))
