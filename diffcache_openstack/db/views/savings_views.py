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
"""What the cache of a site is worth, as reports show it."""

import datetime
import math

import sqlalchemy as sa

from diffcache_openstack.db import listing
from diffcache_openstack.db import models
from diffcache_openstack.db.planning import history
from diffcache_openstack.db.planning import plans
from diffcache_openstack import objects

# Requests that agents did not answer, but that were noticed: Nova had the
# base image, or Glance sent a file.
_NOTICED = (history.BOOT, history.DOWNLOAD)


def hosts(session: listing.Reader, site: str, since: datetime.datetime
          ) -> list[listing.Entry]:
    """List the compute hosts of a site with what they were requested.

    Each entry has ``name``, ``capacity`` and ``held_bytes`` (bytes),
    ``requests``, ``without_wan`` (those of which no byte crossed the WAN),
    ``seconds`` (that the requests took), ``wan_bytes``, ``whole_bytes``
    (files of the requested images) and ``plan_saves_s`` (seconds per day
    that the current plan expects of the host's objects).
    """
    host = models.Host
    saved = _planned_savings(session, site)
    requested = _requested(session, site, since)
    rows = session.execute(
        sa.select(host.name, host.capacity, host.held_bytes)
        .where(host.site == site, host.role == objects.COMPUTE)
        .order_by(host.name)).mappings()
    nothing = dict.fromkeys(
        ('requests', 'without_wan', 'wan_bytes', 'whole_bytes'), 0)
    return [{**row, **nothing, 'seconds': 0.0,
             **requested.get(row['name'], {}),
             'plan_saves_s': saved.get(row['name'], 0.0)} for row in rows]


def repository_mbps(session: listing.Reader, site: str) -> float | None:
    """Return the fastest rate from a repository that a host has measured.

    :returns: Mbit/s; None if no host of the site has measured one
    """
    host, standing = models.Host, models.RepositoryStanding
    return session.scalar(
        sa.select(sa.func.max(standing.mbps))
        .join(host, host.id == standing.host_id)
        .where(host.site == site))


def unused_images(session: listing.Reader, site: str,
                  since: datetime.datetime) -> list[listing.Entry]:
    """List images that a site holds and did not request, largest first.

    Each entry has ``id``, ``name``, ``hosts`` that hold it, and the ``bytes``
    that it takes on them.
    """
    host, held, image = models.Host, models.Holding, models.Image
    requested = sa.select(models.Request.image_id).where(
        models.Request.site == site, models.Request.started_at >= since)
    size = sa.func.sum(held.bytes)
    rows = session.execute(
        sa.select(image.id, image.name,
                  sa.func.count().label('hosts'), size.label('bytes'))
        .join(held, sa.and_(held.object_id == image.content_id,
                            held.kind == objects.IMAGES))
        .join(host, host.id == held.host_id)
        .where(host.site == site, host.role == objects.COMPUTE,
               image.id.not_in(requested))
        .group_by(image.id, image.name)
        .order_by(size.desc(), image.id)).mappings()
    return [{**row, 'bytes': int(row['bytes'])} for row in rows]


def _requested(session, site, since):
    """Sum the requests that agents answered, by host."""
    table, image = models.Request, models.Image
    whole = sa.func.coalesce(
        sa.func.nullif(image.file_size, 0), image.data_size, 0)
    rows = session.execute(
        sa.select(
            table.host, sa.func.count().label('requests'),
            sa.func.sum(sa.case((table.wan_bytes == 0, 1), else_=0))
            .label('without_wan'),
            sa.func.sum(table.seconds).label('seconds'),
            sa.func.sum(table.wan_bytes).label('wan_bytes'),
            sa.func.sum(whole).label('whole_bytes'))
        .outerjoin(image, image.id == table.image_id)
        .where(table.site == site, table.started_at >= since,
               table.error.is_(None), table.way.not_in(_NOTICED))
        .group_by(table.host)).mappings()
    return {row['host']: {
        'requests': row['requests'], 'seconds': float(row['seconds']),
        **{name: int(row[name])
           for name in ('without_wan', 'wan_bytes', 'whole_bytes')}}
        for row in rows}


def _planned_savings(session, site):
    """Sum what the current plan expects of each host's objects."""
    plan = plans.current_plan(session, site)
    found: dict[str, list[float]] = {}
    for item in plan.items if plan else ():
        found.setdefault(item.host, []).append(item.saved_seconds)
    return {name: math.fsum(seconds) for name, seconds in found.items()}
