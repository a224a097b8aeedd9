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
"""When an epoch ends early: hits are not those that were predicted.

Sizes are decided by what was requested in the epoch before. Where volumes
begin to request something else, these sizes do not suit them; it shows in
their hits. Hits count as others than predicted if chance explains it
with less than 1 in 10,000, and if they are many among those of all volumes,
twice in a row. Partitions that still fill are not judged by what they miss.

A shift takes several decisions: what is requested anew has no reuse distances
at first. So epochs are short after one that ended early, and grow until they
are as long as others. So that a load that varies all the time does not have
sizes decided all the time, by little, each early end makes the shortest epoch
longer as well, until epochs have been as long as others again.
"""

import collections.abc
import dataclasses
import math

from diffcache_openstack import _native

# Looks in a row that differ from the prediction: those of the shortest epoch.
LOOKS = 2
# How many times as long an epoch is as one before that ended early.
_GROWTH = 1.5
# Standard deviations that are no chance.
_SIGMAS = 4.0
# References of a volume in a look by which it is judged.
_LEAST_REFERENCES = 100


@dataclasses.dataclass(frozen=True)
class Served:
    """What was served of a volume until now.

    :ivar references: since any time that stays the same
    :ivar hits: those of them that hit
    :ivar full: whether it has as many blocks as it may have
    """

    references: int
    hits: int
    full: bool


_Served = collections.abc.Mapping[str, Served]
_Sizes = collections.abc.Mapping[str, int]
_Curves = collections.abc.Mapping[str, _native.HitCurve]


@dataclasses.dataclass(frozen=True)
class _Predicted:
    """The hit ratio of a volume, and the references that it is known from."""

    ratio: float = 0.0
    references: int = 0

    def differs(self, hits: int, references: int) -> bool:
        """Return whether chance does not explain another ratio.

        By the test of two proportions.
        """
        known = self.ratio * self.references
        both = (hits + known) / (references + self.references)
        weight = 1 / references
        if self.references:
            weight += 1 / self.references
        deviation = math.sqrt(max(0.0, both * (1 - both) * weight))
        return abs(hits / references - self.ratio) > _SIGMAS * deviation


@dataclasses.dataclass
class _Course:
    """How an epoch went for a volume.

    :ivar begin: what was served when it began
    :ivar latest: at the latest look
    :ivar full: whether its partition was full at each of them
    :ivar surplus: looks in a row with more hits than predicted; below 0 with
        fewer
    """

    begin: Served
    latest: Served
    full: bool
    surplus: int = 0


class Departures:
    """Detects that hits are no longer those that were predicted.

    :param least: the part of all references by which the hits of a volume
        differ at least
    """

    def __init__(self, least: float) -> None:
        self._least = least
        self._predicted: dict[str, _Predicted] = {}
        self._bias: dict[str, float] = {}
        self._courses: dict[str, _Course] = {}
        self._looks = 0
        self._shortest = float(LOOKS)
        self._length = math.inf
        self._departed = False

    def end(self, curves: _Curves, sizes: _Sizes, served: _Served) -> None:
        """End an epoch, and learn by how much hits are others than curves say.

        A curve is that of LRU, and of a sample of the blocks.

        :param curves: of what was requested in it, by volume
        :param sizes: in it
        :param served: until now
        """
        for name, curve in curves.items():
            course = self._courses.get(name)
            if course is None or name not in served or not curve.references:
                continue
            now = served[name]
            references = now.references - course.begin.references
            if course.full and now.full and references >= _LEAST_REFERENCES:
                hits = now.hits - course.begin.hits
                self._bias[name] = hits / references \
                    - curve.hits(sizes[name]) / curve.references

    def begin(self, curves: _Curves, sizes: _Sizes, served: _Served) -> None:
        """Begin an epoch, and predict what will hit.

        :param curves: of what is expected in it, by volume
        :param sizes: from now on
        :param served: until now
        """
        self._bias = {name: bias for name, bias in self._bias.items()
                      if name in served}
        self._predicted = {name: self._predict(name, curve, sizes[name])
                           for name, curve in curves.items() if name in sizes}
        self._courses = {name: _Course(each, each, each.full)
                         for name, each in served.items()}
        self._grow()

    def _grow(self) -> None:
        """Choose how long the epoch that begins is, and how short."""
        if self._departed:
            self._shortest *= _GROWTH
            self._length = self._shortest
        elif self._looks >= self._length:
            self._length *= _GROWTH
        else:
            self._shortest = max(float(LOOKS), self._shortest / _GROWTH)
            self._length = math.inf
        self._looks = 0
        self._departed = False

    def look(self, served: _Served) -> list[str]:
        """Return the reasons to end the epoch early; none to continue it.

        :param served: until now
        """
        self._looks += 1
        self._courses = {name: course for name, course
                         in self._courses.items() if name in served}
        references = {
            name: each.references - self._courses[name].latest.references
            for name, each in served.items() if name in self._courses}
        least = self._least * sum(references.values())
        reasons = []
        for name, each in served.items():
            # Of a cache that was started again, less was served.
            if references.get(name, -1) < 0:
                self._courses[name] = _Course(each, each, False)
            elif self._departs(name, each, least):
                reasons.append(self._reason(name, each))
            self._note(name, each)
        self._departed = bool(reasons) and self._looks >= self._shortest
        if self._departed:
            return reasons
        if self._looks >= self._length:
            return ['the epoch ended early, as one before had']
        return []

    def _note(self, name: str, served: Served) -> None:
        course = self._courses[name]
        course.full = course.full and served.full
        course.latest = served

    def _departs(self, name: str, served: Served, least: float) -> bool:
        """Return whether a volume's hits differ, in enough looks in a row."""
        course = self._courses[name]
        references = served.references - course.latest.references
        hits = served.hits - course.latest.hits
        predicted = self._predicted.get(name, _Predicted())
        more = hits - predicted.ratio * references
        fills = more < 0 and not (served.full and course.latest.full)
        if fills or references < _LEAST_REFERENCES or abs(more) < least \
                or not predicted.differs(hits, references):
            course.surplus = 0
            return False
        step = 1 if more > 0 else -1
        course.surplus = step + (
            course.surplus if course.surplus * step > 0 else 0)
        return abs(course.surplus) >= LOOKS

    def _reason(self, name: str, served: Served) -> str:
        course = self._courses[name]
        references = served.references - course.latest.references
        hits = served.hits - course.latest.hits
        predicted = self._predicted.get(name)
        expected = 'nothing was known of it' if predicted is None \
            else f'{predicted.ratio:.1%} were expected'
        return (f'{name}: the epoch ended early, since {hits / references:.1%}'
                f' of its last {references} references hit, and {expected}')

    def _predict(self, name: str, curve: _native.HitCurve, size: int
                 ) -> _Predicted:
        references = curve.references
        if not references:
            return _Predicted()
        ratio = curve.hits(size) / references + self._bias.get(name, 0.0)
        return _Predicted(min(1.0, max(0.0, ratio)), references)
