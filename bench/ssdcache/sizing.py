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
"""CPU time and memory of finding the best sizes of volumes.

Eight volumes share caches of several sizes, with exact curves in steps of a
block and of 64 blocks. Then hosts decide at the end of an epoch, by curves of
samples as an agent gets them. Both are those of a process of its own for each
row, memory above what the curves take.
"""

import collections.abc
import ctypes
import functools
import json
import os
import pathlib
import re
import tempfile
import time

import numpy

from bench.harness import runs
from bench.ssdcache import traces
from diffcache_openstack.ssdcache import curves
from diffcache_openstack.ssdcache import epochs
from diffcache_openstack.ssdcache.sizing import base

VOLUMES = 8
STEPS = (1, 64)
TURNS = 40
# Blocks of a host's cache for each of its volumes.
HOST_BLOCKS = 16384
# Requests to a volume of a host in an epoch, in the mean.
HOST_REFERENCES = 100000


class Loads:
    """Makes the blocks that a volume requests, one after the other."""

    def __init__(self, generator: numpy.random.Generator) -> None:
        self._generator = generator

    def normal(self, count: int, blocks: int) -> numpy.ndarray:
        """Return blocks of a normal distribution that are mostly among some.

        :param blocks: four standard deviations
        """
        return traces.normal(self._generator, count, blocks / 4, 4 * blocks)

    def zipf(self, count: int, blocks: int) -> numpy.ndarray:
        """Return blocks by Zipf's law."""
        return traces.zipf(self._generator, count, blocks)

    def turns(self, count: int, blocks: int) -> numpy.ndarray:
        """Return blocks of two working sets, in turns of 45 seconds."""
        return numpy.concatenate([
            self.normal(count // TURNS, blocks // 2) + 4 * blocks * (turn % 2)
            for turn in range(TURNS)])

    def loop(self, count: int, blocks: int) -> numpy.ndarray:
        """Return blocks in sequence, again and again."""
        return traces.sequence(count, blocks)

    def stairs(self, count: int, blocks: int) -> numpy.ndarray:
        """Return blocks of four loops, each over more blocks than the last."""
        kinds = self._generator.integers(0, 4, count)
        found = numpy.empty(count, dtype=numpy.int64)
        for kind in range(4):
            chosen = kinds == kind
            found[chosen] = kind * 2 * blocks + traces.sequence(
                numpy.count_nonzero(chosen), (blocks // 16) << kind)
        return found

    def mixed(self, count: int, blocks: int) -> numpy.ndarray:
        """Return blocks of one of the other kinds, by chance."""
        kinds = (self.normal, self.zipf, self.turns, self.loop, self.stairs)
        return kinds[self._generator.integers(len(kinds))](count, blocks)


KINDS = {
    'Normal': Loads.normal, "Zipf's law": Loads.zipf,
    'Two working sets in turns of 45 s': Loads.turns,
    'Loops': Loads.loop, 'Four loops each': Loads.stairs,
    'All of these': Loads.mixed,
}


def curve(blocks: numpy.ndarray, analysis: curves.Analysis):
    """Return the curve of a volume with some requests."""
    with tempfile.NamedTemporaryFile(prefix='ssdcache-sizing-') as trace:
        traces.write(trace.name, *traces.merge({
            'volume': [traces.Stream(blocks, 1000)]}))
        return curves.read(trace.name, analysis)['volume'].curve


def volumes(kind: collections.abc.Callable, count: int, capacity: int,
            references: int, analysis: curves.Analysis, seed: int,
            ) -> list[base.Volume]:
    """Return volumes that have a cache of half of what they would use.

    :param kind: a method of :class:`Loads`
    :param references: to each, from a half to three halves of these
    """
    generator = numpy.random.default_rng(seed)
    loads, found = Loads(generator), []
    for number in range(count):
        blocks = max(64, int(2 * capacity / count
                             * generator.uniform(0.5, 1.5)))
        requests = int(references * generator.uniform(0.5, 1.5))
        found.append(base.Volume(f'v{number}', curve(
            kind(loads, requests, blocks), analysis)))
    return found


def points(found: list[base.Volume]) -> int:
    """Return the number of sizes at which hits become more."""
    return sum(len(each.curve.thinned(1 << 40)) for each in found)


def measured(function: collections.abc.Callable) -> dict:
    """Return what a function returns, and what that took, in a process."""
    # What was freed would be used again, and not be counted.
    ctypes.CDLL(None).malloc_trim(0)
    receiver, sender = os.pipe()
    child = os.fork()
    if not child:
        before, started = memory('VmRSS'), time.process_time()
        result = function()
        seconds = time.process_time() - started
        with open(sender, 'w') as output:
            json.dump({'result': result, 'cpu_s': seconds,
                       'bytes': memory('VmHWM') - before}, output)
        os._exit(0)
    os.close(sender)
    with open(receiver) as source:
        text = source.read()
    os.waitpid(child, 0)
    return json.loads(text)


def memory(field: str) -> int:
    """Return a field of the memory of this process, in bytes."""
    status = pathlib.Path('/proc/self/status').read_text()
    return int(re.search(rf'^{field}:\s+(\d+) kB$', status, re.M)[1]) * 1024


def size(policy, found: list[base.Volume], cache: base.Cache) -> list:
    """Return hits with the best sizes, and whether these are proven."""
    sizes = policy.size(found, cache)
    return [sum(volume.curve.hits(sizes.sizes[volume.name])
                for volume in found), 'yes' if sizes.optimal else 'no']


def decide(policy, found: list[base.Volume], cache: base.Cache) -> bool:
    """Return whether a decision at the end of an epoch changes sizes."""
    share = cache.capacity // len(found)
    return epochs.Sizer(policy, cache).decide(
        found, {volume.name: share for volume in found}).changed


def sizing(run: runs.Run) -> None:
    """Size eight volumes of each load."""
    policy, rows = base.load('latency'), []
    for capacity in run.options.capacities:
        references = max(capacity, 4096 if run.quick else 1048576)
        for name, kind in KINDS.items():
            found = volumes(kind, VOLUMES, capacity, 4 * references // VOLUMES,
                            curves.Analysis(), run.options.seed)
            for step in STEPS:
                row = run.keep(f'{name}, {capacity} blocks, step {step}',
                               functools.partial(measured, functools.partial(
                                   size, policy, found,
                                   base.Cache(capacity, step))))
                rows.append((name, capacity, step, points(found),
                             *row['result'], f'{row["cpu_s"]:.2f}',
                             round(row['bytes'] / 1e6)))
    run.table('Best sizes of eight volumes by exact curves', (
        'Load', 'Blocks', 'Step', 'Points of curves', 'Hits', 'Proven',
        'CPU s', 'MB'), rows)


def decisions(run: runs.Run) -> None:
    """Decide as agents do."""
    policy, rows = base.load('latency'), []
    for count in run.options.volumes:
        for name, kind in KINDS.items():
            found = volumes(
                kind, count, count * HOST_BLOCKS, HOST_REFERENCES,
                curves.Analysis(samples=curves.SAMPLES), run.options.seed)
            # As agents measure: hits of volumes save different times.
            generator = numpy.random.default_rng(run.options.seed)
            found = [base.Volume(
                each.name, each.curve, hit_us=generator.uniform(80, 120),
                miss_us=generator.uniform(500, 9000)) for each in found]
            cache = base.Cache(count * HOST_BLOCKS)
            row = run.keep(f'{count} volumes, {name}', functools.partial(
                measured, functools.partial(decide, policy, found, cache)))
            optimal = policy.size(found, cache).optimal
            rows.append((count, name, points(found),
                         'yes' if optimal else 'no', f'{row["cpu_s"]:.3f}',
                         round(row['bytes'] / 1e6)))
    run.table('Decision at the end of an epoch', (
        'Volumes', 'Load', 'Points of curves', 'Proven', 'CPU s', 'MB'), rows)
