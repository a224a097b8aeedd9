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
"""Chains of patches to a template, found backwards from the template.

Each object is read from where it is cheapest, so a chain has one price. The
search is bounded in steps and in how many chains each step goes on with: a
site map may have thousands of patches, and requests wait for the answer.
"""

import dataclasses
import heapq
import math
import typing

from diffcache_openstack.sites import view as views

# What [planner] hops and [agent] max_patches go up to.
MAX_HOPS = 4
# Chains that a step goes on with, the cheapest so far.
MOST_PER_STEP = 16

SecondsOf = typing.Callable[[views.Key], float]


@dataclasses.dataclass(frozen=True)
class Chain:
    """Patches in the order in which they are applied.

    :param seconds: to bring and apply them
    """

    patches: tuple[views.PatchRef, ...] = ()
    seconds: float = 0.0

    @property
    def base(self) -> str:
        """Content id of what the first patch is applied to."""
        return self.patches[0].base

    @property
    def through(self) -> tuple[str, ...]:
        """Content ids of what is made on the way, in order."""
        return tuple(patch.target for patch in self.patches[:-1])


def to_template(view: views.SiteView, content_id: str,
                seconds_of: SecondsOf, limit: float,
                hops: int = MAX_HOPS) -> list[Chain]:
    """Chains of two patches and more, one or none by base and length.

    :param seconds_of: to bring an object here; infinite if nobody has it
    :param limit: seconds of the dearest chain worth having, base included
    :param hops: patches in the longest chain
    :returns: chains whose ``seconds`` include the base, cheapest first
    """
    found: list[Chain] = []
    chains = _longer(view, [Chain()], content_id, seconds_of, limit)
    for _ in range(hops - 1):
        chains = _longer(view, chains, content_id, seconds_of, limit)
        for chain in chains:
            base = views.Key(views.TEMPLATES, chain.base)
            seconds = chain.seconds + seconds_of(base)
            if seconds <= limit and seconds < math.inf:
                found.append(dataclasses.replace(chain, seconds=seconds))
    return sorted(found, key=_seconds)


def _longer(view, chains, content_id, seconds_of, limit) -> list[Chain]:
    """The cheapest chains with one more patch in front, one for each base."""
    best: dict[str, Chain] = {}
    for chain in chains:
        passed = {content_id, *(patch.base for patch in chain.patches)}
        first = chain.base if chain.patches else content_id
        for patch in view.patches_into.get(first, ()):
            if patch.base in passed:
                continue
            seconds = (chain.seconds + patch.apply_seconds
                       + seconds_of(views.Key(views.PATCHES, patch.id)))
            bound = best[patch.base].seconds if patch.base in best else limit
            if seconds < bound:
                best[patch.base] = Chain((patch, *chain.patches), seconds)
    return heapq.nsmallest(MOST_PER_STEP, best.values(), key=_seconds)


def _seconds(chain: Chain) -> float:
    return chain.seconds
