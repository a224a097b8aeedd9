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
"""Sites as listings and reports show them."""

import sqlalchemy as sa

from diffcache_openstack.db import listing
from diffcache_openstack.db import models
from diffcache_openstack.db.sites import generations
from diffcache_openstack import objects

_SHOWN = ('name', 'map_generation', 'plan_generation', 'planned_at')


def list_sites(session: listing.Reader, page: listing.Page) -> listing.Part:
    """List sites by name, with the state of their hosts."""
    part = listing.part_by_key(
        session, sa.select(*listing.columns(models.Site, _SHOWN)),
        models.Site.name, page)
    _add_hosts(session, part.entries)
    return part


def get_site(session: listing.Reader, name: str) -> listing.Entry:
    """Return one site, as :func:`list_sites` shows it.

    :raises NotFound: no host of the site was ever registered
    """
    entry = listing.only(
        session, sa.select(*listing.columns(models.Site, _SHOWN)).where(
            models.Site.name == name),
        generations.unknown_site(name))
    _add_hosts(session, [entry])
    return entry


def held_bytes(session: listing.Reader, site: str) -> listing.Entry:
    """Return objects and bytes on the living hosts of a site, by kind."""
    host, held = models.Host, models.Holding
    rows = session.execute(
        sa.select(held.kind, sa.func.count(), sa.func.sum(held.bytes))
        .join(host, host.id == held.host_id)
        .where(host.site == site, host.alive,
               host.role == objects.COMPUTE)
        .group_by(held.kind))
    return {kind: {'objects': count, 'bytes': int(size)}
            for kind, count, size in rows}


def _add_hosts(session, entries):
    table = models.Host
    living = sa.case((table.alive, 1), else_=0)
    rows = session.execute(
        sa.select(table.site, sa.func.count(), sa.func.sum(living),
                  sa.func.sum(living * table.capacity))
        .where(table.site.in_([entry['name'] for entry in entries]))
        .group_by(table.site))
    known = {site: numbers for site, *numbers in rows}
    for entry in entries:
        count, alive, capacity = known.get(entry['name'], (0, 0, 0))
        entry['hosts'] = {'count': count, 'alive': int(alive),
                          'capacity': int(capacity)}
