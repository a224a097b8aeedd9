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
"""What hits and misses of volumes take, as epochs show it."""

import collections.abc
import statistics
import typing

from diffcache_openstack.ssdcache import engines

# Reads of an epoch that hit, and that miss, for means of its own.
LEAST_REQUESTS = 50
# How much of a mean is that of the last epoch.
_SHARE = 0.3
# Latencies differ by chance, above all on a busy host. A miss has to take so
# many times as long as a hit, and what a hit saves so many times as much or as
# little as in the geometric mean of all volumes, to make a difference.
_CLEAR = 2.0


class Latency(typing.NamedTuple):
    """Mean microseconds of references that hit, and of those that miss."""

    hit_us: float
    miss_us: float

    @property
    def saved_us(self) -> float:
        """What a hit saves."""
        return self.miss_us - self.hit_us


class Latencies:
    """Follows means over epochs."""

    def __init__(self) -> None:
        self._means: dict[str, Latency] = {}

    def update(self, found: collections.abc.Mapping[str, engines.Epoch]
               ) -> dict[str, Latency]:
        """Return the latencies of volumes after an epoch.

        :returns: nothing if misses do not take clearly longer than hits
        """
        self._means = {
            name: mean for name, epoch in found.items()
            if (mean := self._mean(name, epoch)) is not None}
        if not self._means:
            return {}
        every = Latency(*map(statistics.fmean, zip(*self._means.values())))
        if every.miss_us < _CLEAR * every.hit_us:
            return {}
        saved = [mean.saved_us for mean in self._means.values()
                 if mean.saved_us > 0]
        usual = statistics.geometric_mean(saved)
        return {name: self._means[name] if self._differs(name, usual)
                else every for name in found}

    def _mean(self, name: str, epoch: engines.Epoch) -> Latency | None:
        before = self._means.get(name)
        if min(epoch.hit.count, epoch.miss.count) < LEAST_REQUESTS:
            return before
        now = Latency(epoch.hit.mean_us, epoch.miss.mean_us)
        if before is None:
            return now
        return Latency(*(old + _SHARE * (new - old)
                         for old, new in zip(before, now)))

    def _differs(self, name: str, usual: float) -> bool:
        if name not in self._means:
            return False
        saved = self._means[name].saved_us
        return saved > 0 and not 1 / _CLEAR < saved / usual < _CLEAR
