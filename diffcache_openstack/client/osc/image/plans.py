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
import pathlib
import sys

from osc_lib import exceptions
from oslo_utils import uuidutils

from diffcache_openstack.client.osc import commands
from diffcache_openstack.client.osc import formats
from diffcache_openstack.client.osc import waiting
from diffcache_openstack.common import units

_LISTED: list[formats.Column] = [
    ('ID', 'id', None), ('Site', 'site', None), ('State', 'state', None),
    ('Generation', 'generation', None), ('Solver', 'solver', None),
    ('Cost (s/day)', 'cost_s', formats.Rounded),
    ('Gap', 'gap', formats.Share), ('Created At', 'created_at', formats.Time)]
_SHOWN: list[formats.Column] = [
    ('ID', 'id', None), ('Site', 'site', None), ('State', 'state', None),
    ('Generation', 'generation', None),
    ('Base Generation', 'base_generation', None),
    ('Solver', 'solver', None), ('Cost S', 'cost_s', formats.Rounded),
    ('Lower Bound S', 'lower_bound_s', formats.Rounded),
    ('Gap', 'gap', formats.Share),
    ('Proved Optimal', 'is_proved_optimal', None),
    ('Objective', 'objective', None),
    ('Costs Over WAN (per day)', 'cost_wan_bytes', formats.Size),
    ('Solver Seconds', 'solver_seconds', formats.Rounded),
    ('Moves Over WAN', 'move_wan_bytes', formats.Size),
    ('Moves Over LAN', 'move_lan_bytes', formats.Size),
    ('Fill Seconds', 'fill_seconds', formats.Rounded),
    ('Saves (s/day)', 'saved_seconds', formats.Rounded),
    ('Saves Over WAN (per day)', 'saved_wan_bytes', formats.Size),
    ('Created At', 'created_at', formats.Time), ('Error', 'error', None)]
_ITEMS: list[formats.Column] = [
    ('Host', 'host', None), ('Priority', 'priority', None),
    ('Kind', 'kind', None), ('ID', 'id', formats.Hash),
    ('Size', 'bytes', formats.Size),
    ('Saves (s/day)', 'saved_seconds', formats.Rounded),
    ('Held', 'held', None), ('Images', 'templates', formats.Names)]
_REASONS: list[formats.Column] = [
    ('Host', 'host', None), ('Kind', 'kind', None),
    ('ID', 'id', formats.Hash), ('Size', 'bytes', formats.Size),
    ('Saves (s/day)', 'saves_s', formats.Rounded),
    ('Eviction', 'eviction', None), ('Why', 'why', formats.Text)]
_OUTCOME: list[formats.Column] = [
    ('Mean Before S', 'before.mean_s', formats.Rounded),
    ('Mean After S', 'after.mean_s', formats.Rounded),
    ('Cost Before S', 'before.cost_s', formats.Rounded),
    ('Cost After S', 'after.cost_s', formats.Rounded),
    ('Saving', 'saving', formats.Share),
    ('Objective', 'objective', None),
    ('WAN per Request Before', 'before.mean_wan_bytes', formats.Size),
    ('WAN per Request After', 'after.mean_wan_bytes', formats.Size),
    ('WAN per Day Before', 'before.cost_wan_bytes', formats.Size),
    ('WAN per Day After', 'after.cost_wan_bytes', formats.Size),
    ('Saving Over WAN', 'saving_wan', formats.Share)]
_STATES = ('computing', 'proposed', 'failed', 'cancelled', 'current',
           'superseded')
_WAIT_SECONDS = 900.0
_PICTURES = ('.png', '.svg', '.pdf')


class ProposalCommand(commands.Command):
    """A command about one proposed plan."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('plan', metavar='<plan>', help='ID of the plan')
        return parser


class PlanCommand(commands.Command):
    """A command about one plan."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'plan', metavar='<plan>', nargs='?',
            help='ID of a plan, or name of a site for its current plan'
                 ' (default: the current plan of the only site with compute'
                 ' hosts)')
        return parser

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

    wide = frozenset({'Generation', 'Solver', 'Cost (s/day)'})

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the arguments of the command."""
        parser = super().get_parser(prog_name)
        commands.add_filters(parser, 'plans', site='of this site')
        parser.add_argument('--state', choices=_STATES,
                            help='List only plans in this state')
        commands.add_paging(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Call the service."""
        return formats.table(_LISTED, self.client.plans(
            **commands.query(parsed_args, 'site', 'state')))


class ShowPlan(PlanCommand, commands.ShowOne):
    """Show a plan, or draw it"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--graph', type=_picture, metavar='<file>',
            help='Draw families, placement and what each object saves into'
                 ' this file, too (PNG, SVG or PDF by its suffix)')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Call the service."""
        plan = self.client.get_plan(self.plan_id(parsed_args.plan))
        if parsed_args.graph:
            self._draw(plan, parsed_args.graph)
        return formats.fields(_SHOWN, plan)

    def _draw(self, plan, path):
        # Imports matplotlib, which is slow.
        from diffcache_openstack.client.osc import graphs
        try:
            graphs.draw_plan(plan, self.client.templates(), path)
        except OSError as error:
            raise exceptions.CommandError(
                f'Could not write {path}: {error.strerror or error}; choose'
                f' another path.') from error


class ListItems(PlanCommand, commands.Lister):
    """List the objects that a plan places on hosts"""

    wide = frozenset({'Priority', 'ID'})

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the arguments of the command."""
        parser = super().get_parser(prog_name)
        commands.add_filters(parser, 'objects', host='for this host')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Call the service."""
        plan = self.client.get_plan(self.plan_id(parsed_args.plan))
        return formats.table(_ITEMS, (
            item for item in plan.items
            if parsed_args.host in (None, item['host'])))


class CreatePlan(commands.SiteCommand, commands.ShowOne):
    """Compute a plan as a proposal"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('--solver', metavar='<name>',
                            help='Solver to use: auto, ilp or greedy (default:'
                                 ' the conductor\'s)')
        parser.add_argument('--time-limit', type=commands.seconds,
                            metavar='<seconds>',
                            help='Most seconds that the solver may take')
        parser.add_argument('--wait', action='store_true',
                            help='Wait until the plan is computed')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Call the service."""
        values = {name: getattr(parsed_args, name)
                  for name in ('solver', 'time_limit')}
        values['site'] = self.site_name(parsed_args.site)
        plan = self.client.create_plan(**{
            name: value for name, value in values.items()
            if value is not None})
        if parsed_args.wait:
            plan = self.client.wait_for_plan(plan.id, _WAIT_SECONDS)
            if plan.state == 'failed':
                raise exceptions.CommandError(plan.error)
        return formats.fields(_SHOWN, plan)


class ApplyPlan(ProposalCommand, commands.ShowOne):
    """Make a proposed plan the current one"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--wait', action='store_true',
            help='Wait until the hosts hold what the plan places there')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Call the service."""
        plan = self.client.get_plan(parsed_args.plan)
        self.client.apply_plan(plan.id, plan.base_generation)
        plan = self.client.get_plan(plan.id)
        if parsed_args.wait:
            with waiting.Bar(f'Site {plan.site}', sys.stderr) as bar:
                self.client.wait_for_fill(plan.id, _WAIT_SECONDS,
                                          progress=bar.show)
        return formats.fields(_SHOWN, plan)


class CancelPlan(ProposalCommand):
    """Discard a proposed plan"""

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Call the service."""
        self.client.cancel_plan(parsed_args.plan)


class ExplainPlan(PlanCommand, commands.Lister):
    """Explain why a plan places each object where it does"""

    wide = frozenset({'Eviction', 'Size'})

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the arguments of the command."""
        parser = super().get_parser(prog_name)
        commands.add_filters(parser, 'objects', host='for this host')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Call the service."""
        return formats.table(_REASONS, self.client.explain_plan(
            self.plan_id(parsed_args.plan), host=parsed_args.host))


class WhatIf(commands.SiteCommand, commands.ShowOne):
    """Estimate the cost of a site if its hosts or links were different"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('--add-hosts', type=int, metavar='<n>',
                            help='Add so many hosts')
        parser.add_argument('--capacity-bytes', type=_difference,
                            metavar='<size>',
                            help='Add so much cache capacity to each host,'
                                 ' such as 50GB; less with =-50GB')
        parser.add_argument('--repository-mbps', type=float, metavar='<n>',
                            help='Set the bandwidth of the WAN (Mbit/s)')
        parser.add_argument('--peer-mbps', type=float, metavar='<n>',
                            help='Set the bandwidth of the LAN (Mbit/s)')
        parser.add_argument('--objective', choices=('seconds', 'wan_bytes'),
                            help='Minimize seconds of waiting, or bytes from'
                                 ' repositories (default: what the plans of'
                                 ' the site do)')
        parser.add_argument('--demand-factor', type=float, metavar='<n>',
                            help='Multiply the number of requests by this')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Call the service."""
        changes = {name: value for name in (
            'add_hosts', 'capacity_bytes', 'repository_mbps', 'peer_mbps',
            'demand_factor')
            if (value := getattr(parsed_args, name)) is not None}
        if not changes:
            raise exceptions.CommandError(
                'Nothing to compare; change something, such as'
                ' "--add-hosts 1".')
        return formats.fields(_OUTCOME, self.client.what_if(
            self.site_name(parsed_args.site), parsed_args.objective,
            **changes))


def _picture(text):
    if pathlib.Path(text).suffix.lower() not in _PICTURES:
        raise argparse.ArgumentTypeError(
            f'"{text}" does not end in .png, .svg or .pdf')
    return text


def _difference(text):
    """Parse an amount of bytes that may be negative."""
    size = text.removeprefix('-')
    try:
        return units.parse_size(size) * (1 if size == text else -1)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
