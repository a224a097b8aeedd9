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
"""Sizes of volumes' partitions: shares at first, then by their curves."""

import collections
import collections.abc
import dataclasses
import typing

from oslo_utils import timeutils

from diffcache_openstack import _native
from diffcache_openstack.agent.ssdcache import latencies
from diffcache_openstack.agent.ssdcache import volume_settings
from diffcache_openstack.common import exceptions
from diffcache_openstack.ssdcache import engines
from diffcache_openstack.ssdcache import epochs
from diffcache_openstack.ssdcache.sizing import base as sizing
from diffcache_openstack.ssdcache.sizing import rules as sizing_rules

# Decisions that are kept.
HISTORY = 30
# Steps of curves that are shown, at most.
STEPS = 200
_NO_CURVE = _native.HitCurve(0, 0, [])
_STATIC, _LATENCY, _PRIORITY = 'static', 'latency', 'priority'

_Wanted = collections.abc.Mapping[str, volume_settings.VolumeSettings]
_Limits = collections.abc.Mapping[str, int]
_Epochs = collections.abc.Mapping[str, engines.Epoch]


@dataclasses.dataclass(frozen=True)
class SizeRules:
    """How sizes are decided; see the options of ``[ssd_cache]``.

    :ivar policy: its name
    :ivar epoch: seconds
    :ivar shortest: seconds of an epoch that ends early
    """

    policy: str = _LATENCY
    epoch: int = 120
    shortest: int = 10
    changes: epochs.Rules = epochs.Rules()


class Sizes:
    """Decides sizes, and remembers why.

    :ivar epochs: what was requested in the last epoch, by volume
    :ivar saved_us: microseconds that hits saved in it, each by its volume's
        weight
    """

    def __init__(self, rules: SizeRules) -> None:
        self.rules = rules
        self.epochs: _Epochs = {}
        self.saved_us: dict[str, float] = {}
        self._decisions: collections.deque[dict[str, typing.Any]] = \
            collections.deque(maxlen=HISTORY)
        self._policy = sizing.load(rules.policy)
        self._sizer: epochs.Sizer | None = None
        self._latencies = latencies.Latencies()
        self._cache: sizing.Cache | None = None

    @property
    def may_change(self) -> bool:
        """Whether sizes may change when the present epoch ends."""
        return self.rules.policy != _STATIC \
            and (self._sizer is None or self._sizer.may_change)

    def shares(self, known: _Wanted, limits: _Limits, cache: sizing.Cache
               ) -> dict[str, int]:
        """Return blocks for each volume, before its requests are known.

        Volumes without a size get their part by weight. Others keep what
        they have in proportion to each other; with the policy ``static``,
        they are in proportion to weights, too.

        :param limits: sizes of volumes that have one
        :param cache: what is divided
        :raises NoSpace: the least sizes do not fit
        """
        if not cache.capacity:
            raise exceptions.NoSpace(
                'The device of the SSD cache failed; replace it, and start'
                ' the cache with --format.')
        volumes = [self._volume(name, wanted, _NO_CURVE, cache)
                   for name, wanted in known.items()]
        try:
            sizing.check(volumes, cache)
        except sizing.SizingError as error:
            raise exceptions.NoSpace(f'SSD cache: {error}') from error
        by_weight = [dataclasses.replace(
            volume, weight=known[volume.name].weight) for volume in volumes]
        found = sizing_rules.StaticPolicy().size(by_weight, cache).sizes
        if self.rules.policy == _STATIC \
                or not any(name in limits for name in known):
            return found
        return sizing_rules.StaticPolicy().size([
            dataclasses.replace(volume, weight=max(1.0, limits[volume.name]))
            if volume.name in limits else dataclasses.replace(
                volume, min=found[volume.name], max=found[volume.name])
            for volume in volumes], cache).sizes

    def decide(self, known: _Wanted, limits: _Limits, found: _Epochs,
               cache: sizing.Cache) -> dict[str, int]:
        """Return the sizes for the next epoch.

        :param limits: sizes in the epoch that ended
        :param found: what was requested in it
        :param cache: what is divided
        :raises SizingError: no sizes suit the volumes
        """
        self.epochs = found
        if self._sizer is None or cache != self._cache:
            self._sizer = epochs.Sizer(self._policy, cache,
                                       self.rules.changes)
            self._cache = cache
        measured = self._latencies.update(found)
        volumes = []
        for name, wanted in known.items():
            volume = self._volume(name, wanted, self._curve(name), cache)
            if name in measured:
                volume = dataclasses.replace(
                    volume, **measured[name]._asdict())
            volumes.append(volume)
        self.saved_us = {
            volume.name: volume.weight * found[volume.name].hit.count
            * max(0.0, cache.miss(volume) - cache.hit(volume))
            for volume in volumes if volume.name in found}
        decision = self._sizer.decide(volumes, limits)
        self._note(decision.changed, decision.explain + [
            f'{name}: a hit takes {each.hit_us:.0f} us, a miss'
            f' {each.miss_us:.0f} us' for name, each in measured.items()],
            limits, decision.sizes)
        return decision.sizes

    def arrive(self, name: str, epoch: engines.Epoch, known: _Wanted,
               limits: _Limits, cache: sizing.Cache) -> dict[str, int]:
        """Return sizes at once after a volume came from another host.

        :param epoch: what was requested of it there in its last epoch
        :param limits: sizes until now
        :raises SizingError: no sizes suit the volumes
        """
        self.epochs = {**self.epochs, name: self._as_long(epoch)}
        volumes = [self._volume(each, wanted, self._curve(each), cache)
                   for each, wanted in known.items()]
        decision = epochs.Sizer(
            self._policy, cache, epochs.Rules(hysteresis=0.0, largest=1.0)
            ).decide(volumes, limits)
        self._note(decision.changed, [
            *decision.explain, f'{name}: it came from another host, with its'
            ' curve'], limits, decision.sizes)
        return decision.sizes

    def _as_long(self, epoch: engines.Epoch) -> engines.Epoch:
        """Return what would be requested in an epoch as the last one here."""
        seconds = max((each.seconds for each in self.epochs.values()),
                      default=float(self.rules.epoch))
        times = seconds / max(epoch.seconds, 1.0)
        curve = epoch.curve
        hits = {}
        for size, count in curve.thinned(STEPS):
            hits.setdefault(round(count * times), size)
        hits.pop(0, None)
        references = max(round(curve.references * times), curve.distinct,
                         max(hits, default=0))
        return dataclasses.replace(
            epoch, seconds=seconds, curve=_native.HitCurve(
                references, curve.distinct,
                [(size, count) for count, size in hits.items()]))

    def note_failure(self, error: exceptions.DiffCacheError) -> None:
        """Remember why nothing could be decided."""
        self._note(False, [f'sizes stay: {error}'], {}, {})

    def add_reasons(self, lines: list[str]) -> None:
        """Add to what the last decision explains."""
        if self._decisions:
            self._decisions[-1]['explain'].extend(lines)

    def _note(self, changed: bool, explain: list[str], before: _Limits,
              sizes: _Limits) -> None:
        self._decisions.append({
            'time': timeutils.utcnow().isoformat(timespec='seconds'),
            'policy': self.rules.policy, 'changed': changed,
            'before': dict(before), 'sizes': dict(sizes),
            'explain': list(explain)})

    def decisions(self) -> list[dict[str, typing.Any]]:
        """Return the last decisions, the latest first.

        Each has ``time``, ``policy``, whether sizes ``changed``, ``before``
        and ``sizes`` in blocks, and why in ``explain``.
        """
        return list(reversed(self._decisions))

    def requested(self, name: str) -> dict[str, typing.Any] | None:
        """Return what was requested of a volume in the last epoch, if known.

        :returns: ``seconds``, ``references``, ``distinct`` (the working set,
            in blocks), ``sampled``, mean latencies ``hit_us`` and ``miss_us``
            of as many ``hit_reads`` and ``miss_reads``, and ``hits``: sizes
            in blocks and their hits
        """
        epoch = self.epochs.get(name)
        if epoch is None:
            return None
        curve = epoch.curve
        return {
            'seconds': epoch.seconds, 'references': curve.references,
            'distinct': curve.distinct, 'sampled': epoch.sampled,
            'hit_reads': epoch.hit.count, 'hit_us': epoch.hit.mean_us,
            'miss_reads': epoch.miss.count, 'miss_us': epoch.miss.mean_us,
            'hits': [list(step) for step in curve.thinned(STEPS)]}

    def _curve(self, name: str) -> _native.HitCurve:
        """Return what was requested of a volume in the last epoch."""
        return self.epochs[name].curve if name in self.epochs else _NO_CURVE

    def _volume(self, name: str, wanted: volume_settings.VolumeSettings,
                curve: _native.HitCurve, cache: sizing.Cache
                ) -> sizing.Volume:
        weight = wanted.weight
        if self.rules.policy == _PRIORITY and wanted.priority is not None:
            weight = wanted.priority
        most = cache.capacity
        if wanted.max is not None:
            most = min(wanted.max, most)
        return sizing.Volume(
            name, curve, weight, wanted.min, most, wanted.target)
