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
"""Each project's share of the tasks that hosts perform."""

import collections
import collections.abc
import itertools

from diffcache_openstack import objects


class Shares:
    """Decides in one round which tasks may be sent.

    :param running: tasks that hosts perform
    :param hooked: projects whose next writer is a hook, not a queued task
    :param writers: kinds of tasks that change a store; one of each project
        may run
    :param limit: tasks of a project that may run
    """

    def __init__(self, running: collections.abc.Sequence[objects.VersionTask],
                 hooked: collections.abc.Set[str],
                 writers: collections.abc.Collection[str], limit: int
                 ) -> None:
        self._writers = writers
        self._writing = set(hooked) | {
            task.project_id for task in running if task.kind in writers}
        self._limit = limit
        self._used = collections.Counter(task.project_id for task in running)

    def admits(self, task: objects.VersionTask) -> bool:
        """Return whether a task's project has a share left for it."""
        if self._used[task.project_id] >= self._limit:
            return False
        return not (task.kind in self._writers
                    and task.project_id in self._writing)

    def attempt(self, task: objects.VersionTask) -> None:
        """Count an attempt: each costs a request to Nova."""
        self._used[task.project_id] += 1

    def start(self, task: objects.VersionTask) -> None:
        """Note that a task is sent to a host."""
        if task.kind in self._writers:
            self._writing.add(task.project_id)


class Turns:
    """Orders tasks over rounds: projects in turn, and attempted ones last.

    A task that cannot be sent, since its host is not alive, does not keep
    those behind it waiting.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._attempts: dict[str, int] = {}

    def attempt(self, task: objects.VersionTask) -> None:
        """Note that a task is sent, or postponed."""
        self._attempts[task.id] = next(self._numbers)

    def order(self, tasks: collections.abc.Sequence[objects.VersionTask]
              ) -> list[objects.VersionTask]:
        """Return the first task of each project, then the second of each.

        :param tasks: all that are queued, oldest first
        """
        queued = {task.id for task in tasks}
        self._attempts = {task_id: number for task_id, number
                          in self._attempts.items() if task_id in queued}
        by_project: dict[str, list[objects.VersionTask]] = {}
        for task in sorted(tasks, key=lambda task: self._attempts.get(
                task.id, 0)):
            by_project.setdefault(task.project_id, []).append(task)
        return [task for turn in itertools.zip_longest(*by_project.values())
                for task in turn if task is not None]
