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
"""The scrub: what is held is read again, slowly, so that damage is found.

Each object is read once in a period, from the disk, and by a rate at most. One
that has no seal (a crash took the record, or its image was withdrawn and came
back) comes first, then those whose period is nearly over, then the most used.
Those that were read less than half a period ago wait.
"""

import collections.abc
import logging
import os
import threading
import time
import typing

from diffcache_openstack import _native
from diffcache_openstack.agent.state import holdings
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import threads
from diffcache_openstack.sites import views

LOG = logging.getLogger(__name__)

# How often to look for objects to read, and to record seals, seconds.
LOOK_SECONDS = 10.0
_DAY = 86400.0
# Of its period: from when on an object may be read, and has to be.
_DUE, _URGENT = 0.5, 0.9
_LEAST_PRIORITY = 19
_LATER_SECONDS = 3600.0


class Schedule(typing.NamedTuple):
    """How often, and how fast, objects are read.

    :ivar days: in which each object is read once
    :ivar rate: bytes per second at most
    """

    days: int
    rate: int

    @property
    def period(self) -> float:
        """Seconds in which each object is read once."""
        return self.days * _DAY


class Scrub(threads.Rounds):
    """Reads the objects of one host, in a thread of its own.

    :param held: the objects
    :param schedule: how often and how fast
    :param on_damage: called, in that thread, after an object went out of
        service
    """

    def __init__(self, held: holdings.Holdings, schedule: Schedule,
                 on_damage: collections.abc.Callable[[], object]) -> None:
        super().__init__('scrub', self.work, LOOK_SECONDS, 'Could not scrub')
        self._held = held
        self._schedule = schedule
        self._on_damage = on_damage
        self._read_bytes = 0
        self._damaged = 0
        # What could not be read, or was changed: until it is tried again.
        self._later: dict[views.Key, float] = {}

    def stop(self) -> None:
        """Stop within an object, and record what was verified."""
        super().stop()
        self._held.save_seals()

    def _run(self) -> None:
        self._give_way()
        super()._run()

    @staticmethod
    def _give_way() -> None:
        """Let all other work of the host come before that of this thread."""
        try:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(),
                           _LEAST_PRIORITY)
            _native.use_idle_io()
        except OSError as error:
            LOG.warning('The scrub runs with the priority of other work: %s',
                        error)

    def work(self) -> None:
        """Read all objects that are due; record what was verified."""
        self._held.save_seals()
        while not self._stopped.is_set():
            key = self.next()
            if key is None:
                return
            self._read(key)
            self._held.save_seals()

    def next(self) -> views.Key | None:
        """Return the object to read next; None if none is due."""
        now = time.time()
        due = [found for found in (
            self._rank(key, now) for key in self._held.keys()
            if self._later.get(key, 0.0) <= now) if found is not None]
        return min(due)[-1] if due else None

    def _rank(self, key: views.Key, now: float
              ) -> tuple[int, float, views.Key] | None:
        """Return the place of an object in the order; None if it waits."""
        read_at = self._held.seals.last_read(key)
        if read_at is None:
            return 0, -self._held.seals.uses(key), key
        age = (now - read_at) / self._schedule.period
        # The clock may have been put back.
        if age >= _URGENT or age < 0:
            return 1, read_at, key
        if age >= _DUE:
            return 2, -self._held.seals.uses(key), key
        return None

    def _read(self, key: views.Key) -> None:
        done, before = 0, self._held.seals.last_read(key)

        def note(now_done: int, _total: int) -> None:
            nonlocal done
            self._read_bytes += max(0, now_done - done)
            done = now_done
            if self._stopped.is_set():
                raise exceptions.Cancelled('The agent stops.')

        try:
            sound = self._held.scrub(key, holdings.Pace(self._schedule.rate,
                                                        note))
        except exceptions.Cancelled:
            return
        if not sound and key not in self._held:
            self._damaged += 1
            self._on_damage()
        elif self._held.seals.last_read(key) == before:
            self._later[key] = time.time() + _LATER_SECONDS

    def report(self) -> dict[str, typing.Any]:
        """Return what is read when, and what was found.

        :returns: ``days`` and ``rate`` of the schedule; ``needed_rate`` that
            it takes to read all in time, bytes per second; ``unread``, objects
            that are not known to be right; ``overdue`` objects and
            ``overdue_bytes``; ``read_bytes`` and ``damaged`` objects since the
            start; ``damages``, objects that were found damaged after they were
            delivered, with the outputs
        """
        now, seals = time.time(), self._held.seals
        sizes = self._held.sizes()
        read = {key: seals.last_read(key) for key in sizes}
        overdue = [key for key, read_at in read.items() if read_at is not None
                   and now - read_at > self._schedule.period]
        return {
            'days': self._schedule.days, 'rate': self._schedule.rate,
            'needed_rate': sum(sizes.values()) / self._schedule.period,
            'unread': sum(read_at is None for read_at in read.values()),
            'overdue': len(overdue),
            'overdue_bytes': sum(sizes[key] for key in overdue),
            'read_bytes': self._read_bytes, 'damaged': self._damaged,
            'damages': [{'object': str(each.key), 'outputs': each.outputs,
                         'record': str(each.record)}
                        for each in seals.damages()]}
