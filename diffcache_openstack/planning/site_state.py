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
"""The state of a site that its plans depend on."""

import dataclasses
import datetime
import hashlib
import itertools

from oslo_config import cfg
from sqlalchemy import orm

from diffcache_openstack.common import exceptions
from diffcache_openstack.db import catalogue
from diffcache_openstack.db.planning import history
from diffcache_openstack.db.planning import plans
from diffcache_openstack.db.planning import precache
from diffcache_openstack.db.sites import generations
from diffcache_openstack.db.sites import held_rows
from diffcache_openstack.db.sites import networks
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from diffcache_openstack.placement import demand
from diffcache_openstack.planning import boot_sets as boot_set_demand
from diffcache_openstack.sites import link_rates

# Requests that are older than ten half-lives count less than a thousandth.
_REACH = datetime.timedelta(seconds=10 * demand.Model().half_life_s)


@dataclasses.dataclass(frozen=True)
class SiteState:
    """The state of a site that its plan depends on.

    :param hosts: the living compute hosts of the site; their ``holdings``
        are what needs no transfer
    :param images: the whole catalogue
    :param patches: the whole catalogue
    :param demand: past requests at the site
    :param now: the instant from which their age counts
    :param jobs: what precache jobs want
    :param repositories: names of the repositories that are alive
    :param networks: by host, what it reported of its links and fills
    :param boot_sets: what boots read of images, and where that may be
    """

    site: str
    hosts: list[objects.Host]
    images: list[objects.Image]
    patches: list[objects.Patch]
    demand: list[history.Demand]
    now: datetime.datetime
    jobs: list[objects.PrecacheDemand] = dataclasses.field(
        default_factory=list)
    repositories: tuple[str, ...] = ()
    networks: link_rates.Networks = dataclasses.field(default_factory=dict)
    boot_sets: boot_set_demand.Demand = boot_set_demand.NO_DEMAND


def horizon(now: datetime.datetime) -> datetime.datetime:
    """Return the instant before which requests do not matter."""
    return now - _REACH


def digest(session: orm.Session, site: str, conf: cfg.ConfigOpts) -> str:
    """Return a digest of all that a plan of a site depends on.

    Images, patches, and what hosts are and hold, are known by the generation
    of the site's map. The demand of requests halves in weeks: a day counts.

    :raises NotFound: no host of the site was ever registered
    """
    now, found = versioned.now(), hashlib.sha256()
    boots = boot_set_demand.read(session, site, conf.lazy, now)
    for part in itertools.chain(
            (now.date(), generations.map_generation(session, site),
             plans.generation(session, site)),
            sorted(history.demand(session, site, horizon(now))),
            precache.demand(session, site),
            sorted(networks.of_site(session, site).items()),
            (boots.share, boots.pins), sorted(boots.images.items()),
            sorted(boots.standing.hosts), sorted(boots.standing.present),
            *(group.items() for group in (conf.planner, conf.lazy,
                                          conf.fill))):
        found.update(repr(part).encode())
    return found.hexdigest()


def read(session: orm.Session, site: str, conf: cfg.ConfigOpts
         ) -> tuple[int, objects.Plan | None, SiteState]:
    """Read the state that a plan of a site depends on.

    :returns: the generation of the current plan, that plan, the state
    :raises NotFound: no living compute host, or nothing in the catalogue
    """
    now = versioned.now()
    generation = plans.generation(session, site)
    alive = [host for host in held_rows.map_hosts(session, site)
             if host.alive]
    hosts = [host for host in alive if host.role == objects.COMPUTE]
    if not hosts:
        raise exceptions.NotFound(
            f'Site {site} has no living compute host to plan for; start'
            f' diffcache-agent on its hosts.')
    images = catalogue.list_images(session)
    if not images:
        raise exceptions.NotFound(
            'The catalogue is empty, so there is nothing to plan;'
            ' register an image at the repository.')
    requests = history.demand(session, site, horizon(now))
    state = SiteState(
        site, hosts, images, catalogue.list_patches(session), requests,
        now, precache.demand(session, site),
        tuple(host.name for host in alive
              if host.role == objects.REPOSITORY),
        networks.of_site(session, site),
        boot_set_demand.read(session, site, conf.lazy, now))
    return generation, plans.current_plan(session, site), state
