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
"""``diffcache-agent``: the service on every compute and repository host.

What the service needs is loaded after its privileged processes were forked:
they need little of it, and what they copy of it as they run is memory of the
host that guests lack.
"""

import os
import typing

from diffcache_openstack.agent.privileged import start
from diffcache_openstack.common import permissions

if typing.TYPE_CHECKING:
    from diffcache_openstack.cmd import services


def program(privileges: start.Privileges) -> 'services.Program':
    """Return the program, without the privileges that it was started with."""
    from diffcache_openstack.agent import service as agent_service
    from diffcache_openstack.cmd import services
    return services.Program(
        'diffcache-agent',
        description="Run this host's agent: it caches, builds, delivers "
                    'and saves disk images.',
        create=lambda conf: agent_service.Agent(conf,
                                                privileges.outputs(conf)),
        # One process: the state directory has one owner.
        workers=lambda conf: 1)


def main() -> int:
    """Run the agent until SIGTERM.

    Other users may not read its new files. What Nova and Glance are to read
    is given to them explicitly.
    """
    os.umask(permissions.UMASK)
    privileges = start.separate()
    from diffcache_openstack.cmd import services
    return services.main(program(privileges))
