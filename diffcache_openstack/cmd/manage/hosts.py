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
from diffcache_openstack.db.sites import held_rows
from diffcache_openstack.db.sites import host_rows


class HostList(base.Lister):
    """List hosts with their state and what they hold."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('--site', help='List only hosts of this site.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Read the hosts from the database."""
        with self.database() as database:
            hosts = [host for host in database.read(held_rows.holding_hosts)
                     if parsed_args.site in (None, host.site)]
        rows = [(host.name, host.site, host.role,
                 'up' if host.alive else 'down', len(host.holdings),
                 self.size(sum(held.bytes for held in host.holdings)),
                 self.size(host.capacity), host.seen_at.isoformat())
                for host in hosts]
        return ('Host', 'Site', 'Role', 'State', 'Objects', 'Held',
                'Capacity', 'Seen at'), rows


class HostShow(base.HostArgument, base.Lister):
    """List what a host holds."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Read the host's holdings from the database."""
        with self.database() as database:
            host = database.read(held_rows.get_host, parsed_args.host)
        return ('Kind', 'ID', 'Size'), [
            (held.kind, held.id, self.size(held.bytes))
            for held in host.holdings]


class HostRemove(base.HostArgument):
    """Remove a host that was retired from the database.

    A host whose agent still runs registers itself again.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Delete the host from the database."""
        with self.database() as database:
            database.write(host_rows.remove_host, parsed_args.host)
