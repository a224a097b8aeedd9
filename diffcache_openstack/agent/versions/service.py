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
"""Versions in the agent: what the conductor and Nova's driver ask of it."""

import collections.abc
import logging
import pathlib
import time
import typing
import uuid

from oslo_config import cfg
import oslo_messaging

from diffcache_openstack.agent.versions import guests
from diffcache_openstack.agent.versions import images
from diffcache_openstack.agent.versions import stores
from diffcache_openstack.agent.versions import tasks
from diffcache_openstack.agent.versions import worker as version_worker
from diffcache_openstack.common import context as contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import messaging
from diffcache_openstack import objects
from diffcache_openstack.objects import versions
from diffcache_openstack.rpc import agent_versions_api
from diffcache_openstack.rpc import conductor_versions_api
from diffcache_openstack.versions import view_cleanup

LOG = logging.getLogger(__name__)

_HOOKS = (versions.SHUTDOWN, versions.DELETE)
_AGAIN_SECONDS = 2.0

Watch = collections.abc.Callable[[int, int], bool]


class VersionService:
    """Does this host's tasks, and those that Nova's driver begins.

    :param agent: delivers base images
    :param conductor: is told how far tasks are
    :param name: this host
    """

    def __init__(self, conf: cfg.ConfigOpts, agent: version_worker.Images,
                 conductor: conductor_versions_api.VersionsAPI, name: str
                 ) -> None:
        self._conf = conf
        self._conductor = conductor
        self._name = name
        self._context = contexts.RequestContext.for_service(name)
        options = conf.versions
        state = pathlib.Path(conf.agent.state_dir) / 'versions'
        worker = version_worker.Worker(
            stores.Stores(conf),
            guests.Guests(options.libvirt_uri, options.directories),
            agent, images.Images(conf), state / 'work', options.rate)
        self.tasks = tasks.Tasks(
            state / 'tasks', worker.perform, self._report, options.workers)

    def start(self) -> None:
        """Go on with what the last run left."""
        self._tidy()
        self.tasks.start()

    def _tidy(self) -> None:
        """Remove copies of disks that no save will ask for again."""
        tags = [view_cleanup.tag_of(task) for task in self.tasks.left()]
        for directory in self._conf.versions.directories:
            try:
                view_cleanup.remove_abandoned(pathlib.Path(directory), tags)
            except OSError as error:
                LOG.warning('Copies of disks may be left in %s: %s',
                            directory, error)

    def stop(self) -> None:
        """Interrupt what runs, to be begun again at the next start."""
        self.tasks.stop()

    def save_before(self, server_id: str, project_id: str, trigger: str,
                    image_id: str | None, watch: Watch
                    ) -> dict[str, typing.Any]:
        """Save a server that is about to go, if its policy wants that.

        :param trigger: ``shutdown`` or ``delete``
        :param watch: is told how far it is; returns whether anybody waits
        :returns: ``version``, the id or None; ``required``; ``error``, why
            there is none though the policy wants one
        :raises InvalidInput: there is no such trigger
        :raises ServiceUnavailable: nobody can tell what the policy is
        """
        if trigger not in _HOOKS:
            raise exceptions.InvalidInput(
                f'The trigger "{trigger}" is unknown; use one of'
                f' {", ".join(_HOOKS)}.')
        deadline = time.monotonic() + self._conf.versions.hook_timeout
        begun = self._begin(objects.NewVersion(
            id=str(uuid.uuid4()), server_id=server_id, project_id=project_id,
            trigger=trigger, base_image=image_id,
            description=f'Before {trigger}'), deadline, watch)
        if begun is None:
            return {'version': None, 'required': False, 'error': None}
        task, required = begun
        error = self._wait(task, deadline, watch)
        return {'version': None if error else task.version_id,
                'required': required, 'error': error}

    def _begin(self, new, deadline, watch):
        """The task, once it is its project's turn; None if there is none."""
        while True:
            try:
                return self._conductor.begin_local(self._context, self._name,
                                                   new)
            except exceptions.Busy:
                if time.monotonic() > deadline or not watch(0, 0):
                    raise
                time.sleep(_AGAIN_SECONDS)

    def _wait(self, task, deadline, watch) -> str | None:
        doing = self.tasks.perform(task)
        while not doing.ended.wait(1.0):
            wanted = watch(doing.report.done, doing.report.total)
            if not wanted or time.monotonic() > deadline:
                # What is going to be removed cannot be saved later.
                self.tasks.cancel(task.id)
                return (f'Version {task.version_id} was not saved in'
                        f' {self._conf.versions.hook_timeout} s.')
        return doing.report.error

    def _report(self, report: objects.TaskReport) -> bool:
        return self._conductor.report_task(self._context, report)


class VersionsManager:
    """The RPC endpoint; :class:`.versions_rpcapi.AgentVersionsAPI` calls."""

    target = oslo_messaging.Target(namespace=agent_versions_api.NAMESPACE,
                                   version=agent_versions_api.VERSION)

    def __init__(self, service: VersionService):
        self._service = service

    @messaging.exposed
    def perform(self, ctxt: contexts.RequestContext,
                task: objects.VersionTask) -> None:
        """Do a task."""
        self._service.tasks.perform(task)

    @messaging.exposed
    def cancel(self, ctxt: contexts.RequestContext, task_id: str) -> None:
        """Give a task up."""
        self._service.tasks.cancel(task_id)
