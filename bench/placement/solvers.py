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
"""The measurements of solvers."""

import collections.abc
import dataclasses
import json
import pathlib
import statistics
import sys

import numpy as np

from bench.harness import errors
from bench.harness import processes
from bench.harness import runs
from diffcache_openstack.placement import cost
from diffcache_openstack.placement import instances
from diffcache_openstack.placement import lookup
from diffcache_openstack.placement import solving
from diffcache_openstack.placement import workloads
from testing import cache_policies
from testing import rc2

_DATA = (pathlib.Path(__file__).resolve().parents[2]
         / 'tests/unit/placement/data')
# Requests of each placement that are recomputed.
_SAMPLE = 200


def _check(case, solution, hops: int) -> None:
    """Compare what a solver claims with other ways to compute it."""
    judged = cost.evaluate(case, solution.placement, hops)
    if not judged.feasible:
        raise errors.BenchError(f'{case.name}: {judged.errors[0]}')
    if abs(judged.total_cost_s - solution.cost_s) > 1e-6 * solution.cost_s:
        raise errors.BenchError(f'{case.name}: cost is not as evaluated')
    seconds = cost.service_seconds(case, solution.placement, hops)
    table = lookup.LookupTable(case, solution.placement)
    cells = np.argwhere(case.rates > 0)
    chosen = np.random.default_rng(1).permutation(len(cells))[:_SAMPLE]
    for j, column in cells[chosen].tolist():
        found = table.ways(j, column + 1, hops, limit=1)[0].seconds
        if abs(found - seconds[j, column]) > 1e-9 * found:
            raise errors.BenchError(
                f'{case.name}: template {j} at host {column + 1} costs'
                f' {found}, not {seconds[j, column]}')


def _solve(run: runs.Run, name: str, case, **options) -> dict:
    """Solve, check what the solver claims, and return its figures."""
    def solve() -> dict:
        with processes.spending() as spent:
            solution = solving.load(name).solve(case, **options)
        _check(case, solution, options.get('hops', 1))
        return {'cost': solution.cost_s, 'gap': solution.gap,
                'proved': bool(solution.proved_optimal), 'cpu_s': spent.cpu_s}
    return run.keep(' '.join([name, case.name, *(
        f'{key}={value}' for key, value in options.items())]), solve)


def _report(run: runs.Run, rows: collections.abc.Iterable[tuple]) -> None:
    """Add a table of what was reached, what is wanted, and whether it is."""
    run.table(run.case.about, ('What', 'Reached', 'Wanted', 'Met'), [
        (*row, 'yes' if met else 'no') for *row, met in rows])


def _small(seed: int):
    """Return a random instance with at most 10 templates and 4 hosts."""
    rng = np.random.default_rng(seed)
    templates, hosts = int(rng.integers(4, 11)), int(rng.integers(1, 5))
    sizes = rng.integers(6000, 50000, templates)
    return instances.from_dict({
        'name': f'small-{seed}',
        'sizes': sizes.tolist(),
        'patch_sizes': [
            [i, j, size, float(workloads.patch_seconds(size))]
            for i in range(templates)
            for j in range(templates)
            if i != j and rng.random() < 0.6
            for size in [int(rng.lognormal(6.5, 1.3)) + 5]
        ],
        'capacities': rng.integers(8000, 90000, hosts).tolist(),
        'rates': (rng.integers(0, 60, (templates, hosts)) + 1).tolist(),
        'bandwidths': {'local': 400, 'peer': 200, 'repo': 10},
    })


def proofs(run: runs.Run) -> None:
    """Have small instances proved."""
    paths = sorted(_DATA.glob('*.json'))
    seeds = run.options.seeds
    cases = [instances.load(str(path)) for path in paths]
    cases += [workloads.synthetic(10, hosts, capacity, seed, zipf)
              for hosts in (2, 3, 4)
              for capacity in (45e3, 60e3, 100e3, 150e3)
              for zipf in (0.0, 1.0) for seed in range(seeds)]
    cases += [_small(seed) for seed in range(12 * seeds)]
    if run.quick:
        cases = [_small(0)]
    rows = []
    for name in ('ilp', 'auto'):
        found = [_solve(run, name, dataclasses.replace(
            case, name=f'{number}: {case.name}'), time_limit=120)
            for number, case in enumerate(cases)]
        unproved = sum(not one['proved'] for one in found)
        times = [one['cpu_s'] for one in found]
        median = statistics.median(times)
        rows += [(f'{name}, {len(cases)} instances: not proved', unproved,
                  '0', not unproved),
                 (f'{name}, median CPU s', f'{median:.2f}', '< 1',
                  median < 1),
                 (f'{name}, slowest CPU s', f'{max(times):.2f}', '<= 20',
                  max(times) <= 20)]
    _report(run, rows)


def synthetic(run: runs.Run) -> None:
    """Compare two seconds of ``auto`` with the best known."""
    worst, slowest = 0.0, 0.0
    for hosts in (range(5, 6) if run.quick else range(5, 11)):
        for capacity in (45e3, 100e3, 150e3):
            for seed in range(run.options.seeds):
                case = dataclasses.replace(
                    workloads.synthetic(10, hosts, capacity, seed),
                    name=f'{hosts} hosts of {capacity:g}, seed {seed}')
                quick = _solve(run, 'auto', case, time_limit=2)
                best = _solve(run, 'ilp', case, time_limit=run.options.best)
                slowest = max(slowest, quick['cpu_s'])
                worst = max(worst, quick['cost'] / min(
                    best['cost'], quick['cost']) - 1)
    _report(run, [
        ('auto, worst above best known', f'{worst:.3%}', '<= 1% in 2 s',
         worst <= 0.01),
        ('slowest CPU s', f'{slowest:.2f}', '<= 2', slowest <= 2)])


def chains(run: runs.Run) -> None:
    """Allow several patches in a row."""
    rows = []
    for name in ('adv_chain_s0', 'rand_s1_N5_K4', 'rand_s3_N8_K2'):
        case = dataclasses.replace(instances.load(str(
            _DATA / f'{name}.json')), name=name)
        one = _solve(run, 'ilp', case, time_limit=60)
        for hops in (2, case.template_count):
            many = _solve(run, 'ilp', case, hops=hops, time_limit=60)
            auto = _solve(run, 'auto', case, hops=hops)
            rows.append((
                f'ilp, {name}, hops {hops}: cost, and auto above it',
                f'{many["cost"]:.1f} +{auto["cost"] / many["cost"] - 1:.2%}',
                f'{one["cost"] / many["cost"]:.1f}x cheaper',
                many['proved']))
    _report(run, rows)


def traces(run: runs.Run) -> None:
    """Replay request traces by plans, and by cache policies."""
    def replay(kind: str, site, seed: int) -> dict[str, float]:
        found = cache_policies.compare(cache_policies.Replay(
            site, rc2.requests(kind, site, seed=seed), 86400.0,
            2 * 86400.0))
        return {result.name: result.mean_s for result in found}

    rows = []
    for seed in range(run.options.seeds):
        site = rc2.site(seed=seed)
        for kind in rc2.REQUEST_KINDS[:1 if run.quick else None]:
            found = run.keep(f'{kind} {seed}', lambda kind=kind, site=site,
                             seed=seed: replay(kind, site, seed))
            (_, ours), (_, whole), *others = found.items()
            name, best = min(others, key=lambda each: each[1])
            saved = 1 - ours / whole
            rows += [(f'planned, {kind} {seed}: mean s, best policy',
                      f'{ours:.0f} {name} {best:.0f}', 'no worse',
                      ours <= best),
                     (f'{kind} {seed}: below templates only', f'{saved:.1%}',
                      '>= 90%', saved >= 0.9)]
    _report(run, rows)


def scale(run: runs.Run) -> None:
    """Solve instances of the published trace's shape."""
    rows = []
    for hosts in run.options.hosts:
        wanted = 0.010 if hosts == 50 else 0.015
        for seed in range(run.options.seeds):
            case = dataclasses.replace(
                rc2.trace(hosts, seed=seed),
                name=f'trace of {hosts} hosts, seed {seed}')
            found = _solve(run, 'auto', case,
                           time_limit=2 if run.quick else 60)
            rows.append((f'auto, {case.name}: gap, CPU s',
                         f'{found["gap"]:.2%} {found["cpu_s"]:.1f}',
                         f'<= {wanted:.1%} in 60 s', found['gap'] <= wanted))
    _report(run, rows)


_HUGE = """
import json, sys, time
from diffcache_openstack.placement import solving
from testing import rc2
seconds, templates, hosts = map(int, sys.argv[1:])
shape = rc2.TraceShape(templates, max(1, templates * 1268 // 10000),
                       requests=templates * 10, top=150)
case = rc2.trace(hosts, shape=shape)
begin = time.process_time()
found = solving.load('auto').solve(case, time_limit=seconds)
print(json.dumps([found.gap, found.seconds, time.process_time() - begin]))
"""


def huge(run: runs.Run) -> None:
    """Solve a large instance, in a process of its own."""
    def solve() -> dict:
        options = run.options
        spent = processes.measured([
            sys.executable, '-c', _HUGE, options.seconds, options.templates,
            options.hosts])
        gap, wall, cpu = json.loads(spent.output)
        return {'gap': gap, 'wall': wall, 'cpu': cpu,
                'gib': spent.peak_mb / 1024}
    found = run.keep('auto', solve)
    _report(run, [
        ('gap', f'{found["gap"]:.2%}', '<= 3%', found['gap'] <= 0.03),
        ('wall s, CPU s', f'{found["wall"]:.0f} {found["cpu"]:.0f}',
         '<= 300', found['wall'] <= 300),
        ('peak memory GiB', f'{found["gib"]:.2f}', '< 8', found['gib'] < 8)])
