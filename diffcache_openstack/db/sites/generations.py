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
"""Generations of site maps, and the changes that each made."""

import collections.abc
import typing

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.common import exceptions
from diffcache_openstack.db import models
from diffcache_openstack.objects import site as site_objects

IMAGE = 'image'
PATCH = 'patch'
HOST = 'host'
HOLDING = 'holding'
HOLDINGS = 'holdings'


class Change(typing.NamedTuple):
    """Something that a generation of a map changed.

    :param what: one of the names above
    :param name: id of the image or patch, or name of the host
    :param kind: of the object that is held
    :param object_id: the same
    """

    what: str
    name: str
    kind: str | None = None
    object_id: str | None = None


def list_sites(session: orm.Session) -> list[str]:
    """List the names of all sites that ever had a host."""
    return list(session.scalars(
        sa.select(models.Site.name).order_by(models.Site.name)))


def map_generation(session: orm.Session, site: str) -> int:
    """Return the generation of a site's map.

    :raises NotFound: no host of the site was ever registered
    """
    generation = session.scalar(sa.select(models.Site.map_generation).where(
        models.Site.name == site))
    if generation is None:
        raise unknown_site(site)
    return generation


def raise_generation(session: orm.Session, sites: set[str],
                     changes: collections.abc.Iterable[Change] = ()
                     ) -> None:
    """Mark the maps of some sites as changed.

    :param changes: what the new generation changed; none if only options
        that each map has
    """
    if sites:
        # It locks the rows of the sites, so that generations, and the changes
        # that are noted for them, are committed in order.
        session.execute(
            sa.update(models.Site).where(models.Site.name.in_(sites))
            .values(map_generation=models.Site.map_generation + 1)
            .execution_options(synchronize_session=False))
        _note_changes(session, models.Site.name.in_(sites), changes, 0)


def raise_all_generations(session: orm.Session,
                          changes: collections.abc.Iterable[Change]
                          ) -> set[str]:
    """Mark the maps of all sites as changed, and name the sites."""
    sites = set(list_sites(session))
    raise_generation(session, sites, changes)
    return sites


def note_for_next(session: orm.Session, change: Change) -> None:
    """Send a change with the next generation of all maps, whenever that is."""
    _note_changes(session, sa.true(), [change], 1)


def _note_changes(session, condition, changes, ahead):
    noted = [change._asdict() for change in changes]
    if not noted:
        return
    generations = session.execute(
        sa.select(models.Site.name, models.Site.map_generation)
        .where(condition)).all()
    rows = [{'site': name, 'generation': generation + ahead, **change}
            for name, generation in generations for change in noted]
    if rows:
        session.execute(sa.insert(models.MapChange), rows)


def unknown_site(site: str) -> exceptions.NotFound:
    """Return the error for a site that does not exist."""
    return exceptions.NotFound(
        f'Site {site} is unknown; start an agent with [agent] site = {site},'
        f' or see "openstack image cache site list" for the sites there are.')


def ensure_site(session, name, when):
    if session.get(models.Site, name) is None:
        # Starting from the clock, the generations of a database that is made
        # anew differ from those that agents remember.
        generation = int(when.timestamp())
        session.add(models.Site(name=name, plan_generation=0,
                                map_generation=generation,
                                map_floor=generation))
        session.flush()


def affected(session, site, role):
    if role == site_objects.REPOSITORY:
        return set(list_sites(session))
    return {site}
