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
"""``diffcache-manage agent``."""

import argparse

from diffcache_openstack.cmd.manage import base


class AgentStatus(base.HostArgument, base.ShowOne):
    """Show what the agent of a host is doing."""

    examples = ('edge-1-host-2',)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        with self.agents() as agents:
            status = agents.status(base.service_context(),
                                   parsed_args.host)
        return tuple(zip(*sorted(status.items())))
