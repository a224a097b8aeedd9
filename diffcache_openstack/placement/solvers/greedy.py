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
"""Algorithm 1 of the paper, as printed: the baseline.

Readings where the print is ambiguous: in PickPatches ``q`` is the node that
requests template j and ``r`` the node its patch is read from (0 reads it
from the repository, which takes no space); a reduction is that of the one
request j at q; ``newCost - oldCost`` on line 35 is taken as old minus new,
or nothing would ever be placed; among equal reductions the first wins. The
node that just received the template is left out of q, as on line 30.

The order of evaluation differs from the print where that cannot change the
outcome: a (template, node) pair is looked into only while an upper bound on
its benefit reaches the best benefit found in the round.
"""

import numpy as np

from diffcache_openstack.placement import bounds
from diffcache_openstack.placement import cost
from diffcache_openstack.placement import instances
from diffcache_openstack.placement import placements
from diffcache_openstack.placement.solvers import sites
from diffcache_openstack.placement import solving
from diffcache_openstack.placement import ways


class GreedySolver(solving.Solver):
    """One template and the patches from it per round, best benefit first.

    Chains are not considered when placing (the paper knows none); with
    ``hops`` above 1 they are when the result is costed.
    """

    def solve(self, instance, **options) -> solving.Solution:
        return sites.solve_each(instance, solving.Options(**options),
                                self._solve_site)

    def _solve_site(self, instance, options) -> solving.Solution:
        clock = solving.Clock(options)
        state = _State(instance, solving.pinned_placement(instance))
        bound = bounds.unlimited(instance, options.hops)
        while not clock.over and state.place_best():
            clock.report('placing', state.cost, bound)
        placement = state.placement()
        total = cost.total_cost(instance, placement, options.hops)
        return solving.Solution(placement=placement, cost_s=total,
                                lower_bound_s=bound,
                                proved_optimal=total <= bound * (1 + 1e-9),
                                seconds=clock.seconds)


class _State:
    """The lookup table's costs, what is held and what is free."""

    def __init__(self, instance, pinned):
        self._instance = instance
        links = instance.bandwidths
        by_base = np.argsort(instance.patch_base, kind='stable')
        self._base = instance.patch_base[by_base]
        self._target = instance.patch_target[by_base]
        sizes = instance.patch_sizes[by_base]
        # In bytes, as what is free; seconds are those of megabytes.
        self.patch_bytes = instances.to_bytes(sizes)
        self.template_bytes = instances.to_bytes(instance.sizes)
        # Seconds for each object to arrive at each host, by where it is.
        self._whole = [
            ways.fetch_seconds(instance.sizes[:, None], link)
            for link in (links.local, links.peer)
        ]
        apply_s = instance.patch_seconds[by_base][:, None]
        self._patch = [
            ways.fetch_seconds(sizes[:, None], link) + apply_s
            for link in (links.local, links.peer, links.repo)
        ]
        self._first = np.searchsorted(self._base,
                                      np.arange(instance.template_count + 1))
        self._held = np.zeros(self._whole[0].shape, dtype=bool)
        self._held_patch = np.zeros(self._patch[0].shape, dtype=bool)
        edge = {
            pair: e
            for e, pair in enumerate(
                zip(self._base.tolist(), self._target.tolist())
            )
        }
        for i, host in pinned.templates:
            self._held[i, host - 1] = True
        for i, j, host in pinned.patches:
            self._held_patch[edge[i, j], host - 1] = True
        self._free = bounds.capacity_left(instance, pinned)
        self._cost = cost.service_seconds(instance, pinned)

    @property
    def cost(self) -> float:
        """Cost of serving all requests by the lookup table."""
        return float((self._instance.rates * self._cost).sum())

    def placement(self) -> placements.Placement:
        """Return what is held as a placement."""
        return placements.Placement.of(
            ((int(i), int(k) + 1) for i, k in np.argwhere(self._held)),
            ((int(self._base[e]), int(self._target[e]), int(k) + 1) for e,
             k in np.argwhere(self._held_patch)),
        )

    def place_best(self) -> bool:
        """Run PickImageAndPatches and UpdateDataStructures; False if done."""
        promise = self._promise()
        fits = self._free > self.template_bytes[:, None]
        promise[self._held | ~fits] = 0.0
        order = np.argsort(-promise, axis=None, kind='stable')
        best, chosen = 0.0, None
        for flat in order:
            i, k = divmod(int(flat), promise.shape[1])
            if promise[i, k] <= 0 or promise[i, k] < best * (1 - 1e-12):
                break
            trial = self._pick_patches(i, k)
            if trial.benefit > best:
                best, chosen = trial.benefit, trial
        if chosen is None:
            return False
        self._cost[chosen.rows] = chosen.cost
        self._held[chosen.template, chosen.column] = True
        self._free = chosen.free
        for e, k in chosen.patches:
            self._held_patch[e, k] = True
        return True

    def _promise(self) -> np.ndarray:
        """Bound what each template at each host can save, shape (N, K).

        It takes every patch from the template to be on every host.
        """
        rates, now = self._instance.rates, self._cost
        saved = []
        for fetch in self._whole[:2]:
            part = rates * np.maximum(now - fetch, 0.0)
            built = fetch[self._base] + self._patch[0]
            gain = np.maximum(now[self._target] - built, 0.0)
            gain *= rates[self._target]
            np.add.at(part, self._base, gain)
            saved.append(part)
        local, peer = saved
        return peer.sum(axis=1, keepdims=True) - peer + local

    def _pick_patches(self, i, k) -> '_Trial':
        trial = _Trial(self, i, k)
        for q in range(len(self._free)):
            if q != k:
                trial.serve(q)
        return trial

    def edges_of(self, i) -> slice:
        """Return the positions of the patches from template i."""
        return slice(int(self._first[i]), int(self._first[i + 1]))


class _Trial:
    """PickPatches: template i on node k, then patches from it."""

    def __init__(self, state, i, k):
        self._rates = state._instance.rates
        self.template, self.column = i, k
        edges = state.edges_of(i)
        self._edges = edges
        self._sizes = state.patch_bytes[edges]
        self._patch = [times[edges] for times in state._patch]
        self._held = state._held_patch[edges].copy()
        self.free = state._free.copy()
        self.free[k] -= state.template_bytes[i]
        self.rows = np.concatenate(([i], state._target[edges]))
        self.patches = []
        old = state._cost[self.rows]
        self._base = np.where(state._held[i], state._whole[0][i],
                              state._whole[1][i])
        self._base[k] = state._whole[0][i, k]
        self.cost = old.copy()
        self.cost[0] = np.minimum(old[0], self._base)
        near = self._held.any(axis=1)
        for row in range(len(self._sizes)):
            self._refresh(row, near[row])
        self._weights = self._rates[self.rows]
        self._old = old

    @property
    def benefit(self) -> float:
        """Seconds saved over all requests."""
        return float((self._weights * (self._old - self.cost)).sum())

    def serve(self, q) -> None:
        """Run lines 31-43: a patch for each template requested at node q."""
        best = self._base[q] + self._patch[0][:, q]
        gains = (self.cost[1:, q] > best) & (self._weights[1:, q] > 0)
        for row in np.flatnonzero(gains).tolist():
            self._place(row, q)

    def _place(self, row, q) -> None:
        held = self._held[row]
        if held[q]:
            return
        room = self.free >= self._sizes[row]
        if room[q]:
            at = q
        elif held.any() or not room.any():
            return
        else:
            at = int(np.argmax(room))
            peer = self._base[q] + self._patch[1][row, q]
            if peer >= self.cost[1 + row, q]:
                return
        held[at] = True
        self.free[at] -= self._sizes[row]
        self.patches.append((self._edges.start + row, at))
        self._refresh(row, True)

    def _refresh(self, row, near) -> None:
        """Update one target's cost at every host from where its patch is."""
        far = self._patch[1 if near else 2][row]
        patch = np.where(self._held[row], self._patch[0][row], far)
        self.cost[1 + row] = np.minimum(self.cost[1 + row], self._base + patch)
