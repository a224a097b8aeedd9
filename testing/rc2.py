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
"""Instances and requests of the shape of the RC2 trace, drawn from seeds."""

import dataclasses

import numpy as np

from diffcache_openstack.placement import demand
from diffcache_openstack.placement import instances
from diffcache_openstack.placement import workloads


@dataclasses.dataclass(frozen=True)
class TraceShape:
    """Figures of a year's requests at IBM's research cloud (section I-A).

    :param depth: mean over templates of the depth in their tree. Trees of
        1088/138 templates cannot be that deep on average themselves.
    :param patch_mb: mean size of the patches that exist
    """

    templates: int = 1088
    trees: int = 138
    template_mb: float = 49000.0
    patch_mb: float = 350.0
    requests: int = 10211
    top: int = 15
    top_share: float = 0.26
    depth: float = 14.55


RC2 = TraceShape()


def trace(hosts: int, capacity_mb: float = 150000.0, shape: TraceShape = RC2,
          seed: int = 0, reach: int | None = None) -> instances.Instance:
    """Build an instance of the trace's shape.

    Templates of a tree differ from their parents by a step; a patch between
    two templates of a tree grows with the number of steps between them.

    :param reach: steps in the tree a patch may span; None lets every pair
        of a tree have one, 1 gives patches between parent and child only
    """
    rng = np.random.default_rng(seed)
    parent, depth, tree = _forest(shape, rng)
    sizes = _tree_sizes(shape, parent, tree, rng)
    base, target, steps = _pairs(parent, depth, tree, reach)
    patches = _patch_sizes(shape, sizes, base, target, steps, rng)
    popularity = _popularity(shape, tree, rng)
    asked = rng.choice(shape.templates, shape.requests, p=popularity)
    rates = np.zeros((shape.templates, hosts))
    np.add.at(rates, (asked, rng.integers(0, hosts, len(asked))), 1.0)
    return instances.Instance(
        sizes=sizes,
        patch_base=base,
        patch_target=target,
        patch_sizes=patches,
        patch_seconds=workloads.patch_seconds(patches),
        capacities=np.full(hosts, float(capacity_mb)),
        rates=rates,
        bandwidths=workloads.paper_links(hosts),
        name=f'trace_N{shape.templates}_K{hosts}_s{seed}',
        meta={'tree': tree.tolist(), 'mean_depth': float(depth.mean()),
              'top_share': _top_share(rates, shape.top)},
    )


def _top_share(rates: np.ndarray, top: int) -> float:
    per_template = np.sort(rates.sum(axis=1))[::-1]
    return float(per_template[:top].sum() / per_template.sum())


def _forest(shape, rng):
    """Draw parents, depths and tree numbers, parents before children.

    Tree sizes are heavy-tailed up to ``largest`` times the typical one.
    Within a tree a child's parent is one of the latest ``window`` templates:
    a window of one makes a chain. Both are those whose mean depth comes
    closest to the shape's.
    """
    weights = rng.pareto(1.0, shape.trees) + 0.1
    spare = shape.templates - shape.trees
    draws = rng.random(shape.templates)
    grown = []
    for largest in (12.0, 16.0, 24.0, 36.0, 60.0):
        capped = np.minimum(weights, largest)
        shares = capped / capped.sum() * spare
        counts = 1 + np.floor(shares).astype(int)
        counts[: shape.templates - counts.sum()] += 1
        for window in (1, 2, 3, 4, 6, 8, 12, 16):
            parent, depth, tree = _grow(counts, draws, window)
            error = abs(depth.mean() - shape.depth)
            grown.append((error, parent, depth, tree))
    return min(grown, key=lambda each: each[0])[1:]


def _grow(counts, draws, window):
    parent = np.full(counts.sum(), -1)
    depth = np.zeros(counts.sum(), dtype=int)
    tree = np.repeat(np.arange(len(counts)), counts)
    first = np.concatenate(([0], np.cumsum(counts)))[tree]
    for n in range(len(parent)):
        behind = min(window, n - first[n])
        if behind:
            parent[n] = n - 1 - int(draws[n] * behind)
            depth[n] = depth[parent[n]] + 1
    return parent, depth, tree


def _tree_sizes(shape, parent, tree, rng):
    """Draw sizes, alike within a tree and growing slowly."""
    roots = rng.lognormal(np.log(shape.template_mb), 0.35, shape.trees)
    sizes = roots[tree]
    growth = rng.exponential(0.004, len(sizes))
    for n in np.flatnonzero(parent >= 0):
        sizes[n] = sizes[parent[n]] * (1 + growth[n])
    sizes = np.minimum(sizes * shape.template_mb / sizes.mean(), 140000.0)
    return np.round(sizes)


def _pairs(parent, depth, tree, reach):
    """List a tree's ordered pairs within ``reach`` steps, and the steps."""
    limit = len(parent) if reach is None else reach
    bases, targets, steps = [], [], []
    for number in np.unique(tree):
        members = np.flatnonzero(tree == number)
        apart = _distances(parent, members)
        base, target = np.nonzero((apart > 0) & (apart <= limit))
        bases.append(members[base])
        targets.append(members[target])
        steps.append(apart[base, target])
    return (np.concatenate(bases), np.concatenate(targets),
            np.concatenate(steps))


def _distances(parent, members):
    """Count the steps between templates of one tree, numbered in a row."""
    first = members[0]
    apart = np.zeros((len(members), len(members)), dtype=int)
    for n in range(1, len(members)):
        above = parent[first + n] - first
        apart[n, :n] = apart[above, :n] + 1
        apart[:n, n] = apart[n, :n]
    return apart


def _patch_sizes(shape, sizes, base, target, steps, rng):
    step = np.sqrt(steps) * rng.lognormal(0.0, 0.5, len(steps))
    grown = np.maximum(sizes[target] - sizes[base], 0.0)
    raw = step * (1.0 + grown / max(grown.mean(), 1.0)) if len(steps) else step
    if not len(raw):
        return raw
    return np.maximum(np.round(raw * shape.patch_mb / raw.mean()), 1.0)


def _popularity(shape, tree, rng):
    """Draw probabilities whose ``top`` largest sum to ``top_share``."""
    appeal = rng.permutation(shape.trees)[tree].astype(float)
    noise = rng.permutation(shape.templates).astype(float)
    order = np.argsort(
        np.argsort(noise) + 0.5 * shape.templates / shape.trees * appeal
    )
    ranks = np.empty(shape.templates)
    ranks[order] = np.arange(1, shape.templates + 1)
    low, high = 0.0, 3.0
    for _ in range(50):
        middle = (low + high) / 2
        weights = ranks**-middle
        share = np.sort(weights)[::-1][: shape.top].sum() / weights.sum()
        low, high = (middle, high) if share < shape.top_share else (
            low, middle)
    return weights / weights.sum()


def site(templates: int = 48, trees: int = 6, hosts: int = 4,
         capacity_mb: float = 130000.0, seed: int = 0) -> instances.Instance:
    """Build a small site of a few image families, for request traces.

    Template and patch sizes are the trace's; its rates are one each.
    """
    shape = TraceShape(templates=templates, trees=trees, requests=templates,
                       depth=3, top=3)
    made = trace(hosts, capacity_mb, shape, seed)
    return dataclasses.replace(made, rates=np.ones((templates, hosts)),
                               name=f'site_s{seed}')


REQUEST_KINDS = ('steady', 'drifting', 'bursty', 'growing')


def requests(kind: str, instance: instances.Instance, count: int = 1500,
             days: float = 10.0, seed: int = 0) -> tuple[demand.Arrival, ...]:
    """Draw a request trace over an instance's templates and hosts.

    steady
        popularity (Zipf, exponent 0.8) never changes
    drifting
        the order of popularity turns over once during the trace
    bursty
        for hours at a time one template makes up half of all requests
    growing
        templates appear over time, and new ones are requested most
    """
    rng = np.random.default_rng(seed)
    total = instance.template_count
    law = 1.0 / np.arange(1, total + 1) ** 0.8
    order = rng.permutation(total)
    times = np.sort(rng.random(count)) * days * 86400.0
    hot = rng.integers(0, total, int(days * 4) + 1)
    made = []
    for time in times.tolist():
        part = time / (days * 86400.0)
        template = int(order[_rank(kind, rng, law, part)])
        burst = int(time // 21600)
        if kind == 'bursty' and burst % 3 == 0 and rng.random() < 0.5:
            template = int(hot[burst])
        host = int(rng.integers(1, instance.host_count + 1))
        made.append(demand.Arrival(time, template, host))
    return tuple(made)


def _rank(kind, rng, law, part) -> int:
    """Draw one request's template: its rank by popularity."""
    total = len(law)
    if kind == 'growing':
        known = max(2, int(total * (0.4 + 0.6 * part)))
        age = rng.choice(known, p=law[:known] / law[:known].sum())
        return known - 1 - int(age)
    rank = int(rng.choice(total, p=law / law.sum()))
    if kind == 'drifting':
        rank = (rank + int(part * total)) % total
    return rank
