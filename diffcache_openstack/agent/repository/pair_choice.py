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
"""The choice of patches that a repository creates, and their order.

Between N images there are N(N-1) patches, and most would never be used: a
template is best built from a base close to it. The size of each patch is
estimated from sketches of the two images, so that only those from a target's
nearest bases are made.
"""

import collections
import dataclasses
import functools
import typing

Pair = tuple[str, str]

# Estimates are within some percent of the truth on the median, not always.
# A pair this far above the limit is not made; closer ones are, and measured.
_DOUBT = 1.5
# Sketches kept in memory, half a megabyte each.
_LOADED = 128


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits on the patches to create.

    :param max_ratio: largest patch, of its target's data
    :param nearest: bases per target
    """

    max_ratio: float
    nearest: int


class Estimates:
    """Estimated sizes of patches; each pair is looked at once.

    :param load: reads the sketch of a content
    :param compare: bytes of the patch from one sketch to another
    """

    def __init__(self, load: typing.Callable[[str], typing.Any],
                 compare: typing.Callable[[typing.Any, typing.Any], int]
                 ) -> None:
        self._load = functools.lru_cache(maxsize=_LOADED)(load)
        self._compare = compare
        self._known: dict[Pair, int] = {}

    def size(self, base: str, target: str) -> int:
        """Estimate the bytes of the patch."""
        pair = base, target
        if pair not in self._known:
            self._known[pair] = self._compare(self._load(base),
                                              self._load(target))
        return self._known[pair]


def choose(pairs: typing.Iterable[Pair], estimates: Estimates,
           data_sizes: typing.Mapping[str, int], made: typing.Iterable[Pair],
           limits: Limits) -> list[Pair]:
    """Return the pairs to create patches for, the smallest first.

    :param data_sizes: bytes of data of each content
    :param made: pairs whose patch there is; they count among the nearest
    """
    bases: dict[str, list[tuple[int, str]]] = collections.defaultdict(list)
    wanted, done = set(pairs), set(made)
    # Nothing is looked at for targets that have all they need.
    open_targets = {target for base, target in wanted - done}
    for base, target in wanted | done:
        if target in open_targets and data_sizes.keys() >= {base, target}:
            bases[target].append((estimates.size(base, target), base))
    chosen = []
    for target, candidates in bases.items():
        limit = limits.max_ratio * data_sizes[target] * _DOUBT
        chosen += [(size, base, target)
                   for size, base in sorted(candidates)[:limits.nearest]
                   if size <= limit and (base, target) not in done]
    return [(base, target) for size, base, target in sorted(chosen)]
