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
"""``openstack image cache site``, ``report``, ``forecast``, ``request``."""

import argparse

from diffcache_openstack.client.osc import commands
from diffcache_openstack.client.osc import formats
from diffcache_openstack.common.commands import cells
from diffcache_openstack.common.commands import cli

_SITES: list[formats.Column] = [
    ('Name', 'name', None), ('Hosts', 'hosts.count', None),
    ('Alive', 'hosts.alive', None),
    ('Capacity', 'hosts.capacity', cells.Size),
    ('Plan Generation', 'plan_generation', None),
    ('Planned At', 'planned_at', cells.Time)]
_REPORT: list[formats.Column] = [
    ('Site', 'site.name', None), ('Since', 'since', cells.Time),
    ('Hosts', 'site.hosts', formats.HostCounts),
    ('Plan', 'plan', formats.Fill),
    ('Cost S Per Day', 'plan.cost_s', cells.Rounded),
    ('Held', 'held', formats.Held), ('Requests', 'requests', formats.Ways),
    ('WAN Bytes', 'wan_bytes', cells.Size),
    ('Whole Bytes', 'whole_bytes', cells.Size)]
_FORECAST: list[formats.Column] = [
    ('Host', 'host', None), ('Images', 'images', cells.Names),
    ('Requests Per Day', 'requests_per_day', cells.Rounded)]
_REQUESTS: list[formats.Column] = [
    ('Started At', 'started_at', cells.Time), ('Host', 'host', None),
    ('Image', 'image_id', None), ('Way', 'way', None),
    ('Seconds', 'seconds', cells.Rounded),
    ('WAN', 'wan_bytes', cells.Size), ('LAN', 'lan_bytes', cells.Size),
    ('Error', 'error', None)]


class ListSites(commands.Lister):
    """List sites with caches"""

    arguments = commands.PAGING

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        return formats.table(
            _SITES, self.client.sites(**commands.query(parsed_args)))


class ShowReport(commands.SiteCommand, commands.ShowOne):
    """Show a summary of a site: hosts, plan, what they hold and serve"""

    examples = ('edge-1 --days 30',)
    arguments = (
        cli.Argument('--days', type=cli.whole(1), metavar='<n>',
                     help='Count the requests of the last N days'
                          ' (default: 7)'),)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        return formats.fields(_REPORT, self.client.site_report(
            self.site_name(parsed_args.site), days=parsed_args.days))


class ListForecast(commands.SiteCommand, commands.Lister):
    """List the image requests expected at a site"""

    examples = ('edge-1 --limit 10',)
    arguments = (commands.limit('entries'),)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        return formats.table(_FORECAST, self.client.site_forecast(
            self.site_name(parsed_args.site), limit=parsed_args.limit))


class ListRequests(commands.Lister):
    """List past image requests, latest first"""

    examples = ('--site edge-1 --failed', '--since 2026-11-01 -f json')
    wide = frozenset({'Started At', 'LAN', 'Error'})

    arguments = (
        *commands.filters('requests', host='of this host', site='of this site',
                          image='for this image'),
        cli.Argument('--way',
                     choices=('local', 'peer', 'build', 'repository',
                              'nova', 'glance'),
                     help='List only requests that were served this way; nova'
                          ' and glance: by these services themselves'),
        cli.Argument('--failed', action='store_true', default=None,
                     help='List only requests that failed'),
        cli.Argument('--since', metavar='<time>',
                     help='List only requests since this time (ISO 8601)'),
        cli.Argument('--until', metavar='<time>',
                     help='List only requests before this time (ISO 8601)'),
        *commands.PAGING)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        self.name_images(parsed_args, 'image')
        parsed_args.image_id = parsed_args.image
        return formats.table(_REQUESTS, self.client.requests(
            **commands.query(parsed_args, 'host', 'site', 'image_id',
                             'way', 'failed', 'since', 'until')))
