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
"""How fast curves are found, and how far samples are off.

Traces are made, in the binary form: references at random over all blocks,
which is the worst case for caches of the processor; by Zipf's law; passes in
sequence; and all of them as volumes of one trace. Reading the trace alone is
the limit of any method.
"""

import json
import pathlib

import numpy

from bench.harness import processes
from bench.harness import runs
from bench.ssdcache import traces

SIZES = 100
METHODS = {'exact': (), 'shards 0.01': ('--rate', '0.01'),
           'shards 8192': ('--samples', '8192')}


def write(path: pathlib.Path, patterns: list[str], count: int, blocks: int,
          ) -> None:
    """Write a trace with a volume for each of some patterns."""
    generator = numpy.random.default_rng(1)
    makers = {
        'random': lambda: traces.uniform(generator, count // len(patterns),
                                         blocks),
        'zipf': lambda: traces.zipf(generator, count // len(patterns), blocks),
        'sequence': lambda: traces.sequence(count // len(patterns), blocks)}
    traces.write(path, *traces.merge({
        name: [traces.Stream(makers[name](), 1000)] for name in patterns}))


def read(path: pathlib.Path) -> dict[str, float]:
    """Return what reading a file takes."""
    with processes.spending() as spent, open(path, 'rb', 0) as source:
        while source.read(1 << 20):
            pass
    return spent.figures()


def error(found: dict, exact: dict) -> float:
    """Return the mean difference of hit ratios, in percent."""
    differences = [
        abs(hits - other) / volume['references']
        for name, volume in exact['volumes'].items()
        for (_size, hits), (_same, other) in zip(
            found['volumes'][name]['hits'], volume['hits'])]
    return 100 * sum(differences) / len(differences)


def measure(path: pathlib.Path, blocks: int, count: int) -> list[list]:
    """Return a row for each method."""
    step = max(1, blocks // SIZES)
    sizes = ','.join(str(step * part) for part in range(1, SIZES + 1))
    wall = max(read(path)['wall_s'], 1e-3)
    rows, exact = [['reading', f'{count / wall / 1e6:.1f}', '', '', '']], None
    for name, words in METHODS.items():
        spent = processes.measured(processes.own(
            'diffcache', 'trace', 'curve', path, '-f', 'json', '--sizes',
            sizes, '--method', name.split()[0], *words))
        found = json.loads(spent.output)
        exact = exact or found
        rows.append([name, f'{found["references_per_second"] / 1e6:.1f}',
                     f'{spent.cpu_s:.1f}',
                     f'{found["peak_rss_bytes"] / 1e6:.0f}',
                     f'{error(found, exact):.2f}'])
    return rows


def curves(run: runs.Run) -> None:
    """Make each trace, and measure it."""
    options, path, rows = run.options, run.work / 'trace', []
    for patterns in (['random'], ['zipf'], ['sequence'],
                     ['random', 'zipf', 'sequence']):
        write(path, patterns, options.references, options.blocks)
        name = ', '.join(patterns)
        rows += [(name, *row) for row in run.keep(name, lambda: measure(
            path, options.blocks, options.references))]
    run.table(f'{options.references} references to {options.blocks} blocks', (
        'References', 'Method', 'Millions/s', 'CPU s', 'MB',
        'Mean error of the hit ratio, %'), rows)
