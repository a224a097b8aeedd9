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
"""Versions in the agent: tasks of the conductor and of Nova's driver."""

import collections.abc
import functools
import json
import logging
import pathlib
import shutil
import threading
import time
import typing
import uuid

from oslo_config import cfg

from diffcache_openstack.agent.versions import arbiters
from diffcache_openstack.agent.versions import base_files
from diffcache_openstack.agent.versions import guests
from diffcache_openstack.agent.versions import project_stores
from diffcache_openstack.agent.versions import version_images
from diffcache_openstack.agent.versions import version_tasks
from diffcache_openstack.agent.versions import version_worker
from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import threads
from diffcache_openstack import objects
from diffcache_openstack.objects import versions
from diffcache_openstack.rpc import conductor_versions_api
from diffcache_openstack.versions.guests import view_cleanup
from diffcache_openstack.versions.store.commits import arbitration

LOG = logging.getLogger(__name__)

_HOOKS = (versions.SHUTDOWN, versions.DELETE)
_AGAIN_SECONDS = 2.0
# Servers that are saved at a time because Nova waits to end them.
_HOOK_WORKERS = 4
_VOLUME_WORKERS = 4

Watch = collections.abc.Callable[[int, int], bool]


class VersionService:
    """Performs the tasks of this host, and those that Nova's driver starts.

    :ivar stores: of projects
    :ivar base_files: finds base images
    :ivar base_indexes: counts of those that were checked, see
        :class:`.worker.Worker`
    :param agent: provides base images
    :ivar name: of this host
    :ivar guests: servers of this host
    :param conductor: receives reports on tasks
    """

    def __init__(self, conf: cfg.ConfigOpts, agent: base_files.ImageSource,
                 conductor: conductor_versions_api.VersionsAPI, name: str
                 ) -> None:
        self._conf = conf
        self._conductor = conductor
        self.name = name
        self._context = contexts.RequestContext.for_service(name)
        # Ends what waits for the conductor, which may be down.
        self._stopping = threading.Event()
        options = conf.versions
        state = pathlib.Path(conf.agent.state_dir) / 'versions'
        self.stores = project_stores.ProjectStores(
            conf, memory=state / 'stores', arbiter_of=self._arbiter_of)
        self._work = state / 'work'
        self.guests = guests.Guests(options.libvirt_uri, options.directories)
        worker = version_worker.Worker(
            self.stores, self.guests, agent,
            version_images.VersionImages(conf), self._work,
            version_worker.Limits(options.rate, options.min_rate,
                                  options.scratch_limit))
        self._volumes = worker.volumes
        self.base_files = worker.base_files
        self.base_indexes = worker.base_indexes
        self.tasks = version_tasks.Tasks(
            state / 'tasks', worker, self._report,
            version_tasks.Workers(options.workers, hooks=_HOOK_WORKERS,
                                  volumes=_VOLUME_WORKERS))

    def start(self) -> None:
        """Resume the tasks that the last process left."""
        self._tidy()
        self.tasks.start()

    def _tidy(self) -> None:
        """Remove files and copies of disks that no task will use."""
        left = self.tasks.left()
        for path in self._work.glob('*'):
            if path.name not in left:
                shutil.rmtree(path, ignore_errors=True)
        tags = [view_cleanup.tag_of(task) for task in left]
        for directory in self._conf.versions.directories:
            try:
                view_cleanup.remove_abandoned(pathlib.Path(directory), tags)
            except OSError as error:
                LOG.warning('Could not remove copies of disks in %s: %s',
                            directory, error)

    def stop(self) -> None:
        """Interrupt tasks, which are resumed at the next start."""
        self._stopping.set()
        self.tasks.stop()

    def save_before(self, server_id: str, project_id: str, trigger: str,
                    image_id: str | None, watch: Watch
                    ) -> dict[str, typing.Any]:
        """Save a server before it stops or is deleted, if its policy says so.

        :param trigger: ``shutdown`` or ``delete``
        :param watch: gets the progress; returns False to cancel
        :returns: ``version``, the id or None; ``required``; ``error``, the
            reason if a required save failed
        :raises InvalidInput: the trigger is unknown
        :raises ServiceUnavailable: the policy cannot be read
        :raises Interrupted: this process stops before it is read
        """
        if trigger not in _HOOKS:
            raise exceptions.InvalidInput(
                f'The trigger "{trigger}" is unknown; use one of'
                f' {", ".join(_HOOKS)}.')
        deadline = time.monotonic() + self._conf.versions.hook_timeout
        try:
            started = self._begin(objects.NewVersion(
                id=str(uuid.uuid4()), server_id=server_id,
                project_id=project_id, trigger=trigger, base_image=image_id,
                description=f'Before {trigger}'), deadline, watch)
        except exceptions.QuotaExceeded as error:
            # The conductor raises it only if the policy requires the version.
            return {'version': None, 'required': True, 'error': str(error)}
        if started is None:
            return {'version': None, 'required': False, 'error': None}
        task, required = started
        try:
            self._perform(task, deadline, watch)
        except exceptions.ServiceUnavailable as error:
            return {'version': None, 'required': required,
                    'error': str(error)}
        return {'version': task.version_id, 'required': required,
                'error': None}

    def save_for_image(self, server_id: str, project_id: str, watch: Watch
                       ) -> objects.SavedVersion:
        """Save a server that Nova makes an image of.

        :param watch: gets the progress; returns False to cancel
        :raises NotFound: Nova has no such server
        :raises Forbidden: Nova makes no image of it here
        :raises QuotaExceeded: the project may save no more
        :raises ServiceUnavailable: it was not saved
        """
        deadline = time.monotonic() + self._conf.versions.hook_timeout
        task, _required = self._begin(objects.NewVersion(
            id=str(uuid.uuid4()), server_id=server_id, project_id=project_id,
            trigger=versions.IMAGE, description='For an image'), deadline,
            watch)
        return self._perform(task, deadline, watch)

    def _begin(self, new, deadline, watch):
        """Return the task once no other of its project writes, if any."""
        while True:
            try:
                return threads.call(functools.partial(
                    self._conductor.begin_local, self._context, self.name,
                    new), self._stopping)
            except exceptions.Busy:
                if time.monotonic() > deadline or not watch(0, 0):
                    raise
                time.sleep(_AGAIN_SECONDS)

    def _perform(self, task, deadline, watch) -> objects.SavedVersion:
        """Perform a save that Nova waits for.

        :raises ServiceUnavailable: it failed, or took too long
        """
        running = self.tasks.perform_hook(task)
        while not running.ended.wait(1.0):
            wanted = watch(running.report.done, running.report.total)
            if not wanted or time.monotonic() > deadline:
                # A server that is being deleted cannot be saved later.
                self.tasks.cancel(task.id)
                raise exceptions.ServiceUnavailable(
                    f'Version {task.version_id} was not saved in'
                    f' {self._conf.versions.hook_timeout} s.')
        if running.report.error:
            raise exceptions.ServiceUnavailable(running.report.error)
        return running.report.saved

    def perform_on_volume(self, task_id: str, descriptor: int, watch: Watch
                          ) -> dict[str, typing.Any]:
        """Save a volume, or write a backup to it.

        :param task_id: of the task that the conductor has begun
        :param descriptor: of the volume, open until this returns
        :param watch: gets the progress; returns False to cancel
        :returns: what it came to: ``bytes_read``, ``seconds``, and
            ``bytes_stored`` or ``bytes_written``
        :raises Forbidden: the conductor has no such task for this host
        :raises ServiceUnavailable: this process stops, or the task was
            interrupted by an earlier stop
        """
        task = threads.call(functools.partial(
            self._conductor.take_task, self._context, self.name, task_id),
            self._stopping)
        with self._volumes.lent(task.id, descriptor):
            running = self.tasks.perform_on_volume(task)
            while not running.ended.wait(1.0):
                if running.interrupted:
                    raise exceptions.ServiceUnavailable(
                        'The agent is stopping.')
                if not watch(running.report.done, running.report.total):
                    self.tasks.cancel(task.id)
        return _outcome(running.report)

    def _arbiter_of(self, task_id: str, place: str) -> arbitration.Arbiter:
        return arbiters.ConductorArbiter(self._conductor, self.name, task_id,
                                         place, self._stopping)

    def _report(self, report: objects.TaskReport) -> bool:
        return threads.call(functools.partial(
            self._conductor.report_task, self._context, report),
            self._stopping)


def _outcome(report: objects.TaskReport) -> dict[str, typing.Any]:
    """Return what a task on a volume came to.

    :raises DiffCacheError: it failed
    """
    if report.state == versions.CANCELLED:
        raise exceptions.Cancelled(report.error or '')
    if report.state == versions.FAILED:
        raise exceptions.PermanentError(report.error or '')
    if report.saved is None:
        return json.loads(report.result)
    return {name: getattr(report.saved, name) for name in (
        'size', 'bytes_changed', 'bytes_read', 'bytes_stored', 'seconds')}
