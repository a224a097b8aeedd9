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
"""Tasks on versions that this host performs, stored over restarts.

Each task has a file until the conductor knows its result. A task that was
interrupted by the agent's stop is resumed at the next start, once the
conductor has said that it is still this host's; results that it must not
repeat are in the file, and so is that it was cancelled. Completed tasks are
remembered for a day, so that one that is sent twice is performed once.
"""

import contextlib
import json
import logging
import pathlib
import threading
import time
import typing

from diffcache_openstack.agent.versions import fair_pool
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack import objects
from diffcache_openstack.objects import versions

LOG = logging.getLogger(__name__)

# Between two reports of a task, and two attempts to report its result.
REPORT_SECONDS = 3.0
_REMEMBERED_SECONDS = 24 * 3600.0

Report = typing.Callable[[objects.TaskReport], bool]


class RunningTask:
    """A task in this process.

    :ivar cancel: set when the task is to end, also by this process's stop
    :ivar cancelled: whether it ends for good
    :ivar confirmed: whether the task is known to be this host's
    :ivar notes: stored results of a task's steps, for its resumption
    """

    def __init__(self, task: objects.VersionTask, path: pathlib.Path,
                 notes: dict[str, typing.Any]) -> None:
        self.task = task
        self.notes = notes
        self.cancel = threading.Event()
        self.cancelled = False
        self.confirmed = True
        self.ended = threading.Event()
        self.reported = False
        # This process stops: the next one resumes the task.
        self.interrupted = False
        self.report = objects.TaskReport(task_id=task.id,
                                         state=versions.RUNNING)
        self._path = path
        self._writing = threading.Lock()

    def progress(self, done: int, total: int) -> None:
        """Set the bytes done and in total, for the next report.

        :raises Interrupted: this process stops
        """
        self.go_on(done, total)
        self.report.done, self.report.total = done, max(done, total)

    def go_on(self, _done: int, _total: int) -> None:
        """End what takes long and is no part of the progress.

        :raises Interrupted: this process stops
        """
        if self.interrupted:
            raise exceptions.Interrupted('The agent is stopping.')

    def note(self, **values: typing.Any) -> None:
        """Store notes durably."""
        self.notes.update(values)
        self.write()

    def write(self) -> None:
        """Write the task's file."""
        with self._writing:
            files.write_json(self._path, {
                'task': self.task.obj_to_primitive(), 'notes': self.notes,
                'told': self.reported, 'cancelled': self.cancelled,
                'report': self.report.obj_to_primitive()
                if self.report.state in versions.ENDED else None})


Perform = typing.Callable[[RunningTask], None]


class Work(typing.Protocol):
    """What tasks do: see :class:`.worker.Worker`."""

    def perform(self, running: RunningTask) -> None:
        """Perform a task and set the results of its report."""

    def abandon(self, running: RunningTask) -> None:
        """Remove what an earlier process left of a task."""


class Workers(typing.NamedTuple):
    """Threads that perform tasks.

    :ivar tasks: for what the conductor sends
    :ivar per_project: of those, for one project at a time
    :ivar hooks: for what Nova waits for
    :ivar volumes: for what Cinder waits for
    """

    tasks: int = 1
    per_project: int = 1
    hooks: int = 1
    volumes: int = 1


class Tasks:
    """Performs tasks, several at a time, and reports on them.

    :param directory: for the files
    :param work: performs one; sets its report's ``saved``, ``kept`` and
        ``result``, and raises errors
    :param report: sends a report to the conductor; returns False if the task
        was cancelled, or is no longer this host's
    """

    def __init__(self, directory: pathlib.Path, work: Work,
                 report: Report, workers: Workers = Workers()) -> None:
        self._directory = directory
        self._work = work
        self._report = report
        self._lock = threading.Lock()
        self._known: dict[str, RunningTask] = {}
        self._closing = threading.Event()
        self._pool = fair_pool.FairPool(
            workers.tasks, workers.per_project, 'versions')
        # Nova waits for these: no task that users start delays them.
        self._hooks = fair_pool.FairPool(workers.hooks, 1, 'version-hooks')
        self._volumes = fair_pool.FairPool(
            workers.volumes, workers.volumes, 'version-volumes')

    def left(self) -> list[str]:
        """Return the ids of tasks that the last process did not complete."""
        found = []
        for path in self._directory.glob('*.json'):
            with contextlib.suppress(OSError, ValueError, KeyError,
                                     TypeError):
                if files.read_json(path)['report'] is None:
                    found.append(path.stem)
        return found

    def start(self) -> None:
        """Resume the tasks that the last process left, and start to report."""
        self._directory.mkdir(parents=True, exist_ok=True)
        for path in sorted(self._directory.glob('*.json')):
            self._load(path)
        threading.Thread(target=self._report_all, daemon=True,
                         name='version-reports').start()

    def stop(self) -> None:
        """Interrupt tasks, which are resumed at the next start."""
        self._closing.set()
        for running in list(self._known.values()):
            running.interrupted = True
            running.cancel.set()
        for pool in (self._pool, self._hooks, self._volumes):
            pool.shutdown()

    def perform(self, task: objects.VersionTask) -> RunningTask:
        """Perform a task in turn of the projects, unless it is known."""
        return self._admit(task, self._pool)

    def perform_hook(self, task: objects.VersionTask) -> RunningTask:
        """Perform a task that Nova waits for, unless it is known."""
        return self._admit(task, self._hooks)

    def perform_on_volume(self, task: objects.VersionTask) -> RunningTask:
        """Perform a task on a volume that is open, unless it is known."""
        return self._admit(task, self._volumes)

    def _admit(self, task, pool):
        with self._lock:
            running = self._known.get(task.id)
            if running is not None:
                # The sender does not know its result.
                running.reported = False
                return running
            running = RunningTask(
                task, self._directory / f'{task.id}.json', {})
            running.write()
            self._known[task.id] = running
        pool.submit(task.project_id, lambda: self._do(running))
        return running

    def cancel(self, task_id: str) -> None:
        """Cancel a task, if it is known."""
        running = self._known.get(task_id)
        if running is not None:
            _cancel(running)

    def _load(self, path):
        try:
            document = files.read_json(path)
            task = objects.VersionTask.parse_kept(document['task'])
            running = RunningTask(task, path, document['notes'])
            running.reported = document['told']
            running.cancelled = document['cancelled']
            running.confirmed = False
            if document['report'] is not None:
                running.report = objects.TaskReport.parse_kept(
                    document['report'])
                running.ended.set()
        except (OSError, ValueError, KeyError, TypeError,
                exceptions.FormatError) as error:
            LOG.error('Ignoring unreadable task file %s; the conductor'
                      ' will send it again: %s', path, error)
            path.unlink(missing_ok=True)
            return
        self._known[task.id] = running
        if running.ended.is_set():
            return
        if running.task.volume_id is not None:
            # Its client notices, and begins another one.
            running.cancelled = True
        if running.cancelled:
            running.cancel.set()
            self._resume(running)
        # Others are resumed when the conductor has answered a report.

    def _resume(self, running):
        running.confirmed = True
        LOG.info('Resuming task %s (%s)%s', running.task.id,
                 running.task.kind, ' to end it: it was cancelled'
                 if running.cancelled else '')
        self._pool.submit(running.task.project_id,
                          lambda: self._do(running))

    def _do(self, running):
        started = time.monotonic()
        try:
            if running.cancelled:
                self._work.abandon(running)
            if running.cancel.is_set():
                raise exceptions.Cancelled('The task was cancelled.')
            self._work.perform(running)
            state, error, code = versions.DONE, None, None
        except exceptions.Interrupted:
            return  # Resumed from its file.
        except exceptions.Cancelled:
            if self._closing.is_set() and not running.cancelled:
                return  # Resumed from its file.
            state, error, code = (
                versions.CANCELLED, 'The task was cancelled.', 'cancelled')
        except exceptions.DiffCacheError as reason:
            state, error, code = (versions.FAILED, str(reason),
                                  exceptions.code_of(reason))
        except Exception as reason:
            LOG.exception('Task %s (%s) failed', running.task.id,
                          running.task.kind)
            state, code = versions.FAILED, exceptions.code_of(reason)
            error = (
                f'The agent failed with {type(reason).__name__}; its log has'
                f' the details.')
        running.report.state, running.report.error = state, error
        running.report.error_code = code
        _write_result(running)
        LOG.info('Task %s (%s): %s after %.2f s%s', running.task.id,
                 running.task.kind, state, time.monotonic() - started,
                 f': {error}' if error else '')
        self._send_report(running)
        running.ended.set()

    def _report_all(self):
        while not self._closing.is_set():
            for running in list(self._known.values()):
                try:
                    self._report_or_forget(running)
                except Exception:
                    # Other tasks have to be reported, too.
                    LOG.exception('Could not report task %s, will retry',
                                  running.task.id)
            self._closing.wait(REPORT_SECONDS)

    def _report_or_forget(self, running):
        if not running.reported:
            self._send_report(running)
        elif running.ended.is_set():
            self._forget_old(running)

    def _send_report(self, running):
        """Report a task to the conductor; later if it is unreachable."""
        report = running.report
        try:
            wanted = self._report(report)
        except exceptions.Forbidden as error:
            LOG.warning('Task %s is no longer this host\'s: %s',
                        report.task_id, error)
            wanted = False
        except exceptions.DiffCacheError as error:
            LOG.debug('Could not report task %s, will retry: %s',
                      report.task_id, error)
            return
        except Exception:
            LOG.exception('Could not report task %s', report.task_id)
            return
        if report.state in versions.ENDED:
            running.reported = True
            _write_result(running)
            return
        if not wanted and not running.cancelled:
            LOG.info('The conductor has cancelled task %s, or taken it from'
                     ' this host', report.task_id)
            _cancel(running)
        if not running.confirmed:
            self._resume(running)

    def _forget_old(self, running):
        path = self._directory / f'{running.task.id}.json'
        try:
            old = time.time() - path.stat().st_mtime > _REMEMBERED_SECONDS
        except FileNotFoundError:
            old = True
        if old:
            with self._lock:
                self._known.pop(running.task.id, None)
            path.unlink(missing_ok=True)


def _cancel(running: RunningTask) -> None:
    """Have a task end, also if this process is killed before it does."""
    running.cancelled = True
    try:
        running.write()
    except (OSError, exceptions.DiffCacheError) as error:
        LOG.warning('Could not note that task %s is cancelled: %s; it will be'
                    ' resumed after a restart if the conductor wants it',
                    running.task.id, error)
    running.cancel.set()


def _write_result(running: RunningTask) -> None:
    """Write a task's result; without it the task is performed again."""
    try:
        running.write()
    except (OSError, exceptions.DiffCacheError) as error:
        LOG.error('Could not write the result of task %s: %s; it will be '
                  'performed again after a restart', running.task.id, error)


def result(**values: typing.Any) -> str:
    """Encode values by name as a report's ``result``."""
    return json.dumps(values)
