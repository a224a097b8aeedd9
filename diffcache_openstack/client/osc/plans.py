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
    ('Gap', 'gap', formats.Share), ('Created At', 'created_at', None)]
_SHOWN: list[formats.Column] = [
    ('ID', 'id', None), ('Site', 'site', None), ('State', 'state', None),
    ('Generation', 'generation', None),
    ('Base Generation', 'base_generation', None),
    ('Solver', 'solver', None), ('Cost S', 'cost_s', formats.Rounded),
    ('Lower Bound S', 'lower_bound_s', formats.Rounded),
    ('Gap', 'gap', formats.Share),
    ('Proved Optimal', 'is_proved_optimal', None),
    ('Solver Seconds', 'solver_seconds', formats.Rounded),
    ('Created At', 'created_at', None), ('Error', 'error', None)]
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
    ('Eviction', 'eviction', None), ('Why', 'why', None)]
_OUTCOME: list[formats.Column] = [
    ('Mean Before S', 'before.mean_s', formats.Rounded),
    ('Mean After S', 'after.mean_s', formats.Rounded),
    ('Cost Before S', 'before.cost_s', formats.Rounded),
    ('Cost After S', 'after.cost_s', formats.Rounded),
    ('Saving', 'saving', formats.Share)]
_STATES = ('computing', 'proposed', 'failed', 'cancelled', 'current',
           'superseded')
_WAIT_SECONDS = 900.0
_PICTURES = ('.png', '.svg', '.pdf')


class ProposalCommand(commands.Command):
    """A command about one plan that was proposed."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('plan', metavar='<plan>', help='ID of the plan')
        return parser


class PlanCommand(commands.Command):
    """A command about one plan."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'plan', metavar='<plan>',
            help='ID of the plan, or name of a site for its plan in force')
        return parser

    def plan_id(self, name: str) -> str:
        """The id of a plan by its id, or by its site if it is in force."""
        if not name or uuidutils.is_uuid_like(name):
            return name
        found = next(iter(self.client.plans(site=name, state='current')),
                     None)
        return found.id if found else name


class ListPlans(commands.Lister):
    """List plans, the latest first"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Arguments of the command."""
        parser = super().get_parser(prog_name)
        commands.add_filters(parser, 'Plans', site='of this site')
        parser.add_argument('--state', choices=_STATES,
                            help='Plans in this state only')
        commands.add_paging(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Ask the service."""
        return formats.table(_LISTED, self.client.plans(
            **commands.query(parsed_args, 'site', 'state')))


class ShowPlan(PlanCommand, commands.ShowOne):
    """Show a plan, or draw it"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--graph', type=_picture, metavar='<file>',
            help='Also draw families, placement and what each object saves'
                 ' into this file (PNG, SVG or PDF by its ending)')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Ask the service."""
        plan = self.client.get_plan(self.plan_id(parsed_args.plan))
        if parsed_args.graph:
            self._draw(plan, parsed_args.graph)
        return formats.fields(_SHOWN, plan)

    def _draw(self, plan, path):
        # Loads much, and only here.
        from diffcache_openstack.client.osc import graphs
        try:
            graphs.draw_plan(plan, self.client.templates(), path)
        except OSError as error:
            raise exceptions.CommandError(
                f'{path} was not written: {error.strerror or error}; choose'
                f' another place.') from error


class ListItems(PlanCommand, commands.Lister):
    """List what a plan wants where"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Arguments of the command."""
        parser = super().get_parser(prog_name)
        commands.add_filters(parser, 'Objects', host='for this host')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Ask the service."""
        plan = self.client.get_plan(self.plan_id(parsed_args.plan))
        return formats.table(_ITEMS, (
            item for item in plan.items
            if parsed_args.host in (None, item['host'])))


class CreatePlan(commands.SiteCommand, commands.ShowOne):
    """Have a plan computed, to be applied or not"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('--solver', metavar='<name>',
                            help='auto, ilp or greedy')
        parser.add_argument('--time-limit', type=commands.seconds,
                            metavar='<seconds>',
                            help='Most that the solver may take')
        parser.add_argument('--wait', action='store_true',
                            help='Wait until it is computed')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Ask the service."""
        values = {name: getattr(parsed_args, name)
                  for name in ('site', 'solver', 'time_limit')}
        plan = self.client.create_plan(**{
            name: value for name, value in values.items()
            if value is not None})
        if parsed_args.wait:
            plan = self.client.wait_for_plan(plan.id, _WAIT_SECONDS)
            if plan.state == 'failed':
                raise exceptions.CommandError(plan.error)
        return formats.fields(_SHOWN, plan)


class ApplyPlan(ProposalCommand, commands.ShowOne):
    """Put a proposed plan into force"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--wait', action='store_true',
            help='Wait until the hosts hold what it wants')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Tell the service."""
        plan = self.client.get_plan(parsed_args.plan)
        self.client.apply_plan(plan.id, plan.base_generation)
        plan = self.client.get_plan(plan.id)
        if parsed_args.wait:
            with waiting.Bar(f'Site {plan.site}', sys.stderr) as bar:
                self.client.wait_for_fill(plan.id, _WAIT_SECONDS,
                                          progress=bar.show)
        return formats.fields(_SHOWN, plan)


class CancelPlan(ProposalCommand):
    """Drop a proposed plan"""

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Tell the service."""
        self.client.cancel_plan(parsed_args.plan)


class ExplainPlan(PlanCommand, commands.Lister):
    """Explain why a plan wants each object where it does"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Arguments of the command."""
        parser = super().get_parser(prog_name)
        commands.add_filters(parser, 'Objects', host='for this host')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Ask the service."""
        return formats.table(_REASONS, self.client.explain_plan(
            self.plan_id(parsed_args.plan), host=parsed_args.host))


class WhatIf(commands.SiteCommand, commands.ShowOne):
    """Say what a change of a site would be worth"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('--add-hosts', type=int, metavar='<n>',
                            help='With so many hosts more')
        parser.add_argument('--capacity-bytes', type=_difference,
                            metavar='<size>',
                            help='With so much more, such as 50GB, on each'
                                 ' host, or less, =-50GB')
        parser.add_argument('--repository-mbps', type=float, metavar='<n>',
                            help='With another bandwidth of the WAN')
        parser.add_argument('--peer-mbps', type=float, metavar='<n>',
                            help='With another bandwidth of the LAN')
        parser.add_argument('--demand-factor', type=float, metavar='<n>',
                            help='With so many times the requests')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Ask the service."""
        changes = {name: getattr(parsed_args, name) for name in (
            'add_hosts', 'capacity_bytes', 'repository_mbps', 'peer_mbps',
            'demand_factor')}
        return formats.fields(_OUTCOME, self.client.what_if(
            parsed_args.site, **{name: value
                                 for name, value in changes.items()
                                 if value is not None}))


def _picture(text):
    if pathlib.Path(text).suffix.lower() not in _PICTURES:
        raise argparse.ArgumentTypeError(
            f'"{text}" does not end in .png, .svg or .pdf')
    return text


def _difference(text):
    """Bytes, with a sign before them if they are to be fewer."""
    size = text.removeprefix('-')
    try:
        return units.parse_size(size) * (1 if size == text else -1)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
