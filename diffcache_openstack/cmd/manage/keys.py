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
"""``diffcache-manage key``."""

import argparse

from diffcache_openstack.cmd.manage import base
from diffcache_openstack.common.commands import cli
from diffcache_openstack.common import keys


class KeyCreate(base.Command):
    """Create the key that the agents of a deployment share."""

    examples = ('deployment.key',)
    arguments = (
        cli.Argument('file', metavar='FILE',
                     help='File to write; it must not exist.'),)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        keys.create_key(parsed_args.file)
