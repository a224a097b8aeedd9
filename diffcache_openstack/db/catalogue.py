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
"""Images and patches.

Registration is idempotent: registering the same twice is no error, registering
something else of the content under the same id is.

An image that was withdrawn (deactivated or deleted) stays in the catalogue, so
that every agent learns that it must not be served. It takes no part in
anything else: no patch is made for it, no plan has it.
"""

import collections.abc
import datetime

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.common import exceptions
from diffcache_openstack.db import models
from diffcache_openstack.db.patches import pairs as patch_pairs
from diffcache_openstack.db.patches import sketches
from diffcache_openstack.db.planning import plans
from diffcache_openstack.db.sites import generations
from diffcache_openstack import objects
from diffcache_openstack.objects import fingerprints

# Weight of a new measurement in a patch's time: settles within some ten
# applications and forgets a slow one as quickly.
_NEW_MEASUREMENT = 0.25
# Rows per statement, below the limits on parameters of all engines.
_BATCH = 400
# What a registration may change of an image that is known.
_CHANGEABLE = ('name', 'size', 'data_size', 'disk_format', 'file_size',
               'os_hash_algo', 'os_hash_value', 'owner', 'visibility',
               'status', 'form_id', 'form_size', 'family', 'record',
               'compressed_size')
# What all repositories have to say alike of an image's file.
_FILE_FACTS = ('size', 'disk_format', 'file_size', 'os_hash_algo',
               'os_hash_value')


def put_image(
        session: orm.Session, image: objects.Image,
        when: datetime.datetime,
        keeps_record: collections.abc.Callable[
            [orm.Session, objects.Image, objects.Image], bool
        ] | None = None
) -> tuple[objects.Image, set[str]]:
    """Register an image; of a known one all but the content may be new.

    An image that was deleted stays deleted: Glance uses no id twice, so
    a report that differs is outdated.

    :param keeps_record: says whether the record of the known image is to
        be kept in place of the new one's; None to take the new one's
    :returns: the image, and the sites whose map changed
    :raises Conflict: the id is registered with other content, or the record
        that is kept names another file
    """
    row = session.get(models.Image, image.id)
    _settle_compressed_size(row, image)
    if row is not None and row.content_id != image.content_id:
        raise exceptions.Conflict(
            f'Image {image.id} is registered with content'
            f' {row.content_id}, not {image.content_id}; register the new'
            f' content under a new id, or remove the image first.')
    if row is not None and keeps_record and keeps_record(
            session, _image(row), image):
        _keep_record(row, image)
    if row is not None and (row.status == objects.DELETED
                            or _same(row, image)):
        return _image(row), set()
    if row is None:
        row = models.Image(id=image.id, content_id=image.content_id,
                           created_at=image.created_at or when)
        session.add(row)
    elif _same_to_hosts(row, image):
        # Whom it is shared with, Glance and Nova check by themselves.
        _set_members(row, image.members)
        session.flush()
        return _image(row), set()
    family_changed = row.family != image.family
    for name in _CHANGEABLE:
        setattr(row, name, getattr(image, name))
    _set_members(row, image.members)
    session.flush()
    _follow_content(session, row.content_id, family_changed)
    changes = _changes_of(session, row)
    if row.status == objects.DELETED:
        _remove_orphans(session)
    return _image(row), generations.raise_all_generations(session, changes)


def images_of(session: orm.Session,
              image_ids: collections.abc.Sequence[str]
              ) -> list[objects.Image]:
    """Return those of some images that there are, by id."""
    found = []
    for start in range(0, len(image_ids), _BATCH):
        found += map(_image, session.scalars(
            sa.select(models.Image).where(models.Image.id.in_(
                image_ids[start:start + _BATCH]))))
    return sorted(found, key=lambda image: image.id)


def find_unregistered_images(
        session: orm.Session,
        given: collections.abc.Mapping[str, fingerprints.Fingerprint],
        keeps_record: collections.abc.Callable[
            [orm.Session, objects.Image], bool]
) -> list[str]:
    """Return the images that are not in the catalogue as a repository's are.

    :param given: its fingerprints by image id
    :param keeps_record: says whether the record of a known image stays
        in place of that repository's
    """
    same = set()
    for image in images_of(session, list(given)):
        known = fingerprints.of_image(image)
        wanted = given[image.id]
        if known == wanted or image.status == objects.DELETED or (
                known.common == wanted.common
                and keeps_record(session, image)):
            same.add(image.id)
    return [name for name in given if name not in same]


def find_unregistered_patches(
        session: orm.Session,
        given: collections.abc.Sequence[objects.Patch]) -> list[str]:
    """Return the patches, of some, whose pair has none that can be read."""
    found = []
    for start in range(0, len(given), _BATCH):
        batch = given[start:start + _BATCH]
        known = set(session.scalars(sa.select(models.Patch.id).where(
            models.Patch.id.in_([patch.id for patch in batch]))))
        found += [patch.id for patch in batch if patch.id not in known
                  and not _has_readable_patch(session, patch)]
    return found


def _has_readable_patch(session, pair):
    row = session.scalar(sa.select(models.Patch).where(
        models.Patch.base == pair.base, models.Patch.target == pair.target))
    return row is not None and not patch_pairs.is_lost(session, row.id)


def patches_of(session: orm.Session,
               patch_ids: collections.abc.Sequence[str]
               ) -> list[objects.Patch]:
    """Return those of some patches that a map has, by id."""
    found: list[models.Patch] = []
    for start in range(0, len(patch_ids), _BATCH):
        found += session.scalars(sa.select(models.Patch).where(
            models.Patch.id.in_(patch_ids[start:start + _BATCH])))
    # Not in the same statement: SQLite would look through all patches.
    active = _active_of(session, sorted(
        {content for row in found for content in (row.base, row.target)}))
    return [_patch(row) for row in sorted(found, key=lambda row: row.id)
            if active >= {row.base, row.target}]


def _active_of(session, contents):
    """Return which of some contents an active image has."""
    found = set()
    for start in range(0, len(contents), _BATCH):
        found.update(session.scalars(_active_contents().where(
            models.Image.content_id.in_(
                contents[start:start + _BATCH]))))
    return found


def get_image(session: orm.Session, image_id: str) -> objects.Image:
    """Return an image by its id.

    :raises NotFound: there is none
    """
    return _image(_need_image(session, image_id))


def list_images(session: orm.Session) -> list[objects.Image]:
    """Return all images that may be served, by id."""
    return [image for image in known_images(session)
            if image.status == objects.ACTIVE]


def known_images(session: orm.Session) -> list[objects.Image]:
    """Return all images, also those that were withdrawn, by id."""
    return [_image(row) for row in session.scalars(
        sa.select(models.Image).order_by(models.Image.id))]


def forget_deleted(session: orm.Session, before: datetime.datetime) -> int:
    """Remove deleted images that no host can have cached any more.

    :param before: those registered earlier than this, and held by no host
    :returns: how many were forgotten
    """
    held = sa.select(models.Holding.object_id).where(
        models.Holding.kind == objects.IMAGES)
    forgotten = list(session.scalars(sa.select(models.Image.id).where(
        models.Image.status == objects.DELETED,
        models.Image.created_at < before,
        models.Image.content_id.not_in(held))))
    for start in range(0, len(forgotten), _BATCH):
        session.execute(
            sa.delete(models.Image).where(
                models.Image.id.in_(forgotten[start:start + _BATCH]))
            .execution_options(synchronize_session=False))
    if forgotten:
        generations.raise_all_generations(session, [
            generations.Change(generations.IMAGE,
                               name) for name in forgotten])
    return len(forgotten)


def restore_image(session: orm.Session, image_id: str) -> set[str]:
    """Serve an image again that is marked as deleted.

    :returns: the sites whose map changed
    :raises NotFound: there is no such image
    :raises Conflict: it is not marked as deleted
    """
    row = _need_image(session, image_id)
    if row.status != objects.DELETED:
        raise exceptions.Conflict(
            f'Image {image_id} is {row.status}, not deleted; only the'
            f' image service changes that.')
    row.status = objects.ACTIVE
    session.flush()
    _follow_content(session, row.content_id)
    return generations.raise_all_generations(session,
                                             _changes_of(session, row))


def remove_image(session: orm.Session, image_id: str) -> set[str]:
    """Delete an image, and patches from or to a content without one.

    :returns: the sites whose map changed
    :raises NotFound: there is no such image
    """
    row = _need_image(session, image_id)
    changes = _changes_of(session, row)
    session.delete(row)
    session.flush()
    _follow_content(session, row.content_id)
    _remove_orphans(session)
    return generations.raise_all_generations(session, changes)


def put_patch(session: orm.Session, patch: objects.Patch,
              when: datetime.datetime) -> tuple[objects.Patch, set[str]]:
    """Register a patch; the first one of a pair stays while there is one.

    :returns: the patch that is registered for the pair, and the sites whose
        map changed
    :raises NotFound: no image has the content of an end
    """
    for content_id in (patch.base, patch.target):
        _need_content(session, content_id, patch.id)
    row = session.scalar(sa.select(models.Patch).where(sa.or_(
        models.Patch.id == patch.id,
        sa.and_(models.Patch.base == patch.base,
                models.Patch.target == patch.target))))
    changes = [generations.Change(generations.PATCH, patch.id)]
    if row is not None and row.id != patch.id \
            and patch_pairs.is_lost(session, row.id):
        changes.append(generations.Change(generations.PATCH, row.id))
        session.delete(row)
        session.flush()
        plans.drop_items(session, objects.PATCHES, sa.select(models.Patch.id))
        row = None
    if row is not None:
        patch_pairs.note_patch(session, row)
        return _patch(row), set()
    row = models.Patch(
        id=patch.id, base=patch.base, target=patch.target, size=patch.size,
        create_seconds=patch.create_seconds,
        apply_seconds=patch.apply_seconds, created_at=when)
    session.add(row)
    session.flush()
    patch_pairs.note_patch(session, row)
    return _patch(row), generations.raise_all_generations(session, changes)


def list_patches(session: orm.Session) -> list[objects.Patch]:
    """Return all patches between images that may be served, by ends."""
    return [_patch(row) for row in session.scalars(
        _listed_patches().order_by(models.Patch.base, models.Patch.target))]


def time_patch(session: orm.Session, patch_id: str, seconds: float) -> None:
    """Update a patch's expected time with a measured one.

    Maps are not marked as changed: the time is sent when something else
    changes, and alone is not worth sending.
    """
    row = session.get(models.Patch, patch_id)
    if row is None:
        return
    if row.apply_seconds:
        seconds = (row.apply_seconds
                   + _NEW_MEASUREMENT * (seconds - row.apply_seconds))
    row.apply_seconds = seconds
    generations.note_for_next(session,
                              generations.Change(generations.PATCH, patch_id))


def _changes_of(session, row):
    """Return what of maps may change with an image: its patches, too."""
    return [generations.Change(generations.IMAGE, row.id), *(
        generations.Change(generations.PATCH,
                           patch_id) for patch_id in session.scalars(
            sa.select(models.Patch.id).where(sa.or_(
                models.Patch.base == row.content_id,
                models.Patch.target == row.content_id))))]


def _follow_content(session, content_id, family_changed=False):
    if sketches.follow_content(session, content_id, family_changed):
        patch_pairs.withdraw_content(session, content_id)


def _need_image(session, image_id):
    row = session.get(models.Image, image_id)
    if row is None:
        raise exceptions.NotFound(
            f'Image {image_id} is not registered; see'
            f' "diffcache-manage image list".')
    return row


def _need_content(session, content_id, patch_id):
    found = session.scalar(sa.select(sa.func.count()).where(
        models.Image.content_id == content_id,
        models.Image.status != objects.DELETED))
    if not found:
        raise exceptions.NotFound(
            f'Patch {patch_id} names the content {content_id}, which no'
            f' image has; register the image first.')


def _listed_patches():
    # Not by IN: SQLite looks up each pair of contents in the index of pairs.
    return sa.select(models.Patch).where(
        *(sa.exists().where(models.Image.content_id == end,
                            models.Image.status == objects.ACTIVE)
          for end in (models.Patch.base, models.Patch.target)))


def _active_contents():
    return sa.select(models.Image.content_id).where(
        models.Image.status == objects.ACTIVE)


def _remove_orphans(session):
    """Remove what was there for images that are gone."""
    _remove_orphaned_patches(session)
    plans.drop_items(session, objects.IMAGES,
                     sa.select(models.Image.content_id).where(
                         models.Image.status != objects.DELETED))
    plans.drop_items(session, objects.PATCHES, sa.select(models.Patch.id))


def _remove_orphaned_patches(session):
    contents = sa.select(models.Image.content_id).where(
        models.Image.status != objects.DELETED)
    session.execute(
        sa.delete(models.Patch).where(sa.or_(
            models.Patch.base.not_in(contents),
            models.Patch.target.not_in(contents)))
        .execution_options(synchronize_session=False))


def _same(row, image):
    return (_same_to_hosts(row, image)
            and _members(row) == sorted(set(image.members)))


def _same_to_hosts(row, image):
    return all(getattr(row, name) == getattr(image, name)
               for name in _CHANGEABLE)


def _settle_compressed_size(row, image):
    """Replace a reported compressed size by the one to store.

    An agent that does not say leaves what is known. The form of incompressible
    content is some bytes longer than its data; no report counts for more.
    """
    if image.compressed_size is None:
        image.compressed_size = row and row.compressed_size
    elif image.compressed_size == 0:
        image.compressed_size = None
    if image.compressed_size is not None:
        image.compressed_size = min(image.compressed_size,
                                    image.data_size)


def _keep_record(row, image):
    """Leave what the record of a known image covers as it is."""
    for name in _FILE_FACTS:
        known, given = getattr(row, name), getattr(image, name)
        if known != given:
            raise exceptions.Conflict(
                f'Image {image.id} is registered by another repository'
                f' with {name} {known}, not {given}. Find out which of the'
                f' two has the file of Glance, and revoke the key of the'
                f' other (diffcache-manage host-key revoke).')
    for name in fingerprints.OF_RECORD:
        setattr(image, name, getattr(row, name))


def _members(row):
    return sorted(found.member for found in row.members)


def _set_members(row, members):
    kept = {found.member: found for found in row.members}
    row.members = [kept.get(member) or models.ImageMember(member=member)
                   for member in sorted(set(members))]


def _image(row):
    return objects.Image(
        id=row.id, content_id=row.content_id, created_at=row.created_at,
        members=_members(row),
        **{name: getattr(row, name) for name in _CHANGEABLE})


def _patch(row):
    return objects.Patch(
        id=row.id, base=row.base, target=row.target, size=row.size,
        create_seconds=row.create_seconds, apply_seconds=row.apply_seconds)
