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
"""``openstack image cache quota``."""

import argparse

from diffcache_openstack.client.osc import commands
from diffcache_openstack.client.osc import formats
from diffcache_openstack.common.commands import cli

_SHOWN: list[formats.Column] = [
    ('Resource', 'resource', None), ('Limit', 'limit', None),
    ('In Use', 'usage', None)]


class ListQuotas(commands.Lister):
    """List the quotas of a project and how much of each is in use

    A limit of -1 means no limit. version_size_total is in MiB.
    """

    examples = ('--project demo',)
    arguments = (
        cli.Argument('--project', metavar='<project>',
                     help='Show the quotas of this project (name or ID;'
                          ' default: the current one)'),)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        project_id = parsed_args.project and self.project_id(
            parsed_args.project)
        found = self.client.limits(project_id)
        return formats.table(_SHOWN, [
            {'resource': name, **value} for name, value in found.items()
            if name != 'project_id'])
