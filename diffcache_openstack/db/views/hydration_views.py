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
"""Hydrations of servers' images, for listings."""

import collections.abc
import json
import typing

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.db.lazy import hydrations
from diffcache_openstack.db import listing
from diffcache_openstack.db import models
from diffcache_openstack.objects import hydration

_COLUMNS = ('server_id', 'project_id', 'image_id', 'state', 'document',
            'updated_at')


def list_hydrations(session: listing.Reader, viewer: listing.Viewer,
                    filters: collections.abc.Mapping[str, typing.Any],
                    page: listing.Page) -> listing.Part:
    """List the hydrations that a viewer may see, by the servers' IDs.

    :param filters: project_id, image_id, state, host
    """
    table = models.Hydration
    query = listing.narrowed(_visible(viewer), table, filters,
                             ('project_id', 'image_id', 'state'))
    if 'host' in filters:
        query = query.where(models.Host.name == filters['host'])
    return listing.rows_by_key(session, query, table.server_id, page, _entry)


def get_hydration(session: listing.Reader, viewer: listing.Viewer,
                  server_id: str) -> listing.Entry:
    """Return one hydration, as :func:`list_hydrations` shows it.

    :raises NotFound: there is none that the viewer may see
    """
    return _entry(listing.only(
        session, _visible(viewer).where(
            models.Hydration.server_id == server_id),
        hydrations.unknown(server_id)))


def sharers(session: listing.Reader, server_id: str) -> list[listing.Entry]:
    """Return ``project_id`` of each server that shares a hydration.

    They run from the same image on the same host.
    """
    one, other = (orm.aliased(models.Hydration) for _ in range(2))
    return [{'project_id': project} for project in session.scalars(
        sa.select(other.project_id).join(one, sa.and_(
            one.host_id == other.host_id,
            one.content_id == other.content_id))
        .where(one.server_id == server_id).distinct())]


def _visible(viewer):
    return listing.of_viewer(models.Hydration, _COLUMNS, viewer) \
        .add_columns(models.Host.name.label('host')) \
        .join(models.Host, models.Host.id == models.Hydration.host_id)


def _entry(row):
    entry = listing.plain(row)
    entry = {**json.loads(entry.pop('document')), **entry}
    return {**entry, 'percent': _percent(entry)}


def _percent(entry: listing.Entry) -> float | None:
    """Return which part of the chunks is there; 100 only if all are."""
    if entry['state'] == hydration.UNKNOWN:
        return None
    if entry['state'] == hydration.COMPLETE:
        return 100.0
    share = entry['present'] / max(entry['chunks'], 1)
    return min(int(share * 1000) / 10, 99.9)
