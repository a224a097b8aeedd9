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

import collections.abc
import gc
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
_DISKS = frozenset((contexts.READER, contexts.FILES, contexts.PROGRAMS))


class Privileges:
    """The privileged processes that wait to be told what they are for.

    :param started: their contexts, each with the capabilities that it keeps
    """

    def __init__(self, started: dict[contexts.Context, frozenset[int]]
                 ) -> None:
        self._started = started

    def outputs(self, conf: cfg.ConfigOpts
                ) -> typing.Callable[[typing.Sequence[str]], outputs.Outputs]:
        """Connect the processes that a configuration needs; end the others.

        Without capabilities, or as root, the agent handles files itself.

        :returns: what makes outputs of the directories that they may be in
        """
        roots = tuple(conf.versions.directories)
        allowed = tuple(conf.agent.output_directories)
        disk_files.use(disk_files.DiskFiles(roots))
        if os.geteuid() == 0:
            LOG.warning('The agent runs as root. Run it as a user of its own,'
                        ' with the capabilities that the documentation lists'
                        ' (Running the services).')
        settings = {
            'roots': roots, 'allowed': allowed,
            'staging': str(pathlib.Path(conf.agent.state_dir) / _STAGING)}
        # The agent asks for nothing else.
        _configure(settings)
        connected = self._connect(
            _DISKS if roots else {contexts.FILES} if allowed else set(),
            {**settings,
             'log_level': logging.getLogger().getEffectiveLevel()})
        if roots and connected:
            disk_files.use(privileged_disks.PrivilegedDiskFiles(roots))
        if allowed and contexts.FILES in connected:
            return privileged_outputs.PrivilegedOutputs
        return outputs.Outputs

    def _connect(self, wanted: collections.abc.Set[contexts.Context],
                 settings: dict[str, typing.Any]) -> set[contexts.Context]:
        """Connect those of the processes that are wanted; end the others."""
        for context in self._started.keys() - wanted:
            context.end()
        connected = self._started.keys() & wanted
        for context in connected:
            context.connect(settings)
            LOG.info('Privileged process %s (%d) keeps %s', context.name,
                     context.pid, ', '.join(sorted(
                         capabilities.CAPS_BYVALUE[number]
                         for number in self._started[context])))
        return connected


def separate() -> Privileges:
    """Fork the privileged processes, and drop this process's capabilities.

    :raises InvalidInput: this process has threads, which would keep theirs
    """
    if os.geteuid() == 0:
        return Privileges({})
    _check_single()
    # A program with the set-user-ID bit gives none back, either.
    _native.set_no_new_privileges()
    # The processes share the memory that none of them writes to. Whatever each
    # would do for itself is done here once: cffi parses a declaration at its
    # first call, and the collector writes to each object that it looks at.
    capabilities.set_keepcaps(False)
    gc.collect()
    gc.freeze()
    permitted = capabilities.get_caps()[1]
    started = {}
    for context in (contexts.READER, contexts.FILES, contexts.PROGRAMS):
        kept = context.granted(permitted)
        if kept:
            context.fork(kept, _begin)
            started[context] = kept
    capabilities.drop_all_caps_except((), (), ())
    return Privileges(started)


def _begin(settings: dict[str, typing.Any]) -> None:
    """Prepare a privileged process for its calls."""
    level = settings['log_level']
    logging.getLogger().setLevel(level)
    if level > logging.DEBUG:
        # The agent logs what it says of its start.
        logging.getLogger('oslo_privsep').setLevel(logging.WARNING)
    _configure(settings)


def _configure(settings: dict[str, typing.Any]) -> None:
    """State what this process is for."""
    privileged_outputs.configure(tuple(settings['allowed']),
                                 settings['staging'])
    privileged_disks.configure(tuple(settings['roots']))


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
