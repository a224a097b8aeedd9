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
"""Page caches of guests, and how their changes shift volumes' curves.

Nova's driver reports their sizes. A curve is that of a whole epoch. If the
page cache has another size when the epoch ends, the next epoch's curve will
differ, and sizes are decided by the expected one.
"""

import collections
import collections.abc
import dataclasses
import re
import threading
import time
import typing

from diffcache_openstack import _native
from diffcache_openstack.common import exceptions
from diffcache_openstack.objects import fields as object_fields
from diffcache_openstack.ssdcache.engines import base as engines
from diffcache_openstack.ssdcache import page_cache

BLOCK = 4096
# Bytes; no guest has more memory.
MAX_BYTES = 1 << 50
MOST_GUESTS = 1000
MOST_VOLUMES = 256
# A change has to be this part of the page cache, and so many blocks.
NOTICEABLE = 0.2
LEAST_BLOCKS = 256
# Curves that are remembered of a volume, and for how long.
_MOST_CURVES = 4
_MOST_STEPS = 512
_REMEMBERED_S = 24 * 3600.0
# A curve is that of another size of the page cache from this ratio on.
_NEAR = 1.1
# A remembered curve is of another load if its references differ by more.
_LIKE = 2.0
GROWN, RECALLED, UNKNOWN, BYPASSED = 'grown', 'recalled', 'unknown', 'bypassed'
OUTCOMES = (GROWN, RECALLED, UNKNOWN, BYPASSED)

_Epochs = collections.abc.Mapping[str, engines.Epoch]
_Limits = collections.abc.Mapping[str, int]


class Foreseen(typing.NamedTuple):
    """What is expected of the next epoch.

    ``curves`` has those of volumes whose guest's page cache has changed;
    ``explain`` says why, each line with the name of its volume.
    """

    curves: dict[str, _native.HitCurve]
    explain: list[str]


class Change(typing.NamedTuple):
    """A volume's part of a page cache, on average of an epoch and now."""

    before: int
    now: int
    of_guest: tuple[int, int]

    @property
    def is_noticeable(self) -> bool:
        """Whether curves may differ by it."""
        moved = abs(self.now - self.before)
        return moved >= max(LEAST_BLOCKS, NOTICEABLE * self.before)

    @property
    def text(self) -> str:
        """The change of the whole page cache, in words."""
        before, now = (f'{blocks * BLOCK / (1 << 20):.0f}'
                       for blocks in self.of_guest)
        verb = 'grew' if self.now > self.before else 'shrank'
        return f'the guest\'s page cache {verb} from {before} to {now} MiB'


@dataclasses.dataclass
class _Guest:
    """The page cache of a server, in blocks: the latest, and of an epoch."""

    volumes: tuple[str, ...]
    latest: int
    total: int = 0
    count: int = 0

    @property
    def mean(self) -> int:
        return round(self.total / self.count)


@dataclasses.dataclass(frozen=True)
class _Seen:
    """A curve below a page cache that kept its size during an epoch."""

    blocks: int
    curve: _native.HitCurve
    at: float


def parse(server_id: str, document: dict[str, typing.Any]
          ) -> tuple[int, tuple[str, ...]]:
    """Return the blocks of a server's page cache, and its volumes.

    :param document: ``page_cache`` in bytes, and ``volumes``
    :raises InvalidInput: a field is missing, or out of range
    """
    size, volumes = document.get('page_cache'), document.get('volumes')
    if not _is_id(server_id) \
            or isinstance(size, bool) or not isinstance(size, int) \
            or not 0 <= size <= MAX_BYTES:
        raise exceptions.InvalidInput(
            'A guest has an ID, and a page_cache in bytes.')
    if not isinstance(volumes, list) or len(volumes) > MOST_VOLUMES \
            or not all(map(_is_id, volumes)):
        raise exceptions.InvalidInput(
            f'A guest has a list of at most {MOST_VOLUMES} volumes.')
    return size // BLOCK, tuple(volumes)


class PageCaches:
    """Follows the page caches of this host's guests.

    :param clock: returns seconds
    """

    def __init__(self, clock: collections.abc.Callable[[], float]
                 = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._guests: dict[str, _Guest] = {}
        self._seen: dict[str, list[_Seen]] = {}
        self._counts: collections.Counter[str] = collections.Counter()

    def note(self, server_id: str, blocks: int, volumes: tuple[str, ...]
             ) -> None:
        """Note the size of a server's page cache.

        :param volumes: that the server has in the cache
        """
        with self._lock:
            guest = self._guests.get(server_id)
            if guest is None:
                if len(self._guests) >= MOST_GUESTS:
                    return
                guest = self._guests[server_id] = _Guest(volumes, blocks)
            guest.volumes, guest.latest = volumes, blocks
            guest.total += blocks
            guest.count += 1

    def status(self) -> dict[str, int]:
        """Return how many ``guests`` are followed, and outcomes of changes."""
        with self._lock:
            return {'guests': len(self._guests), **{
                outcome: self._counts[outcome] for outcome in OUTCOMES}}

    def sizes(self) -> dict[str, int]:
        """Return the blocks of guests' page caches, by their volumes."""
        with self._lock:
            return {name: guest.latest for guest in self._guests.values()
                    for name in guest.volumes}

    def skip_epoch(self) -> None:
        """Begin another epoch, and expect nothing of it.

        After one that ended early: others are longer, and cannot be compared.
        """
        with self._lock:
            for guest in self._guests.values():
                guest.total, guest.count = guest.latest, 1

    def end_epoch(self, found: _Epochs, limits: _Limits) -> Foreseen:
        """Return what is expected after an epoch.

        :param found: what was requested in it
        :param limits: sizes of partitions in it
        """
        with self._lock:
            changes = self._changes(found)
            self._seen = {name: seen for name, seen in self._seen.items()
                          if name in found}
            foreseen = Foreseen({}, [])
            for name, change in changes.items():
                self._foresee(name, change, found[name].curve,
                              limits.get(name, 0), foreseen)
            return foreseen

    def _changes(self, found: _Epochs) -> dict[str, Change]:
        """Return the changes of volumes in this epoch, and begin another."""
        # Servers that ended, or say nothing any more.
        self._guests = {server: guest for server, guest
                        in self._guests.items() if guest.count}
        changes = {}
        for guest in self._guests.values():
            names = [name for name in guest.volumes if name in found
                     and found[name].curve.references]
            every = sum(found[name].curve.references for name in names)
            for name in names:
                # What enters the page cache is in it for about as long.
                share = found[name].curve.references / every
                changes[name] = Change(
                    round(share * guest.mean), round(share * guest.latest),
                    (guest.mean, guest.latest))
            guest.total = guest.count = 0
        return changes

    def _foresee(self, name: str, change: Change, curve: _native.HitCurve,
                 limit: int, foreseen: Foreseen) -> None:
        if not change.is_noticeable:
            self._remember(name, change.now, curve)
            return
        if change.now > change.before:
            expected, text = self._grown(change, curve)
        else:
            expected, text = self._shrunk(name, change, curve, limit)
        if expected is not None:
            foreseen.curves[name] = expected
        foreseen.explain.append(f'{name}: {change.text}: {text}')

    def _grown(self, change: Change, curve: _native.HitCurve
               ) -> tuple[_native.HitCurve | None, str]:
        forecast = page_cache.grown(curve, change.before, change.now)
        if forecast is None:
            self._counts[BYPASSED] += 1
            return None, ('no change is expected, as most references do not'
                          ' go through it')
        self._counts[GROWN] += 1
        left = forecast.curve.references
        return forecast.curve, (
            f'{left} references are expected instead of {curve.references};'
            f' those that reuse a block within {forecast.span} to'
            f' {forecast.within} others stay in the guest')

    def _shrunk(self, name: str, change: Change, curve: _native.HitCurve,
                limit: int) -> tuple[_native.HitCurve | None, str]:
        seen = self._recall(name, change, curve)
        if seen is not None:
            self._counts[RECALLED] += 1
            minutes = (self._clock() - seen.at) / 60
            return seen.curve, (
                f'{seen.curve.references} references are expected instead of'
                f' {curve.references}, as {minutes:.0f} minutes ago, when it'
                f' had about this size')
        self._counts[UNKNOWN] += 1
        kept = page_cache.kept_hits(curve, limit, change.before)
        return None, (
            f'more references are expected, as many as it has served, which'
            f' the host cannot know; of {curve.hits(limit)} hits {kept} at'
            f' least stay')

    def _remember(self, name: str, blocks: int, curve: _native.HitCurve
                  ) -> None:
        seen = [each for each in self._seen.get(name, ())
                if not _is_near(each.blocks, blocks)]
        seen.append(_Seen(blocks, _native.HitCurve(
            curve.references, curve.distinct, curve.thinned(_MOST_STEPS)),
            self._clock()))
        self._seen[name] = seen[-_MOST_CURVES:]

    def _recall(self, name: str, change: Change, curve: _native.HitCurve
                ) -> _Seen | None:
        """Return a curve below a page cache of the present size, if known.

        Only if it explains the references of the epoch that ended.
        """
        for seen in self._seen.get(name, ()):
            if not _is_near(seen.blocks, change.now) \
                    or self._clock() - seen.at > _REMEMBERED_S:
                continue
            then = page_cache.grown(seen.curve, seen.blocks, change.before)
            if then is not None and 1 / _LIKE <= (
                    (then.curve.references + 1) / (curve.references + 1)
                    ) <= _LIKE:
                return seen
        return None


def _is_id(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(
        object_fields.ID_PATTERN, value) is not None


def _is_near(one: int, other: int) -> bool:
    return max(one, other) <= _NEAR * min(one, other)
