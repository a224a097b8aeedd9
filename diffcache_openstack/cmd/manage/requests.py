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
"""``diffcache-manage request``."""

import argparse

from diffcache_openstack.cmd.manage import base
from diffcache_openstack.common.commands import cells
from diffcache_openstack.common.commands import cli
from diffcache_openstack.db.planning import history


class RequestList(base.Lister):
    """List the latest image requests and how they were served."""

    examples = ('--limit 20',)
    arguments = (
        cli.Argument('--limit', metavar='N', type=cli.whole(1), default=50,
                     help='Maximum number of requests to list'
                          ' (default: 50).'),)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        with self.database() as database:
            requests = database.read(history.list_requests,
                                     parsed_args.limit)
        return ('Started at', 'Host', 'Image', 'Way', 'Seconds', 'WAN',
                'Fallbacks', 'Error'), [
            (r.started_at.isoformat(), r.host, r.image_id, r.way,
             round(r.seconds, 3), cells.Size(r.wan_bytes), r.fallbacks,
             r.error) for r in requests]
