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
"""SSD caches of hosts and the volumes in them, for listings."""

import collections.abc
import json
import typing

import sqlalchemy as sa

from diffcache_openstack.common import exceptions
from diffcache_openstack.db import listing
from diffcache_openstack.db import models
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack.db import volume_caches

_COLUMNS = ('id', 'server_id', 'project_id', 'mode', 'document',
            'updated_at')


def list_volumes(session: listing.Reader, viewer: listing.Viewer,
                 filters: collections.abc.Mapping[str, typing.Any],
                 page: listing.Page) -> listing.Part:
    """List volumes in SSD caches that a viewer may see, by ID.

    :param filters: server_id, project_id, mode, host
    """
    table = models.VolumeCache
    query = listing.narrowed(_visible(viewer), table, filters,
                             ('server_id', 'project_id', 'mode'))
    if 'host' in filters:
        query = query.where(models.Host.name == filters['host'])
    return listing.rows_by_key(session, query, table.id, page, _entry)


def get_volume(session: listing.Reader, viewer: listing.Viewer,
               volume_id: str) -> listing.Entry:
    """Return one volume, as :func:`list_volumes` shows it.

    :raises NotFound: there is none that the viewer may see
    """
    return _entry(listing.only(
        session, _visible(viewer).where(models.VolumeCache.id == volume_id),
        volume_caches.unknown_volume(volume_id)))


def get_curve(session: listing.Reader, volume_id: str) -> listing.Entry:
    """Return what was requested of a volume in the last epoch.

    :raises NotFound: its host has not reported an epoch of it
    """
    found = session.scalar(sa.select(models.VolumeCache.curve).where(
        models.VolumeCache.id == volume_id))
    if found is None:
        raise exceptions.NotFound(
            f'No epoch of volume {volume_id} in its SSD cache has ended; try'
            f' again later.')
    return json.loads(found)


def list_caches(session: listing.Reader, page: listing.Page) -> listing.Part:
    """List hosts' SSD caches, by the names of the hosts."""
    query = _caches()
    if page.marker is not None:
        query = query.where(models.Host.name > page.marker)
    rows = session.execute(query.order_by(models.Host.name).limit(
        page.limit + 1)).mappings()
    return listing.cut([_cache(row) for row in rows], page, 'host')


def get_cache(session: listing.Reader, host: str) -> listing.Entry:
    """Return a host's SSD cache with the latest decisions about sizes.

    :raises NotFound: the host is not registered, or has none
    """
    row = session.execute(_caches().where(
        models.Host.name == host)).mappings().one_or_none()
    if row is None:
        if session.scalar(sa.select(models.Host.id).where(
                models.Host.name == host)) is None:
            raise host_rows.unknown_host(host)
        raise exceptions.NotFound(
            f'Host {host} has reported no SSD cache; see [ssd_cache] control'
            f' of its agent.')
    found = session.scalar(
        sa.select(models.SsdCache.decisions).join(models.Host)
        .where(models.Host.name == host))
    return {**_cache(row), 'decisions': json.loads(found or '[]')}


def _visible(viewer):
    return listing.of_viewer(models.VolumeCache, _COLUMNS, viewer) \
        .add_columns(models.Host.name.label('host')) \
        .join(models.Host, models.Host.id == models.VolumeCache.host_id)


def _entry(row):
    entry = listing.plain(row)
    return {**json.loads(entry.pop('document')), **entry}


def _caches():
    table, volume = models.SsdCache, models.VolumeCache
    count = sa.select(sa.func.count()).where(
        volume.host_id == table.host_id).scalar_subquery()
    return sa.select(
        models.Host.name.label('host'), table.state, table.capacity,
        table.policy, table.epoch, count.label('volumes'),
        table.updated_at).join(
            models.Host, models.Host.id == table.host_id)


def _cache(row):
    return listing.plain(row)
