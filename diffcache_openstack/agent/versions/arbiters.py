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
"""The conductor as the arbiter between writers of a version store."""

import dataclasses
import functools
import threading
import typing

from diffcache_openstack.common import contexts
from diffcache_openstack.common import threads
from diffcache_openstack.rpc import conductor_versions_api
from diffcache_openstack.versions.store.commits import arbitration
from diffcache_openstack.versions.store.commits import reservations


class ConductorArbiter:
    """Has the conductor decide for one task that changes a store.

    It is an
    :class:`~diffcache_openstack.versions.store.commits.arbitration.Arbiter`.

    Methods raise Interrupted if this process stops while they wait.

    :param host: the name of this host, which performs the task
    :param place: a hash of the store's URI
    :param stopping: set when this process stops
    """

    def __init__(self, conductor: conductor_versions_api.VersionsAPI,
                 host: str, task_id: str, place: str,
                 stopping: threading.Event) -> None:
        self._conductor = conductor
        self._context = contexts.RequestContext.for_service(host)
        self._writer = (host, task_id, place)
        self._stopping = stopping

    def read(self) -> arbitration.Position | None:
        """Return the head that was decided last."""
        found = threads.call(functools.partial(
            self._conductor.read_head, self._context, *self._writer),
            self._stopping)
        return None if found is None else arbitration.Position(*found)

    def move(self, base: arbitration.Position | None,
             new: arbitration.Position) -> None:
        """Move the head from one catalogue to the next."""
        threads.call(functools.partial(
            self._conductor.move_head, self._context, *self._writer,
            _encoded(base), (new.number, new.digest)), self._stopping)

    def take_numbers(self, least: reservations.Numbers,
                     count: reservations.Numbers) -> reservations.Numbers:
        """Return the first of numbers that no writer uses."""
        return reservations.Numbers(*threads.call(functools.partial(
            self._conductor.take_numbers, self._context, *self._writer,
            dataclasses.astuple(least), dataclasses.astuple(count)),
            self._stopping))


def _encoded(position: arbitration.Position | None
             ) -> tuple[int, str] | None:
    if position is None:
        return None
    return position.number, position.digest


# What creates the arbiter of a task for the store of a place.
ArbiterOf = typing.Callable[[str, str], arbitration.Arbiter]
