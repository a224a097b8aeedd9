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
from diffcache_openstack.common.commands import cells

_WAYS: list[formats.Column] = [
    ('Way', 'way', None), ('Seconds', 'seconds', cells.Rounded),
    ('WAN', 'wan_bytes', cells.Size), ('LAN', 'lan_bytes', cells.Size),
    ('Detail', 'detail', cells.Text)]


def _lazy_boot(found):
    """Return a row for what a lazy boot waits for."""
    from_peers = found['peer_bytes']
    read, held = (cells.Size(found[name]).human_readable()
                  for name in ('read_bytes', 'held_bytes'))
    return {'way': 'lazy boot', 'seconds': found['seconds'],
            'wan_bytes': found['read_bytes'] - found['held_bytes']
            - from_peers, 'lan_bytes': from_peers,
            'detail': f'reads {read}, of which the host has {held}'}


class Lookup(commands.ImageCommand, commands.HostCommand, commands.Lister):
    """List the ways for a host to get an image, cheapest first

    The last row is what a lazy boot reads of it, if the host supports lazy
    boot and the image has a profile. Its WAN bytes come by the cheapest way to
    the image.
    """

    examples = ('edge-1-host-2 debian-12',)
    arguments = (commands.limit('ways'),)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        found = self.client.lookup(
            parsed_args.host, self.known_image_id(parsed_args.image),
            limit=parsed_args.limit)
        lazy_boot = found.get('lazy_boot')
        return formats.table(_WAYS, [
            *found['ways'], *([_lazy_boot(lazy_boot)] if lazy_boot else [])])
