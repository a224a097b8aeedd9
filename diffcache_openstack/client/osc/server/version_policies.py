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
import itertools

from osc_lib import exceptions

from diffcache_openstack.client.osc import commands
from diffcache_openstack.client.osc import formats
from diffcache_openstack.client.osc.server import estimates
from diffcache_openstack.common.commands import cells
from diffcache_openstack.common.commands import cli

_LISTED: list[formats.Column] = [
    ('ID', 'id', None), ('Server', 'server_id', None),
    ('Every', 'every', cells.Duration), ('Last', 'keep_last', None),
    ('Hourly', 'keep_hourly', None), ('Daily', 'keep_daily', None),
    ('Weekly', 'keep_weekly', None), ('Monthly', 'keep_monthly', None),
    ('On Shutdown', 'is_on_shutdown', None),
    ('On Delete', 'is_on_delete', None), ('Required', 'is_required', None)]
_SHOWN: list[formats.Column] = [
    *_LISTED, ('Volumes', 'has_volumes', None), ('Alpha', 'alpha', None),
    ('Project', 'project_id', None),
    ('Created At', 'created_at', cells.Time),
    ('Updated At', 'updated_at', cells.Time)]
_ESTIMATED: list[formats.Column] = [
    ('Judged By Versions', 'versions', None),
    ('Stored Per Day', 'bytes_per_day', cells.Size),
    ('Save Seconds', 'save_seconds', cells.Rounded),
    ('Pause ms', 'pause_ms', cells.Rounded),
    ('Restore Seconds', 'restore_seconds', cells.Rounded)]
# Latest versions, and restores, that an estimate considers.
_JUDGED = 1000
_KEPT = {'last': 'this many of the latest versions', **{
    name: f'the last version of this many {name} periods'
    for name in ('hourly', 'daily', 'weekly', 'monthly')}}


_SUBJECT = cli.OneOf(
    cli.Argument('--server', metavar='<server>',
                 help='Set the policy of this server (name or ID)'),
    cli.Argument('--project-default', action='store_true',
                 help='Set the policy of all servers of the project without a'
                      ' policy of their own'), required=True)


class PolicyCommand(commands.Command):
    """A command about one policy."""

    arguments: cli.Arguments = (_SUBJECT,)

    def find(self, parsed_args):
        """Return the policy that the arguments select.

        :raises CommandError: there is none
        """
        wanted = parsed_args.server and self.server_id(
            parsed_args.server, may_be_gone=True)
        project = getattr(self.connection, 'current_project_id', None)
        for policy in self.client.version_policies(
                **({'server_id': wanted} if wanted else {})):
            if wanted or (policy.server_id is None
                          and project in (None, policy.project_id)):
                return policy
        what = f'Server {parsed_args.server}' if wanted else 'The project'
        raise exceptions.CommandError(f'{what} has no version policy.')


class CreatePolicy(commands.ShowOne):
    """Create the policy of a server or project: when to save, what to keep

    It replaces an existing policy.
    """

    examples = ('--server web-1 --every 1d --keep-daily 7 --keep-weekly 4',)
    arguments = (
        _SUBJECT,
        cli.Argument('--every', type=cli.duration, metavar='<duration>',
                     help='Time between two versions, such as 6h or 1d'),
        *(cli.Argument(f'--keep-{name}', type=cli.whole(0), metavar='<n>',
                       help=f'Keep {what}; without any --keep option all'
                            ' versions are kept')
          for name, what in _KEPT.items()),
        cli.Argument('--on-shutdown', action='store_true',
                     help='Save the server when it is shut down'),
        cli.Argument('--on-delete', action='store_true',
                     help='Save the server before it is deleted'),
        cli.Argument('--required', action='store_true',
                     help='Refuse to delete a server that could'
                          ' not be saved'),
        cli.Argument('--without-volumes', action='store_true',
                     help='Save only the disks of servers, and not their'
                          ' volumes'),
        cli.Argument('--alpha', metavar='<alpha>',
                     help='As in "server version create"'))

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        values = commands.given(parsed_args, 'every', 'alpha', *(
            f'keep_{name}' for name in _KEPT))
        if parsed_args.server:
            values['server_id'] = self.server_id(parsed_args.server)
        return formats.fields(_SHOWN, self.client.set_version_policy(
            **values, is_on_shutdown=parsed_args.on_shutdown,
            is_on_delete=parsed_args.on_delete,
            is_required=parsed_args.required,
            has_volumes=not parsed_args.without_volumes))


class ListPolicies(commands.Lister):
    """List version policies"""

    wide = frozenset({'ID', 'On Shutdown', 'On Delete', 'Required'})

    arguments = (
        commands.project('policies'),
        *commands.PAGING)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        if parsed_args.project_id:
            parsed_args.project_id = self.project_id(parsed_args.project_id)
        return formats.table(_LISTED, self.client.version_policies(
            **commands.query(parsed_args, 'project_id')))


class ShowPolicy(PolicyCommand, commands.ShowOne):
    """Show a version policy"""

    examples = ('--server web-1', '--project-default --estimate')
    arguments = (
        cli.Argument('--estimate', action='store_true',
                     help='Show also what it costs, judged by the latest'
                          ' versions and restores of its servers'),)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        policy = self.find(parsed_args)
        names, values = formats.fields(_SHOWN, policy)
        if parsed_args.estimate:
            more = formats.fields(_ESTIMATED, self._estimate(policy))
            names, values = names + more[0], values + more[1]
        return names, values

    def _estimate(self, policy):
        query = {'server_id': policy.server_id} if policy.server_id else {
            'project_id': policy.project_id}
        return estimates.estimate(
            itertools.islice(self.client.server_versions(
                state='available', **query), _JUDGED),
            itertools.islice(self.client.version_tasks(
                kind='restore', state='done', **query), _JUDGED))


class DeletePolicy(PolicyCommand):
    """Delete a version policy; versions are kept"""

    examples = ('--server web-1',)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        self.client.unset_version_policy(self.find(parsed_args).id)
