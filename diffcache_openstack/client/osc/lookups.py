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
"""``openstack image cache lookup``."""

import argparse

from diffcache_openstack.client.osc import commands
from diffcache_openstack.client.osc import formats

_WAYS: list[formats.Column] = [
    ('Way', 'way', None), ('Seconds', 'seconds', formats.Rounded),
    ('WAN', 'wan_bytes', formats.Size), ('LAN', 'lan_bytes', formats.Size),
    ('Detail', 'detail', formats.Text)]


class Lookup(commands.ImageCommand, commands.HostCommand, commands.Lister):
    """List the ways for a host to get an image, cheapest first"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the arguments of the command."""
        parser = super().get_parser(prog_name)
        commands.add_limit(parser, 'ways')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        """Call the service."""
        found = self.client.lookup(
            parsed_args.host, self.known_image_id(parsed_args.image),
            limit=parsed_args.limit)
        return formats.table(_WAYS, found['ways'])
