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
"""Sites and their reports."""

import datetime
import typing

from diffcache_openstack.api import fields
from diffcache_openstack.api import paging
from diffcache_openstack.api.policies import sites as policies
from diffcache_openstack.api import requests
from diffcache_openstack.api import routing
from diffcache_openstack.api.schemas import sites as schemas
from diffcache_openstack.db import listing
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack.db.views import plan_views
from diffcache_openstack.db.views import request_views
from diffcache_openstack.db.views import savings_views
from diffcache_openstack.db.views import site_views
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from diffcache_openstack.sites import link_rates

TABLE = routing.Table()
_DAYS = 7


@TABLE.route('GET', '/v1/sites', policy=policies.LIST,
             query=schemas.LIST_QUERY, shows=fields.OPERATORS,
             response=schemas.LIST)
def list_sites(request: requests.Request) -> dict[str, typing.Any]:
    """List sites by name, with their numbers of hosts."""
    part = request.look(site_views.list_sites, request.page)
    return paging.document(request, 'sites', part)


@TABLE.route('GET', '/v1/sites/<name>/report', policy=policies.REPORT,
             query=schemas.REPORT_QUERY, shows=fields.OPERATORS,
             response=schemas.REPORT)
def show_report(request: requests.Request, name: str
                ) -> dict[str, typing.Any]:
    """Show what a site holds, how it served requests, and the savings.

    ``repository_mbps`` are rates from repositories in Mbit/s: the lowest that
    plans assume of a compute host of the site, and the highest that one has
    measured.
    """
    days = request.parameters.get('days', _DAYS)
    since = versioned.now() - datetime.timedelta(days=days)
    report = request.look(_report, name, since)
    report['repository_mbps'] = request.read(
        _repository_mbps, name, request.services.conf.planner)
    return {'report': report}


def _report(session, name, since):
    ways = request_views.summary(session, name, since)
    return {
        'site': site_views.get_site(session, name),
        'since': listing.instant(since),
        'plan': plan_views.current_fill(session, name),
        'held': site_views.held_bytes(session, name),
        'requests': ways,
        'whole_bytes': request_views.whole_bytes(session, name, since),
        'wan_bytes': sum(way['wan_bytes'] for way in ways)}


def _repository_mbps(session, site, options):
    links = link_rates.read_links(session, site, options)
    of_hosts = {own.host: own.repo for own in links.hosts}
    assumed = [of_hosts.get(host.name, links.repo)
               for host in host_rows.list_hosts(session)
               if host.site == site and host.role == objects.COMPUTE]
    return {'assumed': min(assumed, default=None),
            'measured': savings_views.repository_mbps(session, site)}
