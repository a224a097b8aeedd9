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
"""``openstack server version policy``."""

import argparse

from osc_lib import exceptions

from diffcache_openstack.client.osc import commands
from diffcache_openstack.client.osc import formats
from diffcache_openstack.client.osc.server import versions
from diffcache_openstack.common import units

_LISTED: list[formats.Column] = [
    ('ID', 'id', None), ('Server', 'server_id', None),
    ('Every', 'every', formats.Duration), ('Last', 'keep_last', None),
    ('Hourly', 'keep_hourly', None), ('Daily', 'keep_daily', None),
    ('Weekly', 'keep_weekly', None), ('Monthly', 'keep_monthly', None),
    ('On Shutdown', 'is_on_shutdown', None),
    ('On Delete', 'is_on_delete', None), ('Required', 'is_required', None)]
_SHOWN: list[formats.Column] = [
    *_LISTED, ('Alpha', 'alpha', None), ('Project', 'project_id', None),
    ('Created At', 'created_at', formats.Time),
    ('Updated At', 'updated_at', formats.Time)]
_PERIODS = ('last', 'hourly', 'daily', 'weekly', 'monthly')


def _add_subject(parser):
    subject = parser.add_mutually_exclusive_group(required=True)
    subject.add_argument('--server', metavar='<server>',
                         help='Policy of this server (name or ID)')
    subject.add_argument('--project-default', action='store_true',
                         help='Policy of all servers of the project that have'
                              ' no policy of their own')


class PolicyCommand(commands.Command):
    """A command about one policy."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the arguments of the command."""
        parser = super().get_parser(prog_name)
        _add_subject(parser)
        return parser

    def find(self, parsed_args):
        """Return the policy that the arguments select.

        :raises CommandError: there is none
        """
        wanted = parsed_args.server and versions.server_id(
            self.connection, parsed_args.server, may_be_gone=True)
        project = getattr(self.connection, 'current_project_id', None)
        for policy in self.client.version_policies(
                **({'server_id': wanted} if wanted else {})):
            if wanted or (policy.server_id is None
                          and project in (None, policy.project_id)):
                return policy
        what = f'Server {parsed_args.server}' if wanted else 'The project'
        raise exceptions.CommandError(f'{what} has no version policy.')


class SetPolicy(commands.ShowOne):
    """Set when servers are saved and which versions are kept

    Options that are not given are turned off, also those set before.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the arguments of the command."""
        parser = super().get_parser(prog_name)
        _add_subject(parser)
        parser.add_argument('--every', type=_duration, metavar='<duration>',
                            help='Time between two versions, such as 6h or'
                                 ' 1d')
        for name in _PERIODS:
            what = ('so many of the latest versions' if name == 'last' else
                    f'the last version of so many {name} periods')
            parser.add_argument(f'--keep-{name}', type=int, metavar='<n>',
                                help=f'Keep {what}; without any --keep'
                                     ' option all versions are kept')
        parser.add_argument('--on-shutdown', action='store_true',
                            help='Save the server when it is shut down')
        parser.add_argument('--on-delete', action='store_true',
                            help='Save the server before it is deleted')
        parser.add_argument('--required', action='store_true',
                            help='Refuse to shut down or delete a server that'
                                 ' could not be saved')
        parser.add_argument('--alpha', metavar='<alpha>',
                            help='As in "server version create"')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Call the service."""
        values = {
            name: getattr(parsed_args, name)
            for name in ('every', 'alpha', *(f'keep_{each}'
                                             for each in _PERIODS))
            if getattr(parsed_args, name) is not None}
        if parsed_args.server:
            values['server_id'] = versions.server_id(self.connection,
                                                     parsed_args.server)
        return formats.fields(_SHOWN, self.client.set_version_policy(
            **values, is_on_shutdown=parsed_args.on_shutdown,
            is_on_delete=parsed_args.on_delete,
            is_required=parsed_args.required))


class ListPolicies(commands.Lister):
    """List version policies"""

    wide = frozenset({'ID', 'On Shutdown', 'On Delete', 'Required'})

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the arguments of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument('--project', metavar='<project>',
                            dest='project_id', help='List only policies of'
                            ' this project (name or ID)')
        commands.add_paging(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Call the service."""
        if parsed_args.project_id:
            parsed_args.project_id = self.project_id(parsed_args.project_id)
        return formats.table(_LISTED, self.client.version_policies(
            **commands.query(parsed_args, 'project_id')))


class ShowPolicy(PolicyCommand, commands.ShowOne):
    """Show a version policy"""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Call the service."""
        return formats.fields(_SHOWN, self.find(parsed_args))


class UnsetPolicy(PolicyCommand):
    """Delete a version policy; versions are kept"""

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Call the service."""
        self.client.unset_version_policy(self.find(parsed_args).id)


def _duration(text):
    try:
        return units.parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
