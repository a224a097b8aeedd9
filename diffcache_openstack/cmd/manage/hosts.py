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
"""``diffcache-manage host``."""

import argparse

from diffcache_openstack.cmd.manage import base
from diffcache_openstack.common.commands import cells
from diffcache_openstack.common.commands import cli
from diffcache_openstack.db.sites import held_rows
from diffcache_openstack.db.sites import host_rows


class HostList(base.Lister):
    """List hosts with their state and what they hold."""

    examples = ('--site edge-1',)
    arguments = (
        cli.Argument('--site', metavar='SITE',
                     help='List only hosts of this site.'),)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        with self.database() as database:
            hosts = [host for host in database.read(held_rows.holding_hosts)
                     if parsed_args.site in (None, host.site)]
        rows = [(host.name, host.site, host.role,
                 'up' if host.alive else 'down', len(host.holdings),
                 cells.Size(sum(held.bytes for held in host.holdings)),
                 cells.Size(host.capacity), host.seen_at.isoformat())
                for host in hosts]
        return ('Host', 'Site', 'Role', 'State', 'Objects', 'Held',
                'Capacity', 'Seen at'), rows


class HostDelete(base.HostArgument):
    """Delete a host that was retired from the database.

    A host whose agent still runs registers itself again.
    """

    examples = ('edge-1-host-2',)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        with self.database() as database:
            database.write(host_rows.remove_host, parsed_args.host)
