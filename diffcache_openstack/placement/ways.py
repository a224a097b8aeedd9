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
"""Find the cheapest ways to an image: the one finder of all services.

A way fetches the image whole, or fetches a base and applies a chain of
patches. This is the paper's lookup table (section III-B), computed for one
request. The solvers have a finder of their own in native code
(``native/placement/src/chains.rs``); a test compares the two.
"""

import collections.abc
import dataclasses
import heapq
import math
import typing

# Chains that are extended in each round for alternatives to the cheapest way.
_ALTERNATIVES = 16


def fetch_seconds(megabytes, mbps):
    """Return the seconds to move ``megabytes`` at ``mbps``."""
    return 8.0 * megabytes / mbps


class Source(typing.NamedTuple):
    """A host that an object can be read from, and the seconds it takes."""

    seconds: float
    host: typing.Any


class Step(typing.NamedTuple):
    """A patch that a chain may have, and the seconds it adds.

    :param seconds: to fetch the patch from its cheapest source and apply it
    :param base: template that it is applied to
    :param patch: the patch; it has the attributes ``base`` and ``target``
        (templates) and ``apply_seconds``
    """

    seconds: float
    base: typing.Any
    patch: typing.Any


class Network(typing.Protocol):
    """What can be read from where, as seen from one host.

    Templates are whatever can be a key of a dictionary.
    """

    def steps_into(self, template: typing.Any,
                   within: float) -> collections.abc.Iterable[Step]:
        """List the patches to a template that take less than some seconds.

        Those that take longer may be among them, those without source not.
        A patch may be listed once for each kind of source that it has.
        """

    def template_seconds(self, template: typing.Any) -> float:
        """Return the seconds to fetch a template; infinite without source."""

    def template_sources(self, template: typing.Any) -> list[Source]:
        """List where a template can be read, cheapest first."""

    def patch_sources(self, patch: typing.Any) -> list[Source]:
        """List where a patch can be read, cheapest first."""


class Way(typing.NamedTuple):
    """One way to have a template at a host.

    :param seconds: predicted by the cost model
    :param template: what is fetched whole: the base of the first patch, or
        the requested template itself
    :param source: host that this is read from
    :param patches: patches in the order in which they are applied
    :param patch_sources: host that each patch is read from
    """

    seconds: float
    template: typing.Any
    source: typing.Any
    patches: tuple
    patch_sources: tuple


@dataclasses.dataclass(slots=True)
class _Chain:
    """Patches that lead to the requested template, each from its nearest.

    :param base: template that the first of the patches is applied to
    :param seconds: to fetch and apply the patches
    """

    base: typing.Any
    patches: tuple
    seconds: float


def cheapest_seconds(network: Network, template: typing.Any,
                     hops: int) -> float:
    """Return the seconds of the cheapest way; infinite if there is none.

    :param hops: patches that may be applied one after another
    """
    found = _find_chains(network, template, hops, 1, math.inf)
    return min((seconds for seconds, _ in found), default=math.inf)


def rank(network: Network, template: typing.Any, hops: int,
         limit: int = 32, most_seconds: float = math.inf) -> list[Way]:
    """List ways to a template, cheapest first, fewer patches before more.

    The first way is the cheapest there is. Those after it differ in where
    their objects are read from, or in base and number of patches.

    :param hops: patches that may be applied one after another
    :param limit: ways in the list at most
    :param most_seconds: ways that take longer are left out
    """
    found = _find_chains(network, template, hops, limit, most_seconds)
    found.sort(key=_by_seconds)
    combinations = _Combinations(network)
    ways: list[Way] = []
    for seconds, chain in found:
        while len(ways) < limit and combinations.least() < seconds:
            ways.append(combinations.pop())
        if len(ways) == limit:
            break
        combinations.add(chain)
    while len(ways) < limit and combinations.least() < math.inf:
        ways.append(combinations.pop())
    return [way for way in ways if way.seconds <= most_seconds]


def _by_seconds(item: tuple[float, _Chain]) -> tuple[float, int]:
    seconds, chain = item
    return seconds, len(chain.patches)


def _find_chains(network, template, hops, limit,
                 most_seconds) -> list[tuple[float, _Chain]]:
    """Find chains, the cheapest for each base and number of patches.

    Chains grow backwards from the requested template, one patch a round. All
    are extended that may lead to the cheapest way: those that are cheaper
    than the best way so far and than every shorter chain from their base.
    For alternatives to it, the cheapest few are extended besides.

    :returns: (seconds with the base, chain), in no order
    """
    whole = _Chain(template, (), 0.0)
    found = [(network.template_seconds(template), whole)]
    least = {template: 0.0}
    latest = [whole]
    for _ in range(hops):
        best = min(most_seconds, min(seconds for seconds, _ in found))
        bound = min(most_seconds, _nth_least(found, limit))
        latest.sort(key=lambda chain: chain.seconds)
        longer: dict = {}
        for number, chain in enumerate(latest):
            few = number < _ALTERNATIVES
            if chain.seconds >= best and not few:
                break
            _extend(network, chain, bound if few else best, longer)
        latest = []
        for base, chain in longer.items():
            seconds = chain.seconds + network.template_seconds(base)
            if seconds <= bound:
                found.append((seconds, chain))
            if chain.seconds < least.get(base, math.inf):
                least[base] = chain.seconds
                latest.append(chain)
    return [
        item for item in found
        if item[0] <= most_seconds and item[0] < math.inf
    ]


def _nth_least(found, number) -> float:
    if len(found) < number:
        return math.inf
    return heapq.nsmallest(number, [seconds for seconds, _ in found])[-1]


def _extend(network, chain, bound, longer) -> None:
    """Put each patch in front of a chain; keep the cheapest for each base.

    :param longer: by base the chains of this round
    """
    passed = {chain.base, *(patch.target for patch in chain.patches)}
    for step in network.steps_into(chain.base, bound - chain.seconds):
        seconds = chain.seconds + step.seconds
        known = longer.get(step.base)
        most = bound if known is None else known.seconds
        if seconds < most and step.base not in passed:
            longer[step.base] = _Chain(
                step.base, (step.patch, *chain.patches), seconds)


class _Combinations:
    """The ways that chains and the sources of their objects make up.

    A heap has the next combination of each chain. Where one is popped, those
    that read one object from its next source follow it; only objects from
    the last one varied on are varied, so that none comes twice.
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        self._heap: list[tuple] = []
        self._count = 0

    def least(self) -> float:
        """Return the seconds of the cheapest way; infinite without any."""
        return self._heap[0][0] if self._heap else math.inf

    def add(self, chain: _Chain) -> None:
        """Add a chain all of whose objects have a source."""
        network = self._network
        sources = [network.template_sources(chain.base)]
        sources += [network.patch_sources(patch) for patch in chain.patches]
        self._push(chain, sources, (0,) * len(sources), 0)

    def pop(self) -> Way:
        """Remove and return the cheapest way."""
        seconds, _, _, chain, sources, choice, varied = heapq.heappop(
            self._heap)
        for place in range(varied, len(choice)):
            if choice[place] + 1 < len(sources[place]):
                changed = (*choice[:place], choice[place] + 1,
                           *choice[place + 1:])
                self._push(chain, sources, changed, place)
        first, *others = (
            options[n].host for options, n in zip(sources, choice))
        return Way(seconds, chain.base, first, chain.patches, tuple(others))

    def _push(self, chain, sources, choice, varied) -> None:
        seconds = sum(patch.apply_seconds for patch in chain.patches)
        seconds += sum(
            options[n].seconds for options, n in zip(sources, choice))
        self._count += 1
        heapq.heappush(self._heap, (
            seconds, len(chain.patches), self._count, chain, sources, choice,
            varied))
