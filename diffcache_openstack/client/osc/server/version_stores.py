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
"""``openstack server version store``."""

import argparse

from diffcache_openstack.client.osc import commands
from diffcache_openstack.client.osc import formats
from diffcache_openstack.client.osc.server import version_commands
from diffcache_openstack.common.commands import cells
from diffcache_openstack.common.commands import cli

_STORE: list[formats.Column] = [
    ('Project', 'project_id', None), ('Size', 'bytes', cells.Size),
    ('Verified At', 'verified_at', cells.Time),
    ('Copied At', 'copied_at', cells.Time),
    ('Copy Lag', 'copy_lag', cells.Named)]
_PROJECT = cli.Argument('--project', metavar='<project>',
                        help='Project (name or ID; default: your own)')


class ShowStore(commands.ShowOne):
    """Show a project's version store, and what its copy lacks"""

    examples = ('--project demo',)
    arguments = (_PROJECT,)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        project = (self.project_id(parsed_args.project)
                   if parsed_args.project
                   else self.connection.current_project_id)
        return formats.fields(_STORE, self.client.get_version_store(project))


class Replicate(commands.ShowOne):
    """Have the copy of a project's version store follow it

    Or create a store that was lost of its copy: see "Copies of stores" in the
    administrator guide.
    """

    examples = ('--wait',)
    arguments = (
        _PROJECT,
        cli.Argument('--from-copy', action='store_true',
                     help='Create the store, which must be empty, of its'
                          ' copy'),
        *version_commands.WAIT)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        project = parsed_args.project
        task = self.client.replicate_versions(
            self.project_id(project) if project else None,
            parsed_args.from_copy)
        if parsed_args.wait:
            task = version_commands.wait_for_task(
                self.client, task, 'Copying', parsed_args.timeout)
        return formats.fields(version_commands.TASK, task)
