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
"""Images and patches as listings show them."""

import collections.abc
import functools
import typing

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.common import exceptions
from diffcache_openstack.db import listing
from diffcache_openstack.db import models
from diffcache_openstack import objects

_SHOWN = ('id', 'name', 'content_id', 'size', 'data_size', 'disk_format',
          'file_size', 'owner', 'visibility', 'status', 'family',
          'created_at', 'compressed_size')
_COLUMNS = ('name', 'content_id', 'owner', 'visibility', 'status', 'family',
            'disk_format')
_PATCH_SHOWN = ('id', 'base', 'target', 'size', 'create_seconds',
                'apply_seconds', 'created_at')
# Every project may know of these.
_OPEN = ('public', 'community')


def list_images(session: listing.Reader, viewer: listing.Viewer,
                filters: collections.abc.Mapping[str, typing.Any],
                page: listing.Page) -> listing.Part:
    """List the images that a viewer may see, by ID, with locations.

    Those that were deleted are there only if the filter asks for them.

    :param filters: columns, and host: the name of one that holds it
    """
    table = models.Image
    query = listing.narrowed(_visible(viewer), table, filters, _COLUMNS)
    if 'status' not in filters:
        query = query.where(table.status != objects.DELETED)
    if 'host' in filters:
        query = query.where(table.content_id.in_(
            sa.select(models.Holding.object_id).join(
                models.Host, models.Host.id == models.Holding.host_id).where(
                models.Host.name == filters['host'],
                models.Holding.kind == objects.IMAGES)))
    return listing.part_by_key(session, query, table.id, page)


def get_image(session: listing.Reader, viewer: listing.Viewer,
              image_id: str) -> listing.Entry:
    """Return one image, as :func:`list_images` shows it.

    :raises NotFound: there is none that the viewer may see
    """
    return listing.only(
        session, _visible(viewer).where(models.Image.id == image_id),
        unknown_image(image_id))


def locations(session: listing.Reader, content_id: str) -> list[listing.Entry]:
    """List living hosts that have a content whole, by name.

    An entry says whether the host's cache has it (``held``), and whether the
    agent reads it from Nova's (``borrowed``).
    """
    host, found = models.Host, dict[str, listing.Entry]()
    for name, table, condition in (
            ('held', models.Holding,
             models.Holding.kind == objects.IMAGES),
            ('borrowed', models.Borrowed, sa.true())):
        for row in session.execute(
                sa.select(host.name.label('host'), host.site, table.bytes)
                .join(table, table.host_id == host.id)
                .where(host.alive, condition,
                       table.object_id == content_id)).mappings():
            entry = found.setdefault(row['host'], {
                **listing.plain(row), 'held': False, 'borrowed': False})
            entry[name] = True
    return [entry for _host, entry in sorted(found.items())]


def unknown_image(image_id: str) -> exceptions.NotFound:
    """Return the error for an image that the caller cannot see."""
    return exceptions.NotFound(
        f'Image {image_id} is not in the catalogue; see "openstack'
        f' image cache image list" for those that are.')


def list_patches(session: listing.Reader,
                 filters: collections.abc.Mapping[str, typing.Any],
                 page: listing.Page) -> listing.Part:
    """List patches by ID, with the number of hosts that hold them.

    :param filters: base and target: the ends that patches may have, each a
        list of images' ids or contents'
    """
    table = models.Patch
    query = _patches()
    for name in ('base', 'target'):
        if name in filters:
            query = query.where(getattr(table, name).in_(
                contents_named(session, filters[name])))
    return listing.part_by_key(session, query, table.id, page)


def get_patch(session: listing.Reader, patch_id: str) -> listing.Entry:
    """Return one patch, as :func:`list_patches` shows it.

    :raises NotFound: there is none with that id
    """
    return listing.only(
        session, _patches().where(models.Patch.id == patch_id),
        exceptions.NotFound(
            f'Patch {patch_id} is not in the catalogue; see GET /v1/patches'
            f' for those that are.'))


def contents_named(session: listing.Reader,
                   names: collections.abc.Sequence[str]) -> list[str]:
    """Return the contents that ids of images or of contents name.

    The same in one query would keep the database from using an index.
    """
    return [*names, *session.scalars(
        sa.select(models.Image.content_id).where(
            models.Image.id.in_(names)))]


def _visible(viewer):
    table = models.Image
    query = sa.select(
        *listing.columns(table, _SHOWN),
        _holders(table.content_id, objects.IMAGES), _members(viewer))
    return query if viewer.sees_all else query.where(shows(table, viewer))


def shows(table, viewer):
    """Return the condition for images that a viewer may see.

    :param table: of images, or an alias of it
    """
    member = models.ImageMember
    shared = sa.select(member.image_id).where(
        member.member == viewer.project_id)
    # Only operators see images that were deleted.
    return sa.and_(table.status != objects.DELETED, sa.or_(
        table.visibility.in_(_OPEN),
        sa.and_(table.owner.is_not(None), table.owner == viewer.project_id),
        sa.and_(table.visibility == objects.SHARED, table.id.in_(shared))))


@functools.cache
def _patches():
    table = models.Patch
    return sa.select(*listing.columns(table, _PATCH_SHOWN),
                     _holders(table.id, objects.PATCHES))


# The counts are subqueries of a listing's one query: naming a hundred objects
# in queries of their own costs more than all else that listing takes.
def _members(viewer):
    """Count the images that name an image as their family.

    Only those that the viewer may see: counting others would reveal them.
    """
    table, member = models.Image, orm.aliased(models.Image)
    query = sa.select(sa.func.count()).where(
        member.family == table.id, member.status != objects.DELETED)
    if not viewer.sees_all:
        query = query.where(shows(member, viewer))
    return query.correlate(table).scalar_subquery().label('members')


def _holders(key, kind):
    """Count the living hosts that hold an object.

    :param key: the column that has its id
    """
    host, held = models.Host, models.Holding
    return (sa.select(sa.func.count())
            .select_from(held).join(host, host.id == held.host_id)
            .where(host.alive, held.kind == kind, held.object_id == key)
            .correlate(key.class_).scalar_subquery().label('host_count'))
