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
"""``diffcache-manage status``."""

import argparse

from diffcache_openstack.cmd.manage import base
from diffcache_openstack.common import exceptions
from diffcache_openstack.db import catalogue
from diffcache_openstack.db import engine
from diffcache_openstack.db import migration
from diffcache_openstack.db.planning import plans
from diffcache_openstack.db.sites import generations
from diffcache_openstack.db.sites import host_rows


class Status(base.Lister):
    """Show the hosts and the plan of each site, and the catalogue's size."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        self.need_database()
        with engine.errors_explained(self.conf):
            revision = migration.current(self.conf, max_retries=0)
        if not migration.accepts(revision):
            raise exceptions.PermanentError(
                f'The database is at revision {revision or "none"}, not'
                f' {migration.head()}; run "diffcache-manage db sync".')
        with self.database() as database:
            rows = database.read(_site_rows)
        if not rows:
            print('No host has registered yet: start diffcache-agent at the'
                  ' repository and on the hosts.', file=self.app.stderr)
        return ('Site', 'Hosts up', 'Hosts down', 'Map', 'Plan', 'Objects',
                'Cost (s/day)', 'Bound (s/day)', 'Images',
                'Patches'), rows


def _site_rows(session):
    images = len(catalogue.list_images(session))
    patches = len(catalogue.list_patches(session))
    rows = []
    for site in generations.list_sites(session):
        hosts = host_rows.list_hosts(session, site)
        up = sum(host.alive for host in hosts)
        plan = plans.current_plan(session, site)
        known = (plan.generation, len(plan.items), round(plan.cost_s, 1),
                 round(plan.lower_bound_s, 1)) if plan else (None,) * 4
        rows.append((site, up, len(hosts) - up,
                     generations.map_generation(session, site), *known,
                     images, patches))
    return rows
