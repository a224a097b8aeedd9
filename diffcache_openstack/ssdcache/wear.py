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
"""A bound on the bytes that are written to an SSD, kept by admission.

An SSD endures a number of bytes. What is written to it has a price, the same
for all volumes: each one caches its blocks at that reference where what its
hits save exceeds the price of its writes most. The price is as high as needed
for the writes of all volumes to be those that the budget allows.

The budget is a bucket that holds one day: what idle hours leave may be written
later. Of ``seconds`` no more is written than one day's budget, what accrued
in that time, and what one epoch wrote before it was seen.
"""

import collections.abc
import dataclasses
import typing

from diffcache_openstack.ssdcache import server

DAY = 86400.0
# What is left above the reserve is spent over this time, in seconds.
_SPREAD = DAY / 4
# Parts of the budget that are left for what was not foreseen.
_RESERVE = 1 / 24
# How fast estimates become lower than they were; higher ones hold at once.
_SHARE = 0.3
# Seconds after which half of an estimate is left of a volume whose blocks are
# not cached: so that it is tried again.
_HALF_LIFE = 3600.0


class Level(typing.NamedTuple):
    """How a volume's blocks are cached, and what is expected of it.

    :ivar admission: at which reference
    :ivar written: part of the bytes that are written with the first level
    :ivar saved: part of what hits save with the first level
    """

    admission: int
    written: float
    saved: float


# The parts are starting points between those of the benchmark's mixes, where
# the second reference writes half, and costs 3 of 100 hits. What differs is
# noticed after an epoch, as a larger or smaller estimate. Each level saves
# fewer bytes for each hit that it costs than the one before.
LEVELS = (Level(1, 1.0, 1.0), Level(2, 0.5, 0.97), Level(4, 0.3, 0.9),
          Level(8, 0.2, 0.8), Level(15, 0.12, 0.65),
          Level(server.NEVER, 0.0, 0.0))


@dataclasses.dataclass(frozen=True)
class VolumeWear:
    """What a volume did in an epoch.

    :ivar written: bytes written to the SSD
    :ivar saved_us: microseconds that its hits saved
    :ivar admission: what it has without a budget, at least
    """

    written: int
    saved_us: float
    admission: int = 1


@dataclasses.dataclass(frozen=True)
class Decision:
    """Admission for the next epoch.

    :ivar admissions: of volumes whose blocks are cached later than they say
    :ivar explain: why, in numbers; lines of a volume begin with its name
    """

    admissions: dict[str, int]
    explain: list[str]


class _Rates(typing.NamedTuple):
    """What a volume would do with the first level, each second."""

    written: float
    saved_us: float


class Budget:
    """Keeps what is written to an SSD within a budget.

    :param per_day: bytes
    :param left: bytes that may be written now; none for those of a day
    :ivar left: negative after an epoch that wrote more than there was
    """

    def __init__(self, per_day: int, left: float | None = None) -> None:
        self.per_day = per_day
        self.left = float(per_day) if left is None else min(left, per_day)
        self._levels: dict[str, int] = {}
        self._rates: dict[str, _Rates] = {}

    def accrue(self, seconds: float) -> None:
        """Add what may be written in some time."""
        self.left = min(float(self.per_day),
                        self.left + self.per_day / DAY * max(0.0, seconds))

    def allowed(self) -> float:
        """Return the bytes that may be written each second from now on."""
        rate, reserve = self.per_day / DAY, self.per_day * _RESERVE
        if self.left < reserve:
            return max(0.0, rate * self.left / reserve)
        return rate + (self.left - reserve) / _SPREAD

    def decide(self, seconds: float,
               uses: collections.abc.Mapping[str, VolumeWear]
               ) -> Decision:
        """Return how blocks are cached after an epoch.

        :param seconds: length of the epoch, above 0
        :param uses: of all volumes
        """
        self.accrue(seconds)
        self.left -= sum(use.written for use in uses.values())
        self._rates = {name: self._estimated(name, use, seconds)
                       for name, use in uses.items()}
        least = {name: _level(use.admission) for name, use in uses.items()}
        self._levels = self._priced(least)
        written = sum(use.written for use in uses.values()) / seconds
        return Decision(
            {name: LEVELS[level].admission
             for name, level in self._levels.items() if level > least[name]},
            [f'wear: {_mb(written * DAY)} a day were written to the SSD,'
             f' {_mb(self.allowed() * DAY)} are allowed now, and'
             f' {_mb(self.left)} are left of a budget of {_mb(self.per_day)}'
             f' a day',
             *(self._reason(name) for name, level in self._levels.items()
               if level > least[name])])

    def _estimated(self, name: str, use: VolumeWear, seconds: float) -> _Rates:
        level = LEVELS[self._levels.get(name, _level(use.admission))]
        before = self._rates.get(name)
        if not level.written:
            kept = 0.5 ** (seconds / _HALF_LIFE)
            return _Rates(*(each * kept for each in before or (0.0, 0.0)))
        now = _Rates(use.written / seconds / level.written,
                     use.saved_us / seconds / level.saved)
        if before is None:
            return now
        mean = _Rates(*(old + _SHARE * (new - old)
                        for old, new in zip(before, now)))
        return _Rates(max(now.written, mean.written), mean.saved_us)

    def _priced(self, least: dict[str, int]) -> dict[str, int]:
        """Return the levels of all volumes at the lowest price that will do.

        Where a volume goes one level up, it writes less and saves less: steps
        are taken in the order of what they cost for each byte.
        """
        allowed = self.allowed()
        if not allowed:
            # Idle volumes, too: what they would begin to write is unknown.
            return dict.fromkeys(least, len(LEVELS) - 1)
        levels = dict(least)
        total = sum(self._written(name, level)
                    for name, level in levels.items())
        while total > allowed:
            steps = [(self._price(name, level), name)
                     for name, level in levels.items()
                     if level + 1 < len(LEVELS) and self._rates[name].written]
            if not steps:
                break
            name = min(steps)[1]
            total -= self._written(name, levels[name])
            levels[name] += 1
            total += self._written(name, levels[name])
        return levels

    def _written(self, name: str, level: int) -> float:
        return self._rates[name].written * LEVELS[level].written

    def _price(self, name: str, level: int) -> float:
        """Return what a byte less costs in microseconds, one level up."""
        here, there = LEVELS[level], LEVELS[level + 1]
        rates = self._rates[name]
        return (rates.saved_us * (here.saved - there.saved)
                / (rates.written * (here.written - there.written)))

    def _reason(self, name: str) -> str:
        level, rates = LEVELS[self._levels[name]], self._rates[name]
        how = 'no new blocks are cached' if not level.written \
            else f'blocks are cached at reference {level.admission}'
        if not rates.written:
            return f'{name}: {how}, as nothing is left of the wear budget'
        return (f'{name}: {how}, for the wear budget: each MB written to the'
                f' SSD saves {rates.saved_us / rates.written * 1e3:.3g} ms')


def _level(admission: int) -> int:
    """Return the first level that caches blocks no earlier."""
    return next(number for number, level in enumerate(LEVELS)
                if level.admission >= admission)


def _mb(count: float) -> str:
    return f'{count / 1e6:.1f} MB'
