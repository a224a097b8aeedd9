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
"""The interface of solvers, and how they are loaded by name."""

import abc
import collections.abc
import dataclasses
import threading
import time
import typing

import stevedore

from diffcache_openstack.common import exceptions
from diffcache_openstack.placement import instances
from diffcache_openstack.placement import placements

NAMESPACE = 'diffcache.placement.solvers'


class UnknownSolver(exceptions.InvalidInput):
    """No solver of that name is installed."""


@dataclasses.dataclass(frozen=True)
class Progress:
    """Progress of a solve.

    :param seconds: since it began
    :param stage: what it is doing, in a word or two
    :param cost_s: cost of the best placement so far
    :param lower_bound_s: best bound so far
    """

    seconds: float
    stage: str
    cost_s: float
    lower_bound_s: float


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of a solve.

    :param time_limit: seconds of wall time after which the best placement
        so far is returned; None lets the solver end by itself
    :param hops: patches that may be applied one after another
    :param threads: threads that the solver may use
    :param progress: called with a :class:`Progress` now and then
    :param stop: when set, the best placement so far is returned soon
    """

    time_limit: float | None = None
    hops: int = 1
    threads: int = 1
    progress: collections.abc.Callable[[Progress], None] | None = None
    stop: threading.Event | None = None


@dataclasses.dataclass(frozen=True)
class Solution:
    """A placement and what is known about it.

    :param cost_s: its cost (equation 5) with the hops it was solved for
    :param lower_bound_s: no feasible placement costs less
    :param proved_optimal: cost and bound meet within the solver's tolerance
    :param seconds: wall time the solve took
    """

    placement: placements.Placement
    cost_s: float
    lower_bound_s: float
    proved_optimal: bool
    seconds: float

    @property
    def gap(self) -> float:
        """Share of the cost that an optimal placement might save."""
        if self.cost_s <= 0:
            return 0.0
        return max(0.0, 1.0 - self.lower_bound_s / self.cost_s)


class Solver(abc.ABC):
    """Instance in, placement out; keeps no state between calls.

    A solver returns a feasible placement whatever the limits are: pins are
    kept, excluded hosts left empty, capacities met. Its lower bound holds
    for every feasible placement even if the solve was stopped early. Equal
    input gives equal output with one thread, when neither time nor ``stop``
    ended it.
    """

    @abc.abstractmethod
    def solve(
        self,
        instance: instances.Instance,
        *,
        time_limit: float | None = None,
        hops: int = 1,
        threads: int = 1,
        progress: collections.abc.Callable[[Progress], None] | None = None,
        stop: threading.Event | None = None,
    ) -> Solution:
        """Solve; the parameters are those of :class:`Options`.

        :raises InstanceError: pins alone exceed a capacity
        """


class Clock:
    """Time since a solve began, and whether it has to end."""

    def __init__(self, options: Options):
        self._begin = time.monotonic()
        self._options = options

    @property
    def seconds(self) -> float:
        """Wall seconds since construction."""
        return time.monotonic() - self._begin

    @property
    def left(self) -> float | None:
        """Seconds until the limit; None without one."""
        limit = self._options.time_limit
        return None if limit is None else max(0.0, limit - self.seconds)

    @property
    def over(self) -> bool:
        """The limit has passed or the caller asked to stop."""
        stop = self._options.stop
        return self.left == 0.0 or (stop is not None and stop.is_set())

    def report(self, stage: str, cost_s: float, bound_s: float) -> None:
        """Report progress if the caller gave a callback."""
        if self._options.progress:
            self._options.progress(
                Progress(self.seconds, stage, cost_s, bound_s)
            )


def pinned_placement(instance: instances.Instance) -> placements.Placement:
    """Build the placement of the pins alone.

    :raises InstanceError: they exceed a host's capacity
    """
    pins = placements.Placement.of(instance.pinned.templates,
                                   instance.pinned.patches)
    problems = placements.errors(instance, pins)
    if problems:
        raise instances.InstanceError(f'pinned: {problems[0]}')
    return pins


def names() -> list[str]:
    """List the names of the installed solvers."""
    return sorted(stevedore.ExtensionManager(NAMESPACE).names())


def load(name: str) -> Solver:
    """Load the solver that is registered under ``name``.

    :raises UnknownSolver: there is none
    """
    try:
        manager: typing.Any = stevedore.DriverManager(
            NAMESPACE,
            name,
            invoke_on_load=True,
            warn_on_missing_entrypoint=False,
        )
    except stevedore.exception.NoMatches:
        raise UnknownSolver(
            f'solver {name!r} is not installed; choose from'
            f' {", ".join(names())}'
        )
    return manager.driver
