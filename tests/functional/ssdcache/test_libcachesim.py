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
"""Hits of simulated caches beside those of another simulator."""

import random

from diffcache_openstack.ssdcache import curves
from diffcache_openstack.ssdcache import simulation
from tests import base

try:
    import libcachesim
except ImportError:
    libcachesim = None

SIZES = (50, 400, 1000)


def patterns():
    """Return references to blocks by the name of their pattern."""
    chance = random.Random(1)
    return {
        'normal': [abs(int(chance.gauss(5000, 500))) for _ in range(30000)],
        'uniform': [chance.randrange(1500) for _ in range(30000)],
        'skewed': [int(3000 * chance.random() ** 4) for _ in range(30000)],
        'in sequence': [number % 900 for number in range(10000)],
    }


class TestLibcachesim(base.TestCase):
    """The package is no requirement: its licence is GPL 3."""

    def setUp(self):
        super().setUp()
        if libcachesim is None:
            self.skipTest('needs libcachesim, of PyPI')
        self.trace = self.directory / 'trace'

    def play(self, blocks):
        self.trace.write_text(''.join(
            f'{time},v,r,{block * 4096},4096\n'
            for time, block in enumerate(blocks)))

    def theirs(self, kind, blocks, size):
        cache, hits = kind(size), 0
        for block in blocks:
            request = libcachesim.Request()
            request.obj_id, request.obj_size = block + 1, 1
            hits += cache.get(request)
        return hits

    def test_curves_are_those_of_lru_caches(self):
        for name, blocks in patterns().items():
            self.play(blocks)
            curve = curves.read(self.trace, curves.Analysis())['v'].curve
            for size in SIZES:
                self.assertEqual(
                    self.theirs(libcachesim.LRU, blocks, size),
                    curve.hits(size), f'{name}, {size}')

    def test_caches_that_evict_by_lru_and_sieve(self):
        for name, blocks in patterns().items():
            self.play(blocks)
            for evict, kind in (('lru', libcachesim.LRU),
                                ('sieve', libcachesim.Sieve)):
                for size in SIZES:
                    found = simulation.simulate(
                        self.trace, simulation.Scenario(size, evict=evict))
                    self.assertEqual(self.theirs(kind, blocks, size),
                                     found['total']['hits'],
                                     f'{name}, {evict}, {size}')
