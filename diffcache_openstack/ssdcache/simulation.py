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
"""Plays traces of volumes' requests to the cache of a host, without data.

The cache is that of native/partitions, so that the same requests, one at a
time, have the same hits there.
"""

import collections.abc
import dataclasses
import os
import typing

from diffcache_openstack import _native
from diffcache_openstack.cached_volumes import choices
from diffcache_openstack.common import exceptions
from diffcache_openstack.ssdcache import departures
from diffcache_openstack.ssdcache import epochs
from diffcache_openstack.ssdcache.sizing import base

MODES = ('partitioned', 'unified', 'dynamic')
EVICTIONS = ('lru', 'sieve', 's3fifo')

BLOCK = 4096
MAX_CAPACITY = (1 << 32) - 1
# What a ghost list counts to.
MAX_SEQUENTIAL = 1 << 62
# Microseconds; a trace has 64 bits of them.
MAX_OCCUPANCY_S = 1e12

_US = 1e6


class SimulationError(exceptions.InvalidInput):
    """The simulation is not possible; the message names the line or option."""


@dataclasses.dataclass(frozen=True)
class Scenario:
    """What to simulate; native code reads the attributes.

    :ivar capacity: blocks of the cache
    :ivar sizes: names and blocks of the volumes' partitions; none for one
        eviction order over the blocks of all volumes
    :ivar evict: one of :data:`EVICTIONS`
    :ivar ignore_writes: whether writes are left out, as if they were not in
        the trace
    :ivar admission: a block is cached at this reference to it
    :ivar sequential: requests bypass the cache after this many bytes in
        sequence; 0: never
    :ivar occupancy_us: microseconds between rows of the occupancy
    :ivar policy: sizes the partitions after each epoch, instead of ``sizes``
    :ivar epoch_us: microseconds of an epoch
    :ivar shortest_us: microseconds of the shortest epoch, where epochs end
        early; see :mod:`.departures`
    :ivar block: bytes
    """

    capacity: int
    sizes: list[tuple[str, int]] | None = None
    evict: str = 'lru'
    ignore_writes: bool = False
    admission: int = 1
    sequential: int = 0
    occupancy_us: int | None = None
    policy: str | None = None
    epoch_us: int | None = None
    shortest_us: int | None = None
    block: int = BLOCK

    @property
    def look_us(self) -> int | None:
        """Microseconds between looks at what is served, if there are any."""
        if self.shortest_us is None:
            return None
        return max(1, self.shortest_us // departures.LOOKS)

    @property
    def mode(self) -> str:
        """One of :data:`MODES`."""
        if self.epoch_us is not None:
            return 'dynamic'
        return 'unified' if self.sizes is None else 'partitioned'


def simulate(trace: str | os.PathLike[str], scenario: Scenario
             ) -> dict[str, typing.Any]:
    """Play a trace.

    :returns: a JSON document, see ``doc/source/user/ssd-cache-traces.rst``
    :raises SimulationError: the trace cannot be read, or the sizes do not
        suit it
    """
    _check(scenario)
    decisions = _Decisions(scenario)
    try:
        found = _native.ssdcache_simulate(trace, scenario, decisions)
    except OSError as error:
        raise SimulationError(
            f'{os.fspath(trace)}: {error.strerror or error}; name a file with'
            ' a trace')
    except ValueError as error:
        raise SimulationError(str(error))
    names = [row['name'] for row in found['volumes']]
    _, sizes = found['sizes'][-1] if found['sizes'] else (0, [])
    volumes = {row['name']: _counts(row, size)
               for row, size in zip(found['volumes'], sizes)}
    whole = scenario.capacity if scenario.sizes is None else sum(sizes)
    document = {
        'capacity': scenario.capacity,
        'mode': scenario.mode,
        'evict': scenario.evict,
        'volumes': volumes,
        'total': _counts(_sum(found['volumes']), whole),
        'occupancy': list(_rows(names, found['occupancy'])),
        'sizes': list(_rows(names, found['sizes'])),
    }
    if scenario.mode == 'dynamic':
        document['decisions'] = decisions.made
    return document


class _Decisions:
    """Sizes the partitions after each epoch, and notes why.

    :ivar made: times in seconds, whether sizes changed, and why
    """

    def __init__(self, scenario: Scenario) -> None:
        self.made: list[dict[str, typing.Any]] = []
        self._sizer = None if scenario.policy is None else epochs.Sizer(
            base.load(scenario.policy), base.Cache(scenario.capacity))
        self._departures = departures.Departures(epochs.Rules().hysteresis)
        self._early: list[str] = []

    def decide(self, time_us, rows) -> list[int]:
        """Return the sizes of the next epoch.

        :param rows: of each volume what was served, as of
            :meth:`ends_early`, size and curve
        """
        assert self._sizer is not None
        served = _served(served for served, _size, _curve in rows)
        before = {name: size for name, (_, size, _) in zip(served, rows)}
        curves = {name: curve for name, (_, _, curve) in zip(served, rows)}
        decision = self._sizer.decide(
            [base.Volume(name, curve) for name, curve in curves.items()],
            before)
        self.made.append({'time_s': time_us / _US,
                          'changed': decision.changed,
                          'explain': decision.explain + self._early})
        self._departures.end(curves, before, served)
        self._departures.begin(curves, decision.sizes, served)
        self._early = []
        return [decision.sizes[name] for name in served]

    def ends_early(self, time_us, rows) -> bool:
        """Return whether an epoch ends now.

        :param rows: name, references, hits and whether its partition is full,
            of each volume
        """
        assert self._sizer is not None
        if self._sizer.may_change:
            self._early = self._departures.look(_served(rows))
        return bool(self._early)


def _served(rows: collections.abc.Iterable[tuple[str, int, int, bool]]
            ) -> dict[str, departures.Served]:
    return {name: departures.Served(references, hits, full)
            for name, references, hits, full in rows}


def _check(scenario: Scenario) -> None:
    sizes = [size for _, size in scenario.sizes or ()]
    for what, value, low, high in (
            ('capacity', scenario.capacity, 1, MAX_CAPACITY),
            ('admission', scenario.admission, 1, choices.MAX_ADMISSION),
            ('sequential', scenario.sequential, 0, MAX_SEQUENTIAL),
            *(('size', size, 0, MAX_CAPACITY) for size in sizes)):
        if not low <= value <= high:
            raise SimulationError(f'{what}: expected {low}..{high}, not'
                                  f' {value}')
    if sum(sizes) > scenario.capacity:
        raise SimulationError(
            f'sizes: they add up to {sum(sizes)} blocks, but the cache has'
            f' {scenario.capacity}; lower some')


def _sum(rows: list[dict[str, typing.Any]]) -> dict[str, int]:
    return {field: sum(row[field] for row in rows)
            for field in ('references', 'hits', 'evictions', 'written')}


def _counts(row: dict[str, int], size: int) -> dict[str, typing.Any]:
    references, hits = row['references'], row['hits']
    return {
        'references': references,
        'hits': hits,
        'misses': references - hits,
        'evictions': row['evictions'],
        'hit_ratio': hits / references if references else 0.0,
        'size': size,
        'written': row['written'],
    }


def _rows(names: list[str], rows: list[tuple[int, list[int]]]
          ) -> collections.abc.Iterator[list[typing.Any]]:
    """Yield each time in seconds, and the blocks of every volume."""
    for time_us, blocks in rows:
        late = [0] * (len(names) - len(blocks))
        yield [time_us / _US, dict(zip(names, blocks + late))]
