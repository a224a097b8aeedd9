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
"""The tables of the paper on differentiated SSD caching, by simulation.

Beside what is simulated is what the paper prints, and what formulas say
(model.py): the hits of an LRU cache, and those if the blocks with most
requests are cached, which no cache exceeds. Hits of a steady state are those
in the second half of a trace.
"""

import dataclasses
import typing

import numpy

from bench.harness import errors
from bench.harness import runs
from bench.harness import tables
from bench.ssdcache import model
from bench.ssdcache import traces
from diffcache_openstack.ssdcache import curves
from diffcache_openstack.ssdcache import partition
from diffcache_openstack.ssdcache import simulation
from diffcache_openstack.ssdcache.sizing import base

# Blocks of 4 KiB.
SSD = 262144
FILE = 2621440
RUN = 131072
# Microseconds: flash and hard disk in the paper's table of memories.
HIT_US, MISS_US = 25, 5000
# Sizes are multiples of this many blocks.
STEP = 64
# Requests of the first container, in a half of a trace.
HALF = 2_000_000
PER_SECOND = 300
SIGMA = 50000
# Of the second container's requests to those of the first: the hits that the
# paper prints for the first follow from them.
RATES = {358.16: 0.6, 512.55: 1.2, 535.90: 1.5, 607.53: 2.0}
# What the paper prints, in percent: both containers in a partition each, both
# in a unified cache, and all hits of each.
PRINTED_RATES = {358.16: (78.26, 29.48, 68.19, 33.96, 53.87, 51.075),
                 512.55: (79.58, 29.46, 53.25, 34.41, 54.52, 43.83),
                 535.90: (79.54, 29.47, 48.06, 33.89, 54.50, 40.97),
                 607.53: (79.58, 28.89, 41.29, 34.15, 54.23, 37.72)}
PRINTED_SIGMAS = {10000: (80.18, None, 79.39, None, 80.18, 79.39),
                  50000: (79.62, 79.42, 78.18, 78.80, 79.52, 78.49),
                  150000: (79.59, 33.84, 66.02, 51.66, 56.71, 58.84),
                  250000: (79.44, 29.91, 65.87, 44.95, 54.67, 55.41),
                  500000: (79.36, 29.5, 58.47, 32.92, 54.43, 45.695)}
# Hits and evictions that the paper prints of two sequential runs, by blocks.
PRINTED_RUNS = {524288: ((0, 0), (131072, 0)),
                128000: ((0, 3072), (0, 131072))}
# Blocks of the first container in the paper's partitions: an LRU cache of
# this size has the hits that are printed.
FIRST = 161000
# Web server and random readers: unified, and in partitions.
PRINTED_WEB = {'web': (15.9, 86.94), 'reader 1': (12.75, 10.75),
               'reader 2': (12.32, 10.98), 'reader 3': (12.97, 10.60)}
WEB, READER = 179200, 524288
# The part of the web server that fits its partition.
WEB_SHARE = 0.8694
WORKING_SET = 142276
EPOCH_S = 120
EPOCHS = 10
RUN_HEAD = ('Cache', 'Run', 'Requests', 'Hits', 'Misses', 'Evictions',
            'Hits, paper', 'Evictions, paper')


def mean_ms(ratio: float) -> float:
    """Return the mean milliseconds of a request, of a hit ratio."""
    return (ratio * HIT_US + (1 - ratio) * MISS_US) / 1000


@dataclasses.dataclass
class Found:
    """Hits in the second half of a trace: of each volume, and of all.

    :ivar occupancy: of the whole trace
    """

    ratios: list[float]
    overall: float
    misses: int
    occupancy: list


class Pair:
    """A trace, and its first half.

    :param volumes: streams by the names of the volumes
    """

    def __init__(self, run: runs.Run, volumes: dict) -> None:
        self.names, requests = traces.merge(volumes)
        self.path, self._half = run.work / 'whole', run.work / 'half'
        traces.write(self.path, self.names, requests)
        traces.write(self._half, self.names, requests[:len(requests) // 2])

    def play(self, capacity: int, sizes: dict | None = None,
             **settings: typing.Any) -> Found:
        """Return what is found in the second half."""
        scenario = simulation.Scenario(
            capacity, sizes and list(sizes.items()),
            occupancy_us=EPOCH_S * 1_000_000, **settings)
        whole = simulation.simulate(self.path, scenario)
        half = simulation.simulate(self._half, scenario)

        def second(field: str, name: str | None = None) -> int:
            late, early = (document['volumes'][name] if name
                           else document['total']
                           for document in (whole, half))
            return late[field] - early[field]
        return Found(
            [second('hits', name) / second('references', name)
             for name in self.names],
            second('hits') / second('references'), second('misses'),
            whole['occupancy'])

    def dynamic(self, capacity: int) -> Found:
        """Return what is found with sizes that are decided on the way."""
        return self.play(capacity, policy='latency',
                         epoch_us=EPOCH_S * 1_000_000)

    def best_sizes(self, capacity: int) -> dict[str, int]:
        """Return the sizes with the fewest misses, proven by the policy.

        :raises BenchError: they are not proven
        """
        document = partition.partition(
            partition.Wishes().volumes(curves.read(
                self.path, curves.Analysis())), 'latency',
            base.Cache(capacity, STEP, HIT_US, MISS_US))
        if not document['optimal']:
            raise errors.BenchError('sizes are not proven to be the best')
        return document['sizes']


class Paper:
    """All tables, and series of charts by their titles."""

    def __init__(self, run: runs.Run) -> None:
        self.run = run
        self.generator = numpy.random.default_rng(run.options.seed)
        self.charts: dict[str, tuple[str, dict[str, list]]] = {}

    def small(self, blocks: float) -> int:
        """Return blocks, or requests, at the scale of the run."""
        return max(1, round(blocks / self.run.options.scale))

    def normal(self, deviation: int, rate: float = 1.0):
        """Return a stream over both halves, and its model."""
        count = int(2 * self.small(HALF) * rate)
        blocks, deviation = self.small(FILE), self.small(deviation)
        return (traces.Stream(traces.normal(self.generator, count, deviation,
                                            blocks), PER_SECOND * rate),
                model.normal(deviation, blocks, rate))

    def correctness(self) -> None:
        """Sequential reads, twice, with and without evictions."""
        rows, fields = [], ('references', 'hits', 'misses', 'evictions')
        for capacity, prints in PRINTED_RUNS.items():
            before = dict.fromkeys(fields, 0)
            for run, printed in enumerate(prints, 1):
                pair = Pair(self.run, {'c': [traces.Stream(
                    traces.sequence(run * RUN, RUN), 1000)]})
                counts = simulation.simulate(
                    pair.path, simulation.Scenario(capacity))['total']
                rows.append((capacity, run, *(
                    counts[field] - before[field] for field in fields),
                    *printed))
                before = counts
        self.run.table(f'Sequential reads of {RUN:,} blocks, twice', RUN_HEAD,
                       rows)

    def sizes(self) -> None:
        """Hits and latency over the size of the cache, for 768 MB."""
        blocks = self.small(196608)
        count = 10 * blocks
        patterns = {'uniform': traces.uniform(self.generator, count, blocks),
                    'zipf': traces.zipf(self.generator, count, blocks),
                    'sequence': traces.sequence(count, blocks)}
        found = {}
        for name, stream in patterns.items():
            pair = Pair(self.run, {'c': [traces.Stream(stream, 1000)]})
            found[name] = {size: pair.play(self.small(size << 8)).overall
                           for size in range(128, 1025, 128)}
        rows = []
        for size in range(128, 1025, 128):
            ratios = [each[size] for each in found.values()]
            [exact] = model.lru([model.uniform(blocks)],
                                self.small(size << 8))
            rows.append((size, *map(tables.percent, (ratios[0], exact,
                                                     *ratios[1:])),
                         *(f'{mean_ms(ratio):.2f}' for ratio in ratios)))
        self.run.table(
            'Hits in percent and mean latency in milliseconds, 768 MB, by the'
            ' size of the cache', (
                'Cache, MB', 'At random', 'Model', 'Zipf', 'In sequence',
                'ms at random', 'ms Zipf', 'ms in sequence'), rows)
        self.charts['Hits, 768 MB'] = ('%, by MB of the cache', {
            name: [(size, 100 * ratio) for size, ratio in each.items()]
            for name, each in found.items()})
        self.charts['Mean latency, 768 MB'] = ('ms, by MB of the cache', {
            name: [(size, mean_ms(ratio)) for size, ratio in each.items()]
            for name, each in found.items()})

    def two(self, deviation: int, rate: float) -> dict[str, typing.Any]:
        """Return what two containers have in all ways of sharing the SSD."""
        ssd, first = self.small(SSD), self.small(FIRST)
        (one, one_model), (two, two_model) = (
            self.normal(SIGMA), self.normal(deviation, rate))
        pair = Pair(self.run, {'C1': [one], 'C2': [two]})
        best = pair.best_sizes(ssd)
        return {
            'unified': pair.play(ssd), 'sizes': best,
            'paper': pair.play(ssd, {'C1': first, 'C2': ssd - first}),
            'best': pair.play(ssd, best), 'dynamic': pair.dynamic(ssd),
            # Of each container: the model, and the most that is possible.
            'model': {
                'unified': (model.lru([one_model, two_model], ssd),
                            model.best([two_model], ssd)[0]),
                'paper': ([model.lru([one_model], first)[0],
                           model.lru([two_model], ssd - first)[0]],
                          model.best([two_model], ssd - first)[0])}}

    def report_two(self, what: str, found: dict[float, dict],
                   printed: dict[float, tuple]) -> None:
        """Add the tables of two containers."""
        percent = tables.percent

        def paper(value: float, column: int) -> str:
            cell = printed[value][column]
            return '-' if cell is None else f'{cell:.1f}'
        # Columns of the paper: both containers, and all.
        for way, title, columns in (
                ('unified', 'unified', (2, 3, 5)),
                ('paper', f'{FIRST} blocks for C1, the rest for C2',
                 (0, 1, 4))):
            rows = []
            for value, row in found.items():
                hits, (expected, most) = row[way], row['model'][way]
                rows.append((
                    value, percent(hits.ratios[0]), percent(expected[0]),
                    paper(value, columns[0]), percent(hits.ratios[1]),
                    percent(expected[1]), percent(most),
                    paper(value, columns[1]), percent(hits.overall),
                    paper(value, columns[2])))
            self.run.table(f'{what}, {title}: hits in percent', (
                what, 'C1', 'Model', 'Paper', 'C2', 'Model', 'Most possible',
                'Paper', 'All', 'Paper'), rows)
        self.run.table(
            f'{what}: sizes with the fewest misses, and those found while it'
            ' runs', (what, 'C1, blocks', 'C1, %', 'C2, %', 'All, %',
                      'Misses of unified', 'Dynamic: C1, %', 'C2, %',
                      'All, %', 'Misses of best'), [
                (value, row['sizes']['C1'], *map(percent, row['best'].ratios),
                 percent(row['best'].overall),
                 f'{row["best"].misses / row["unified"].misses:.3f}',
                 *map(percent, row['dynamic'].ratios),
                 percent(row['dynamic'].overall),
                 f'{row["dynamic"].misses / row["best"].misses:.3f}')
                for value, row in found.items()])

    def chart_occupancy(self, title: str, found: Found) -> None:
        """Note the occupancy of both containers for a chart."""
        self.charts[title] = ('1000 blocks, by minutes', {
            name: [(time / 60, blocks[name] / 1000)
                   for time, blocks in found.occupancy]
            for name in ('C1', 'C2')})

    def rates(self) -> None:
        """Two containers, the second at four rates."""
        found = {iops: self.two(500000, rate) for iops, rate in RATES.items()}
        self.report_two('IOPS', found, PRINTED_RATES)
        for way in ('paper', 'unified'):
            self.chart_occupancy(f'Occupancy at 607.53 IOPS, {way}',
                                 found[607.53][way])

    def deviations(self) -> None:
        """Two containers, the second with five working sets."""
        found = {sigma: self.two(sigma, 1.0) for sigma in PRINTED_SIGMAS}
        self.report_two('Sigma', found, PRINTED_SIGMAS)
        for sigma, row in found.items():
            self.chart_occupancy(f'Occupancy, unified, sigma {sigma}',
                                 row['unified'])

    def web(self) -> None:
        """A web server against three random readers."""
        ssd, web, reader = map(self.small, (SSD, WEB, READER))
        blocks = {name: web if name == 'web' else reader
                  for name in PRINTED_WEB}
        pair = Pair(self.run, {name: [traces.Stream(traces.uniform(
            self.generator, 2 * self.small(HALF), size), PER_SECOND)]
            for name, size in blocks.items()})
        share = round(WEB_SHARE * web)
        sizes = {name: share if name == 'web' else (ssd - share) // 3
                 for name in blocks}
        found = [pair.play(ssd), pair.play(ssd, sizes),
                 pair.play(ssd, pair.best_sizes(ssd)), pair.dynamic(ssd)]
        expected = model.lru([model.uniform(size) for size in blocks.values()],
                             ssd)
        rows = []
        for number, name in enumerate(blocks):
            unified, paper, best, dynamic = (
                tables.percent(each.ratios[number]) for each in found)
            printed = PRINTED_WEB[name]
            rows.append((
                name, unified, tables.percent(expected[number]), printed[0],
                paper, tables.percent(sizes[name] / blocks[name]), printed[1],
                best, dynamic))
        unified, paper, best, dynamic = (
            tables.percent(each.overall) for each in found)
        self.run.table(
            'Web server and three random readers: hits in percent', (
                'Workload', 'Unified', 'Model', 'Paper', 'Partitions',
                'Model', 'Paper', 'Best sizes', 'Dynamic'),
            [*rows, ('all', unified, '', '', paper, '', '', best, dynamic)])

    def epochs(self) -> None:
        """The size that is predicted after each epoch."""
        blocks, wanted = self.small(FILE), self.small(WORKING_SET)
        deviation = self.small(SIGMA)
        count = model.requests_for(model.normal(deviation, blocks), wanted)
        rows = []
        for number in range(1, EPOCHS + 1):
            pair = Pair(self.run, {'c': [traces.Stream(traces.normal(
                self.generator, count, deviation, blocks), count / EPOCH_S)]})
            curve = curves.read(pair.path, curves.Analysis())['c'].curve
            rows.append((number, count, curve.distinct,
                         f'{100 * curve.distinct / wanted - 100:+.2f} %',
                         curve.size_for(curve.most_hits),
                         tables.percent(curve.most_hits / count)))
        self.run.table(
            f'Working set of {wanted} blocks: what each epoch of {EPOCH_S} s'
            ' predicts', ('Epoch', 'Requests', 'Different blocks', 'Error',
                          'Size with all hits', 'These hits, %'), rows)
        self.charts['Predicted size'] = ('1000 blocks, by seconds', {
            'predicted': [(row[0] * EPOCH_S, row[2] / 1000) for row in rows],
            'working set': [(row[0] * EPOCH_S, wanted / 1000)
                            for row in rows]})

    def plot(self, axes: list) -> None:
        """Plot all charts."""
        # The library takes a while.
        from bench.harness import charts
        for axis, (title, (unit, series)) in zip(axes, self.charts.items()):
            charts.lines(axis, title, unit, series)


def paper(run: runs.Run) -> None:
    """Simulate all tables."""
    found = Paper(run)
    for part in (found.correctness, found.sizes, found.rates,
                 found.deviations, found.web, found.epochs):
        run.say(part.__doc__.splitlines()[0])
        part()
    run.chart(found.plot, 5, 2, 'png')
