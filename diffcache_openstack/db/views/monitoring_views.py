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
"""Counts of the database for monitoring."""

import sqlalchemy as sa

from diffcache_openstack.db import listing
from diffcache_openstack.db import models
from diffcache_openstack import objects


def hosts(session: listing.Reader) -> list[listing.Entry]:
    """List name, site, role, alive and seen_at of all hosts."""
    table = models.Host
    return [dict(row) for row in session.execute(
        sa.select(table.name, table.site, table.role, table.alive,
                  table.seen_at).order_by(table.name)).mappings()]


def site_names(session: listing.Reader) -> list[str]:
    """List the names of all sites."""
    return [name for name, in session.execute(
        sa.select(models.Site.name).order_by(models.Site.name))]


def image_counts(session: listing.Reader) -> dict[str, int]:
    """Count the images of the catalogue by status."""
    return _counts(session, models.Image.status)


def images_without_record(session: listing.Reader) -> list[str]:
    """List the IDs of active images that no repository has signed."""
    table = models.Image
    return [image for image, in session.execute(
        sa.select(table.id).where(table.record.is_(None),
                                  table.status == objects.ACTIVE)
        .order_by(table.id))]


def patch_count(session: listing.Reader) -> int:
    """Count the patches of the catalogue."""
    return int(session.scalar(
        sa.select(sa.func.count()).select_from(models.Patch)) or 0)


def pending_image_counts(session: listing.Reader) -> dict[str, int]:
    """Count images that a repository could not add yet, by state."""
    return _counts(session, models.PendingImage.state)


def precache_job_counts(session: listing.Reader) -> dict[str, int]:
    """Count precache jobs by state."""
    return _counts(session, models.PrecacheJob.state)


def version_task_counts(session: listing.Reader) -> dict[str, int]:
    """Count tasks on versions by state."""
    return _counts(session, models.VersionTask.state)


def profile_counts(session: listing.Reader) -> dict[str, int]:
    """Count the profiles of images that were read, or carried."""
    table = models.Profile
    count = sa.select(sa.func.count()).select_from(table)
    return {name: int(session.scalar(count.where(condition)) or 0)
            for name, condition in (('read', table.chunks > 0),
                                    ('carried', table.chunks == 0))}


def _counts(session, column):
    return {value: count for value, count in session.execute(
        sa.select(column, sa.func.count()).group_by(column))}
