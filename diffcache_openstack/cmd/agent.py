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
"""``diffcache-agent``: the service on every compute and repository host."""

import os

from oslo_config import cfg

from diffcache_openstack.agent.privileged import start
from diffcache_openstack.cmd import services
from diffcache_openstack.common import permissions
from diffcache_openstack.runtime import service


def _create(conf: cfg.ConfigOpts) -> service.Service:
    """Create the agent, without the privileges that it was started with.

    Other users may not read its new files. What Nova and Glance are to read
    is given to them explicitly.
    """
    os.umask(permissions.UMASK)
    new_outputs = start.separate(conf)
    # Not before: libraries that it needs start threads, which would keep the
    # capabilities.
    from diffcache_openstack.agent import service as agent_service
    return agent_service.Agent(conf, new_outputs)


PROGRAM = services.Program(
    'diffcache-agent',
    description="Run this host's agent: it caches, builds, delivers "
                'and saves disk images.',
    create=_create,
    # One process: the state directory has one owner.
    workers=lambda conf: 1)


def main() -> int:
    """Run the agent until SIGTERM."""
    return services.main(PROGRAM)
