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
"""The history of requests as listings and reports show it."""

import collections.abc
import datetime
import typing

import sqlalchemy as sa

from diffcache_openstack.db import listing
from diffcache_openstack.db import models
from diffcache_openstack.db.planning import history

_SHOWN = ('id', 'image_id', 'host', 'site', 'mode', 'way', 'detail',
          'seconds', 'predicted_seconds', 'wan_bytes', 'lan_bytes',
          'fallbacks', 'patch_id', 'apply_seconds', 'started_at', 'error')
_COLUMNS = ('image_id', 'host', 'site', 'way')


def list_requests(session: listing.Reader,
                  filters: collections.abc.Mapping[str, typing.Any],
                  page: listing.Page) -> listing.Part:
    """List requests, the latest first.

    :param filters: columns, failed, and since and until: instants
    """
    table = models.Request
    query = listing.narrowed(
        sa.select(*listing.columns(table, _SHOWN)), table, filters, _COLUMNS)
    if 'failed' in filters:
        query = query.where(table.error.is_not(None) if filters['failed']
                            else table.error.is_(None))
    if 'since' in filters:
        query = query.where(table.started_at >= filters['since'])
    if 'until' in filters:
        query = query.where(table.started_at < filters['until'])
    return listing.part_by_time(
        session, query, listing.Latest(table.started_at, sa.select(table)),
        page)


def summary(session: listing.Reader, site: str, since: datetime.datetime
            ) -> list[listing.Entry]:
    """Summarize requests of a site by way, most requests first."""
    table = models.Request
    rows = session.execute(
        sa.select(
            table.way, sa.func.count().label('requests'),
            sa.func.sum(sa.case((table.error.is_not(None), 1), else_=0))
            .label('failed'),
            sa.func.avg(table.seconds).label('mean_s'),
            sa.func.max(table.seconds).label('longest_s'),
            sa.func.sum(table.wan_bytes).label('wan_bytes'),
            sa.func.sum(table.lan_bytes).label('lan_bytes'))
        .where(table.site == site, table.started_at >= since)
        .group_by(table.way)).mappings()
    found = [{**row, **{name: int(row[name]) for name in
                        ('failed', 'wan_bytes', 'lan_bytes')}}
             for row in rows]
    return sorted(found, key=lambda entry: (-entry['requests'],
                                            entry['way']))


def whole_bytes(session: listing.Reader, site: str, since: datetime.datetime
                ) -> int:
    """Estimate the WAN bytes of a site's requests without a cache.

    Of images with a compressed form those of the form. What Nova started
    from a base image that it had, and what Glance sent, is left out: it
    crosses no link without a cache either, or is a request besides.
    """
    table, image = models.Request, models.Image
    size = sa.func.coalesce(image.compressed_size, image.data_size)
    return int(session.scalar(
        sa.select(sa.func.coalesce(sa.func.sum(size), 0))
        .select_from(table)
        .join(image, image.id == table.image_id)
        .where(table.site == site, table.started_at >= since,
               table.error.is_(None),
               table.way.not_in((history.BOOT, history.DOWNLOAD)))))
