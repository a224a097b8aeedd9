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
"""Differences between generations of the map of a site.

What a generation changed is noted by name; a difference has the present state
of all that changed since another generation. So any conductor can answer for
any generation that it never saw, and a burst of changes of one object is one.
"""

import collections
import typing

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.db import catalogue
from diffcache_openstack.db import models
from diffcache_openstack.db.sites import generations
from diffcache_openstack.db.sites import held_rows
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack import objects

# Changes of a site that are kept, and that one difference may have.
KEPT = 20_000
# Rows per statement, below the limits on parameters of all engines.
_BATCH = 400


class Kept(typing.NamedTuple):
    """The generations of a site of which differences are known."""

    floor: int
    generation: int


def since(session: orm.Session, site: str, generation: int
          ) -> objects.MapChange | None:
    """Return what changed of a map since a generation.

    :returns: without digest, links and hops; None if that is not known
    :raises NotFound: no host of the site was ever registered
    """
    kept = _kept(session, site)
    if not kept.floor <= generation <= kept.generation:
        return None
    table = models.MapChange
    noted: dict[str, dict] = collections.defaultdict(dict)
    rows = session.execute(
        sa.select(table.what, table.name, table.kind, table.object_id)
        .where(table.site == site, table.generation > generation,
               table.generation <= kept.generation)
        .distinct().limit(KEPT + 1)).all()
    if len(rows) > KEPT:
        return None
    for what, name, kind, object_id in rows:
        noted[what].setdefault(name, set()).add((kind, object_id))
    change = objects.MapChange(site=site, previous=generation,
                               generation=kept.generation)
    _add_catalogue(session, change, noted)
    _add_hosts(session, change, noted)
    return change


def prune(session: orm.Session, kept: int = KEPT) -> None:
    """Forget changes of each site but for the latest.

    :param kept: changes to keep of a site, about
    """
    table = models.MapChange
    for site in generations.list_sites(session):
        floor = session.scalar(
            sa.select(table.generation).where(table.site == site)
            .order_by(table.generation.desc()).offset(kept).limit(1))
        if floor is None:
            continue
        session.execute(
            sa.delete(table).where(table.site == site,
                                   table.generation <= floor)
            .execution_options(synchronize_session=False))
        session.execute(
            sa.update(models.Site).where(models.Site.name == site,
                                         models.Site.map_floor < floor)
            .values(map_floor=floor)
            .execution_options(synchronize_session=False))


def _kept(session, site):
    found = session.execute(sa.select(
        models.Site.map_floor, models.Site.map_generation).where(
        models.Site.name == site)).one_or_none()
    if found is None:
        raise generations.unknown_site(site)
    return Kept(*found)


def _add_catalogue(session, change, noted):
    images, patches = (sorted(noted[what])
                       for what in (generations.IMAGE,
                                    generations.PATCH))
    change.images = catalogue.images_of(session, images)
    change.patches = catalogue.patches_of(session, patches)
    change.gone_images = _without(images, change.images)
    change.gone_patches = _without(patches, change.patches)


def _without(names, found):
    present = {each.id for each in found}
    return [name for name in names if name not in present]


def _add_hosts(session, change, noted):
    names = {*noted[generations.HOST], *noted[generations.HOLDINGS],
             *noted[generations.HOLDING]}
    shown = host_rows.hosts_of_map(session, change.site, names)
    change.hosts = [host for _number, host in shown
                    if host.name in noted[generations.HOST]
                    or host.name in noted[generations.HOLDINGS]]
    change.gone_hosts = sorted(names - {host.name for _, host in shown})
    change.holdings = [
        _all_holdings(session, number, host.name)
        if host.name in noted[generations.HOLDINGS] else
        _some_holdings(session, number, host.name,
                       noted[generations.HOLDING][host.name])
        for number, host in shown
        if host.name in noted[generations.HOLDINGS]
        or host.name in noted[generations.HOLDING]]


def _all_holdings(session, number, name):
    return objects.HostHoldings(
        host=name, whole=True,
        held=held_rows.holdings_of(session, number))


def _some_holdings(session, number, name, keys):
    ids = sorted({object_id for _kind, object_id in keys})
    held = [found for start in range(0, len(ids), _BATCH)
            for found in held_rows.holdings_of(
                session, number, ids[start:start + _BATCH])
            if (found.kind, found.id) in keys]
    present = {(found.kind, found.id) for found in held}
    return objects.HostHoldings(
        host=name, held=held,
        gone=[objects.Holding(kind=kind, id=object_id)
              for kind, object_id in sorted(keys - present)])
