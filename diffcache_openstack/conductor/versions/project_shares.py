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
"""Each project's share of the tasks that hosts perform.

Tasks that change a project's store run side by side: they commit behind each
other. Of one server, or volume, one runs; and some kinds run alone.
"""

import collections
import collections.abc
import itertools

from oslo_config import cfg

from diffcache_openstack import objects
from diffcache_openstack.objects import versions


# Kinds of tasks that change a store; and those of them that no other may
# change it beside: they replace keys, commit for hosts, or create the store.
WRITERS = (versions.SAVE, versions.RESTORE, versions.FORGET, versions.PRUNE,
           versions.REKEY, versions.ACCEPT, versions.RECOVER)
ALONE = (versions.REKEY, versions.ACCEPT, versions.RECOVER)
# Where hosts only add, these accept first, and commit to the store itself.
ALONE_BESIDE_INBOX = (*ALONE, versions.FORGET, versions.PRUNE)

# A project, and its server, its volume, or a kind of task.
Subject = tuple[str, str]


def subject(task: objects.VersionTask) -> Subject:
    """Return what one task works on at a time."""
    return (task.project_id, task.server_id or task.volume_id or task.kind)


def alone(conf: cfg.ConfigOpts) -> tuple[str, ...]:
    """Return the kinds of tasks that no other writer may run beside."""
    return (ALONE_BESIDE_INBOX if conf.versions.maintenance_hosts else ALONE)


def excludes(running: objects.VersionTask, task: objects.VersionTask,
             alone: collections.abc.Collection[str] = ALONE) -> bool:
    """Return whether a task cannot begin while another one is running."""
    if (running.project_id != task.project_id
            or not {running.kind, task.kind} <= set(WRITERS)):
        return False
    return (running.kind in alone or task.kind in alone
            or subject(running) == subject(task)
            or running.version_id == task.version_id is not None)


class Shares:
    """Decides in one round which tasks may be sent.

    :param running: tasks that hosts perform
    :param hooked: subjects whose next writer is a hook, not a queued task;
        with an empty name, projects that have one
    :param limit: tasks of a project that may run
    """

    def __init__(self, running: collections.abc.Sequence[objects.VersionTask],
                 hooked: collections.abc.Set[Subject], limit: int,
                 alone: collections.abc.Collection[str] = ALONE) -> None:
        self._running = list(running)
        self._hooked = hooked
        # Projects with a task that waits until it can run alone.
        self._closed: set[str] = set()
        self._limit = limit
        self._alone = alone
        self._used = collections.Counter(task.project_id for task in running)

    def admits(self, task: objects.VersionTask) -> bool:
        """Return whether a task's project has a share left for it."""
        if self._used[task.project_id] >= self._limit:
            return False
        if task.kind not in WRITERS:
            return True
        is_free = not (
            task.project_id in self._closed or subject(task) in self._hooked
            or any(excludes(each, task, self._alone)
                   for each in self._running))
        if task.kind in self._alone:
            is_free = is_free and (task.project_id, '') not in self._hooked
            if not is_free:
                # Those behind it wait, so that it has its turn.
                self._closed.add(task.project_id)
        return is_free

    def attempt(self, task: objects.VersionTask) -> None:
        """Count an attempt: each costs a request to Nova."""
        self._used[task.project_id] += 1

    def start(self, task: objects.VersionTask) -> None:
        """Note that a task is sent to a host."""
        self._running.append(task)


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
