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
"""``openstack image cache plan``."""

import argparse
import math
import sys

from osc_lib import exceptions
from oslo_utils import uuidutils

from diffcache_openstack.client.osc import commands
from diffcache_openstack.client.osc import formats
from diffcache_openstack.client.osc import waiting
from diffcache_openstack.common.commands import cells
from diffcache_openstack.common.commands import cli

_LISTED: list[formats.Column] = [
    ('ID', 'id', None), ('Site', 'site', None), ('State', 'state', None),
    ('Generation', 'generation', None), ('Solver', 'solver', None),
    ('Cost (s/day)', 'cost_s', cells.Rounded),
    ('Gap', 'gap', cells.Share), ('Created At', 'created_at', cells.Time)]
_SHOWN: list[formats.Column] = [
    ('ID', 'id', None), ('Site', 'site', None), ('State', 'state', None),
    ('Generation', 'generation', None),
    ('Base Generation', 'base_generation', None),
    ('Solver', 'solver', None), ('Cost S', 'cost_s', cells.Rounded),
    ('Lower Bound S', 'lower_bound_s', cells.Rounded),
    ('Gap', 'gap', cells.Share),
    ('Proved Optimal', 'is_proved_optimal', None),
    ('Objective', 'objective', None),
    ('Costs Over WAN (per day)', 'cost_wan_bytes', cells.Size),
    ('Solver Seconds', 'solver_seconds', cells.Rounded),
    ('Moves Over WAN', 'move_wan_bytes', cells.Size),
    ('Moves Over LAN', 'move_lan_bytes', cells.Size),
    ('Fill Seconds', 'fill_seconds', cells.Rounded),
    ('Saves (s/day)', 'saved_seconds', cells.Rounded),
    ('Saves Over WAN (per day)', 'saved_wan_bytes', cells.Size),
    ('Created At', 'created_at', cells.Time), ('Error', 'error', None)]
_ITEMS: list[formats.Column] = [
    ('Host', 'host', None), ('Priority', 'priority', None),
    ('Kind', 'kind', None), ('ID', 'id', cells.Hash),
    ('Size', 'bytes', cells.Size),
    ('Saves (s/day)', 'saved_seconds', cells.Rounded),
    ('Held', 'held', None), ('Images', 'images', cells.Names)]
_REASONS: list[formats.Column] = [
    ('Host', 'host', None), ('Kind', 'kind', None),
    ('ID', 'id', cells.Hash), ('Size', 'bytes', cells.Size),
    ('Saves (s/day)', 'saves_s', cells.Rounded),
    ('Eviction', 'eviction', None), ('Why', 'why', cells.Text)]
_OUTCOME: list[formats.Column] = [
    ('Mean Before S', 'before.mean_s', cells.Rounded),
    ('Mean After S', 'after.mean_s', cells.Rounded),
    ('Cost Before S', 'before.cost_s', cells.Rounded),
    ('Cost After S', 'after.cost_s', cells.Rounded),
    ('Saving', 'saving', cells.Share),
    ('Objective', 'objective', None),
    ('WAN per Request Before', 'before.mean_wan_bytes', cells.Size),
    ('WAN per Request After', 'after.mean_wan_bytes', cells.Size),
    ('WAN per Day Before', 'before.cost_wan_bytes', cells.Size),
    ('WAN per Day After', 'after.cost_wan_bytes', cells.Size),
    ('Saving Over WAN', 'saving_wan', cells.Share)]
_STATES = ('computing', 'proposed', 'failed', 'cancelled', 'current',
           'superseded')
_TIMEOUT = 900.0


class ProposalCommand(commands.Command):
    """A command about one proposed plan."""

    arguments: cli.Arguments = (
        cli.Argument('plan', metavar='<plan>', help='ID of the plan'),)


class PlanCommand(commands.Command):
    """A command about one plan."""

    arguments: cli.Arguments = (
        cli.Argument('plan', metavar='<plan>', nargs='?',
                     help='ID of a plan, or name of a site for its current'
                          ' plan (default: the current plan of the only site'
                          ' with compute hosts)'),)

    def plan_id(self, name: str | None) -> str:
        """Return the ID of a plan by its ID, or by its site if it is current.

        :raises CommandError: the site has no current plan
        """
        if name and uuidutils.is_uuid_like(name):
            return name
        site = name or commands.only_site(self.client)
        found = next(iter(self.client.plans(site=site, state='current')),
                     None)
        if found is None:
            raise exceptions.CommandError(
                f'"{site}" is neither the ID of a plan nor a site with a'
                f' current plan; see "openstack image cache plan list".')
        return found.id


class ListPlans(commands.Lister):
    """List plans, latest first"""

    examples = ('--site edge-1 --state proposed',)
    wide = frozenset({'Generation', 'Solver', 'Cost (s/day)'})

    arguments = (
        *commands.filters('plans', site='of this site'),
        commands.state('plans', *_STATES),
        *commands.PAGING)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        return formats.table(_LISTED, self.client.plans(
            **commands.query(parsed_args, 'site', 'state')))


class ShowPlan(PlanCommand, commands.ShowOne):
    """Show a plan, or draw it"""

    examples = ('7 --graph plan.svg',)
    arguments = (
        commands.graph('families, placement and what each object saves'),)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        plan = self.client.get_plan(self.plan_id(parsed_args.plan))
        if parsed_args.graph:
            self._draw(plan, parsed_args.graph)
        return formats.fields(_SHOWN, plan)

    def _draw(self, plan, path):
        graphs = commands.load_graphs('graphs')
        with commands.writing(path):
            graphs.draw_plan(plan, self.client.images(), path)


class ListItems(PlanCommand, commands.Lister):
    """List the objects that a plan places on hosts"""

    examples = ('7',)
    wide = frozenset({'Priority', 'ID'})

    arguments = (*commands.filters('objects', host='for this host'),)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        plan = self.client.get_plan(self.plan_id(parsed_args.plan))
        return formats.table(_ITEMS, (
            item for item in plan.items
            if parsed_args.host in (None, item['host'])))


class CreatePlan(commands.SiteCommand, commands.ShowOne):
    """Compute a plan as a proposal"""

    examples = ('edge-1 --time-limit 60 --wait',)
    arguments = (
        cli.Argument('--solver', metavar='<name>',
                     help='Solver to use: auto, ilp or greedy (default: as'
                          ' configured on the conductor)'),
        cli.Argument('--time-limit', type=cli.seconds(),
                     metavar='<seconds>',
                     help='Maximum seconds of the solver, such as 90 or 5m'),
        *commands.wait('the plan is computed', _TIMEOUT))

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        plan = self.client.create_plan(
            site=self.site_name(parsed_args.site),
            **commands.given(parsed_args, 'solver', 'time_limit'))
        if parsed_args.wait:
            plan = self.client.wait_for_plan(plan.id, parsed_args.timeout)
            if plan.state == 'failed':
                raise exceptions.CommandError(plan.error)
        return formats.fields(_SHOWN, plan)


class ApplyPlan(ProposalCommand, commands.ShowOne):
    """Make a proposed plan the current plan"""

    examples = ('7 --wait',)
    arguments = (
        *commands.wait('the hosts hold what the plan places there', _TIMEOUT),)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        plan = self.client.get_plan(parsed_args.plan)
        self.client.apply_plan(plan.id, plan.base_generation)
        plan = self.client.get_plan(plan.id)
        if parsed_args.wait:
            with waiting.Bar(f'Site {plan.site}', sys.stderr) as bar:
                self.client.wait_for_fill(plan.id, parsed_args.timeout,
                                          progress=bar.show)
        return formats.fields(_SHOWN, plan)


class CancelPlan(ProposalCommand):
    """Discard a proposed plan"""

    examples = ('7',)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        self.client.cancel_plan(parsed_args.plan)


class ExplainPlan(PlanCommand, commands.Lister):
    """Explain why a plan places each object where it does"""

    examples = ('--host edge-1-host-2',)
    wide = frozenset({'Eviction', 'Size'})

    arguments = (*commands.filters('objects', host='for this host'),)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        return formats.table(_REASONS, self.client.explain_plan(
            self.plan_id(parsed_args.plan), host=parsed_args.host))


class WhatIf(commands.SiteCommand, commands.ShowOne):
    """Estimate the cost of a site if its hosts or links were different"""

    examples = ('edge-1 --add-capacity 100GiB',)
    arguments = (
        cli.Argument('--add-hosts', type=cli.whole(1), metavar='<n>',
                     help='Number of hosts to add'),
        cli.Argument('--add-capacity', type=cli.size(-math.inf),
                     dest='capacity_bytes', metavar='<size>',
                     help='Cache capacity to add to each host, such as 50GB;'
                          ' to take away with =-50GB'),
        cli.Argument('--repository-rate', type=cli.bandwidth,
                     dest='repository_mbps', metavar='<rate>',
                     help='Set the bandwidth of the WAN, such as 200Mbps'
                          ' (a bare number: Mbit/s)'),
        cli.Argument('--peer-rate', type=cli.bandwidth, dest='peer_mbps',
                     metavar='<rate>',
                     help='Set the bandwidth of the LAN, such as 10Gbps'
                          ' (a bare number: Mbit/s)'),
        cli.Argument('--objective', choices=('seconds', 'wan_bytes'),
                     help='Minimize seconds of waiting, or bytes from'
                          " repositories (default: the objective of the site's"
                          ' plans)'),
        cli.Argument('--demand-factor', type=cli.positive(), metavar='<n>',
                     help='Assume this many times as many requests'))

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        changes = commands.given(
            parsed_args, 'add_hosts', 'capacity_bytes', 'repository_mbps',
            'peer_mbps', 'demand_factor')
        if not changes:
            raise exceptions.CommandError(
                'Nothing to compare; change something, such as'
                ' "--add-hosts 1".')
        return formats.fields(_OUTCOME, self.client.what_if(
            self.site_name(parsed_args.site), parsed_args.objective,
            **changes))
