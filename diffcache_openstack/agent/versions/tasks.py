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
"""Tasks of this host concerning versions, kept over restarts.

Each task is a file until the conductor knows how it ended. A task that the
agent's end interrupted is begun again at the next start; what it had learned
that must not be done twice is in the file. For a while after its end a task is
remembered, so that one that is sent twice is done once.
"""

import concurrent.futures
import contextlib
import json
import logging
import pathlib
import threading
import time
import typing

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack import objects
from diffcache_openstack.objects import versions

LOG = logging.getLogger(__name__)

# Between two reports of what runs, and two tries to tell of what ended.
REPORT_SECONDS = 3.0
_REMEMBERED_SECONDS = 24 * 3600.0

Report = typing.Callable[[objects.TaskReport], bool]


class Doing:
    """A task that is being done.

    :ivar cancel: is set when nobody wants it any more
    :ivar notes: what the task must not forget over a restart
    """

    def __init__(self, task: objects.VersionTask, path: pathlib.Path,
                 notes: dict[str, typing.Any]) -> None:
        self.task = task
        self.notes = notes
        self.cancel = threading.Event()
        self.ended = threading.Event()
        self.told = False
        # This process ends: the next one goes on with the task.
        self.interrupted = False
        self.report = objects.TaskReport(task_id=task.id,
                                         state=versions.RUNNING)
        self._path = path

    def progress(self, done: int, total: int) -> None:
        """Take note of the bytes done and the bytes in all.

        :raises Interrupted: this process ends
        """
        if self.interrupted:
            raise exceptions.Interrupted('The agent ends.')
        self.report.done, self.report.total = done, max(done, total)

    def note(self, **values: typing.Any) -> None:
        """Remember something durably."""
        self.notes.update(values)
        self.write()

    def write(self) -> None:
        """Make the file say what is known."""
        files.write_json(self._path, {
            'task': self.task.obj_to_primitive(), 'notes': self.notes,
            'told': self.told,
            'report': self.report.obj_to_primitive()
            if self.report.state in versions.ENDED else None})


Perform = typing.Callable[[Doing], None]


class Tasks:
    """Does tasks, some at a time, and tells of them.

    :param directory: for the files
    :param perform: does one; sets its report's ``saved``, ``kept`` and
        ``result``, and raises what goes wrong
    :param report: tells the conductor, and returns whether to go on
    """

    def __init__(self, directory: pathlib.Path, perform: Perform,
                 report: Report, workers: int = 1) -> None:
        self._directory = directory
        self._perform = perform
        self._report = report
        self._lock = threading.Lock()
        self._known: dict[str, Doing] = {}
        self._closing = threading.Event()
        self._pool = concurrent.futures.ThreadPoolExecutor(
            workers, thread_name_prefix='versions')

    def left(self) -> list[str]:
        """The ids of the tasks that the last run did not bring to an end."""
        found = []
        for path in self._directory.glob('*.json'):
            with contextlib.suppress(OSError, ValueError, KeyError,
                                     TypeError):
                if files.read_json(path)['report'] is None:
                    found.append(path.stem)
        return found

    def start(self) -> None:
        """Go on with what the last run left, and begin to report."""
        self._directory.mkdir(parents=True, exist_ok=True)
        for path in sorted(self._directory.glob('*.json')):
            self._load(path)
        threading.Thread(target=self._report_all, daemon=True,
                         name='version-reports').start()

    def stop(self) -> None:
        """Interrupt what runs; it is begun again at the next start."""
        self._closing.set()
        for doing in list(self._known.values()):
            doing.interrupted = True
            doing.cancel.set()
        self._pool.shutdown(cancel_futures=True)

    def perform(self, task: objects.VersionTask) -> Doing:
        """Do a task, unless it is known."""
        with self._lock:
            doing = self._known.get(task.id)
            if doing is not None:
                # Whoever sends it again does not know how it ended.
                doing.told = False
                return doing
            doing = Doing(task, self._directory / f'{task.id}.json', {})
            doing.write()
            self._known[task.id] = doing
        self._pool.submit(self._do, doing)
        return doing

    def cancel(self, task_id: str) -> None:
        """Give a task up; one that is not known is none."""
        doing = self._known.get(task_id)
        if doing is not None:
            doing.cancel.set()

    def _load(self, path):
        try:
            document = files.read_json(path)
            task = objects.VersionTask.parse_kept(document['task'])
            doing = Doing(task, path, document['notes'])
            doing.told = document['told']
            if document['report'] is not None:
                doing.report = objects.TaskReport.parse_kept(
                    document['report'])
                doing.ended.set()
        except (OSError, ValueError, KeyError, TypeError,
                exceptions.FormatError) as error:
            LOG.error('Task %s cannot be read and is left out; the conductor'
                      ' will send it again: %s', path, error)
            path.unlink(missing_ok=True)
            return
        self._known[task.id] = doing
        if not doing.ended.is_set():
            LOG.info('Task %s (%s) is begun again', task.id, task.kind)
            self._pool.submit(self._do, doing)

    def _do(self, doing):
        started = time.monotonic()
        try:
            if doing.cancel.is_set():
                raise exceptions.Cancelled('It was cancelled.')
            self._perform(doing)
            state, error = versions.DONE, None
        except exceptions.Interrupted:
            return  # The file brings it back.
        except exceptions.Cancelled:
            if self._closing.is_set():
                return  # The file brings it back.
            state, error = versions.CANCELLED, 'It was cancelled.'
        except exceptions.DiffCacheError as reason:
            state, error = versions.FAILED, str(reason)
        except Exception as reason:
            LOG.exception('Task %s (%s)', doing.task.id, doing.task.kind)
            state, error = versions.FAILED, (
                f'The agent failed with {type(reason).__name__}; its log has'
                f' the details.')
        doing.report.state, doing.report.error = state, error
        _keep_end(doing)
        LOG.info('Task %s (%s): %s after %.2f s%s', doing.task.id,
                 doing.task.kind, state, time.monotonic() - started,
                 f': {error}' if error else '')
        self._tell(doing)
        doing.ended.set()

    def _report_all(self):
        while not self._closing.wait(REPORT_SECONDS):
            for doing in list(self._known.values()):
                try:
                    self._look_at(doing)
                except Exception:
                    # The thread's edge: other tasks are to be told of, too.
                    LOG.exception('Task %s is not reported now',
                                  doing.task.id)

    def _look_at(self, doing):
        if not doing.told:
            self._tell(doing)
        elif doing.ended.is_set():
            self._forget_old(doing)

    def _tell(self, doing):
        """Tell the conductor how far a task is; later if it is away."""
        report = doing.report
        try:
            wanted = self._report(report)
        except exceptions.DiffCacheError as error:
            LOG.debug('Task %s is not reported now: %s', report.task_id,
                      error)
            return
        except Exception:
            LOG.exception('Task %s is not reported', report.task_id)
            return
        if report.state in versions.ENDED:
            doing.told = True
            _keep_end(doing)
        elif not wanted:
            LOG.info('Nobody wants task %s any more', report.task_id)
            doing.cancel.set()

    def _forget_old(self, doing):
        path = self._directory / f'{doing.task.id}.json'
        try:
            old = time.time() - path.stat().st_mtime > _REMEMBERED_SECONDS
        except FileNotFoundError:
            old = True
        if old:
            with self._lock:
                self._known.pop(doing.task.id, None)
            path.unlink(missing_ok=True)


def _keep_end(doing: Doing) -> None:
    """Have the file say how a task ended; without that it is done again."""
    try:
        doing.write()
    except (OSError, exceptions.DiffCacheError) as error:
        LOG.error('The end of task %s is not kept: %s', doing.task.id, error)


def result(**values: typing.Any) -> str:
    """What a report's ``result`` is, of values by name."""
    return json.dumps(values)
