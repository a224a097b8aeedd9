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
"""Separating the agent's privileges, before anything else of it runs."""

import logging
import os
import pathlib
import typing

from oslo_config import cfg
from oslo_privsep import capabilities

from diffcache_openstack import _native
from diffcache_openstack.agent.images.delivery import outputs
from diffcache_openstack.agent.privileged import contexts
from diffcache_openstack.agent.privileged import privileged_disks
from diffcache_openstack.agent.privileged import privileged_outputs
from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.disks import disk_files

LOG = logging.getLogger(__name__)

# Where the agent's images are before they are handed over.
_STAGING = pathlib.Path('objects') / 'staging'
_DISKS = (contexts.READER, contexts.WRITER, contexts.PROGRAMS)


def separate(conf: cfg.ConfigOpts) -> typing.Callable[[typing.Sequence[str]],
                                                      outputs.Outputs]:
    """Start the privileged processes, and drop this process's capabilities.

    Without capabilities, or as root, the agent handles files itself.

    :returns: what makes outputs of the directories that they may be in
    :raises InvalidInput: this process has threads, which would keep theirs
    """
    roots = tuple(conf.versions.directories)
    disk_files.use(disk_files.DiskFiles(roots))
    if os.geteuid() == 0:
        LOG.warning('The agent runs as root. Run it as a user of its own, with'
                    ' the capabilities that the documentation lists (Running'
                    ' the services).')
        return outputs.Outputs
    _check_single()
    # A program with the set-user-ID bit gives none back, either.
    _native.set_no_new_privileges()
    started = _start(conf, roots)
    capabilities.drop_all_caps_except((), (), ())
    for context in started:
        context.connect()
    if any(context in started for context in _DISKS):
        disk_files.use(privileged_disks.PrivilegedDiskFiles(roots))
    if contexts.OUTPUTS in started:
        return privileged_outputs.PrivilegedOutputs
    return outputs.Outputs


def _check_single() -> None:
    """Check that no thread could keep its capabilities.

    :raises InvalidInput: there are threads
    """
    count = len(os.listdir('/proc/self/task'))
    if count != 1:
        raise exceptions.InvalidInput(
            f'The agent has {count} threads before it drops its capabilities:'
            f' unset what starts threads in every Python process, such as'
            f' sitecustomize.')


def _start(conf: cfg.ConfigOpts, roots: tuple[str, ...]
           ) -> list[contexts.Context]:
    """Fork the processes for which there are capabilities."""
    allowed = tuple(conf.agent.output_directories)
    privileged_outputs.configure(
        allowed, str(pathlib.Path(conf.agent.state_dir) / _STAGING))
    privileged_disks.configure(roots)
    permitted = capabilities.get_caps()[1]
    wanted = [*([contexts.OUTPUTS] if allowed else []),
              *(_DISKS if roots else [])]
    started = []
    for context in wanted:
        kept = context.granted(permitted)
        if kept:
            pid = context.fork(kept)
            LOG.info('Privileged process %s (%d) keeps %s', context.name, pid,
                     ', '.join(sorted(capabilities.CAPS_BYVALUE[number]
                                      for number in kept)))
            started.append(context)
    return started
