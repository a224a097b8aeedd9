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
"""Profiles of images, for listings."""

import collections.abc
import typing

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.db.lazy import profiles as table_of_profiles
from diffcache_openstack.db import listing
from diffcache_openstack.db import models
from diffcache_openstack.db.views import image_views
from diffcache_openstack.objects import catalogue
from diffcache_openstack.prefetch import profiles

_COLUMNS = ('id', 'image_id', 'label', 'generation', 'instances',
            'created_at', 'updated_at')


def list_profiles(session: listing.Reader, viewer: listing.Viewer,
                  filters: collections.abc.Mapping[str, typing.Any],
                  page: listing.Page) -> listing.Part:
    """List profiles that a viewer may see, by ID.

    Those of all projects have no project, and are seen while their image is
    public. Until an instance has read the image, the chunks are those that
    were carried.

    :param filters: image_id, project_id, label
    """
    table = models.Profile
    query = listing.narrowed(_visible(viewer), table, filters,
                             ('image_id', 'project_id', 'label'))
    return listing.part_by_key(session, query, table.id, page)


def get_profile(session: listing.Reader, viewer: listing.Viewer,
                profile_id: str) -> listing.Entry:
    """Return one profile, as :func:`list_profiles` shows it.

    :raises NotFound: there is none that the viewer may see
    """
    return listing.only(
        session, _visible(viewer).where(models.Profile.id == profile_id),
        table_of_profiles.unknown_profile(profile_id))


def get_rows(session: listing.Reader, profile_id: str) -> list[list]:
    """Return the [chunk, count, mean_us] rows of a profile, by chunk.

    Until an instance has read the image, those that were carried.

    :raises NotFound: there is no such profile
    """
    table = models.Profile
    found = session.execute(
        sa.select(table.chunks, table.rows, table.carried_rows)
        .where(table.id == profile_id)).first()
    if found is None:
        raise table_of_profiles.unknown_profile(profile_id)
    packed = found.rows if found.chunks else found.carried_rows or found.rows
    return profiles.with_means(profiles.bounded(profiles.unpacked(packed)))


def _visible(viewer):
    table, image = models.Profile, models.Image
    shared = table_of_profiles.SHARED
    query = sa.select(
        *listing.columns(table, _COLUMNS), _carried_from(viewer),
        sa.func.nullif(table.project_id, shared).label('project_id'),
        sa.case((table.chunks > 0, table.chunks),
                else_=sa.func.coalesce(table.carried_chunks, 0))
        .label('chunks'))
    if viewer.sees_all:
        return query
    public = sa.select(image.id).where(
        image.visibility == catalogue.PUBLIC,
        image.status != catalogue.DELETED)
    return query.where(sa.or_(
        table.project_id == (viewer.project_id or shared),
        table.project_id == shared)).where(sa.or_(
            table.project_id != shared, table.image_id.in_(public)))


def _carried_from(viewer):
    """Return the image that rows were carried from, if a viewer may see it.

    It may have been made private since, and its ID is its owner's then.
    """
    table, source = models.Profile, orm.aliased(models.Image)
    if viewer.sees_all:
        return table.carried_from.label('carried_from')
    return (sa.select(source.id)
            .where(source.id == table.carried_from,
                   image_views.shows(source, viewer))
            .correlate(table).scalar_subquery().label('carried_from'))
