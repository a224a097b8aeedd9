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
"""Five volumes of several tenants share an SSD, by simulation.

A database with reads and writes, a web server, a scan that reads all of its
volume in order again and again, a log that is only written, and a volume that
is nearly idle. In the middle, the database's working set becomes another,
smaller one, and the web server's grows. The best static sizes are those with
the fewest misses in the whole trace, in hindsight.
"""

import dataclasses

import numpy

from bench.harness import errors
from bench.harness import runs
from bench.harness import tables
from bench.ssdcache import traces
from diffcache_openstack.ssdcache import curves
from diffcache_openstack.ssdcache import partition
from diffcache_openstack.ssdcache import simulation
from diffcache_openstack.ssdcache.sizing import base

CAPACITY = 131072
HALF_S = 1200
EPOCH_S = 120
# Of short epochs, and of the shortest that ends early.
SHORT_EPOCH_S = 10
CUTOFF = 1 << 20
STEP = 64
# Sizes have followed a shift when they differ by less from those at the end.
NEAR = 0.1


def streams(generator: numpy.random.Generator, scale: int) -> dict:
    """Return the requests of each volume."""
    def small(blocks: int) -> int:
        return max(1, blocks // scale)

    def zipf(per_second: int, blocks: int, half: int) -> traces.Stream:
        count = int(per_second * HALF_S / scale)
        return traces.Stream(traces.zipf(generator, count, small(blocks)),
                             per_second / scale, half * HALF_S)

    def normal(per_second: int, deviation: int, half: int,
               writes: bool = False) -> traces.Stream:
        count = int(per_second * HALF_S / scale)
        # The working sets of the halves are in different places.
        blocks = traces.normal(generator, count, small(deviation),
                               small(400000)) + half * small(400000)
        return traces.Stream(blocks, per_second / scale, half * HALF_S,
                             writes)

    def whole(per_second: int, blocks: int) -> tuple[int, int]:
        return int(2 * HALF_S * per_second / scale), small(blocks)
    return {
        'database': [normal(1200, 25000, 0), normal(300, 25000, 0, True),
                     normal(800, 10000, 1), normal(200, 10000, 1, True)],
        'web': [zipf(800, 80000, 0), zipf(1500, 250000, 1)],
        'scan': [traces.Stream(traces.sequence(*whole(1000, 1000000)),
                               1000 / scale)],
        'log': [traces.Stream(traces.sequence(*whole(250, 2000000)),
                              250 / scale, writes=True)],
        'idle': [traces.Stream(traces.uniform(generator, *whole(5, 20000)),
                               5 / scale)],
    }


def scenarios(capacity: int, sizes: dict[str, int],
              ) -> dict[str, simulation.Scenario]:
    """Return ways of sharing the cache, by their names.

    :param sizes: the best static ones
    """
    plain = simulation.Scenario(
        capacity, occupancy_us=EPOCH_S * 1_000_000)
    dynamic = dataclasses.replace(
        plain, policy='latency', epoch_us=EPOCH_S * 1_000_000)
    found = {'Unified': plain, 'Best static': dataclasses.replace(
        plain, sizes=list(sizes.items())), 'Dynamic': dynamic}
    found |= {f'{name}, 2nd hit': dataclasses.replace(
        scenario, admission=2) for name, scenario in found.items()}
    return found | {
        'Dynamic, cut-off': dataclasses.replace(dynamic, sequential=CUTOFF),
        'Dynamic, short epochs': dataclasses.replace(
            dynamic, epoch_us=SHORT_EPOCH_S * 1_000_000),
        'Dynamic, early ends': dataclasses.replace(
            dynamic, shortest_us=SHORT_EPOCH_S * 1_000_000)}


def epochs_to_follow(document: dict) -> int:
    """Return after how many epochs behind the shift sizes are near the last.

    Counted from the first epoch that ends behind it.
    """
    last = document['sizes'][-1][1]
    near = NEAR * document['capacity']
    followed = None
    for time, sizes in document['sizes']:
        distance = sum(abs(sizes[name] - last[name]) for name in last) / 2
        if distance >= near:
            followed = None
        elif followed is None:
            followed = time
    return max(0, round((followed - HALF_S) / EPOCH_S))


def add_tables(run: runs.Run, found: dict[str, dict], sizes: dict[str, int],
               ) -> None:
    """Add tables of all ways of sharing the cache.

    :param found: results by the names of the ways
    :param sizes: the best static ones
    """
    run.table('Hits of each volume in percent', ('Volume', *found), [
        (name, *(tables.percent((document['volumes'] | {
            'all': document['total']})[name]['hit_ratio'])
            for document in found.values()))
        for name in (*found['Unified']['volumes'], 'all')])
    unified, static = (found[name]['total']['misses']
                       for name in ('Unified', 'Best static'))
    rows = []
    for name, document in found.items():
        total = document['total']
        before = found[name.partition(',')[0]]['total']
        rows.append((
            name, total['misses'], f'{total["misses"] / unified:.3f}',
            f'{total["misses"] / static:.3f}', total['written'],
            f'{total["written"] / before["written"]:.3f}',
            f'{100 * (before["hit_ratio"] - total["hit_ratio"]):.2f}'))
    run.table('Misses, and blocks written to the SSD', (
        'Cache', 'Misses', 'Of unified', 'Of best static', 'Written',
        'Of first hit', 'Hits lost, points'), rows)
    follow = epochs_to_follow(found['Dynamic'])
    run.table('Best static sizes in blocks, and the last dynamic ones, which'
              f' followed the shift after {follow} epochs', (
                  'Volume', 'Best static', 'Dynamic'), [
                      (name, size, found['Dynamic']['sizes'][-1][1][name])
                      for name, size in sizes.items()])


def mix(run: runs.Run) -> None:
    """Simulate all ways of sharing the cache.

    :raises BenchError: the best static sizes are not proven
    """
    capacity, path = CAPACITY // run.options.scale, run.work / 'trace'
    traces.write(path, *traces.merge(streams(numpy.random.default_rng(
        run.options.seed), run.options.scale)))
    best = partition.partition(
        partition.Wishes().volumes(curves.read(path, curves.Analysis())),
        'latency', base.Cache(capacity, STEP))
    if not best['optimal']:
        raise errors.BenchError('sizes are not proven to be the best')
    found = {name: run.keep(name, lambda scenario=scenario:
                            simulation.simulate(path, scenario))
             for name, scenario in scenarios(capacity, best['sizes']).items()}
    add_tables(run, found, best['sizes'])

    def plot(axes: list) -> None:
        from bench.harness import charts
        for axis, name in zip(axes, ('Unified', 'Dynamic')):
            rows = found[name]['occupancy']
            charts.lines(axis, f'Occupancy, {name.lower()}', '1000 blocks', {
                volume: [(time / 60, blocks[volume] / 1000)
                         for time, blocks in rows]
                for volume in found[name]['volumes']}, xlabel='minutes')
            axis.axvline(HALF_S / 60, color='k', lw=0.6)
    run.chart(plot, columns=2)
