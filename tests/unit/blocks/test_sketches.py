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
"""Sketches and the matrix made of them."""

import random

from diffcache_openstack.blocks import matrix
from diffcache_openstack.blocks import sketches
from diffcache_openstack.common import exceptions
from tests import base


class SketchTest(base.TestCase):

    def setUp(self):
        super().setUp()
        noise = random.Random(1)
        content = noise.randbytes(800_000)
        self.first = str(self.write_file('first', content))
        self.second = str(self.write_file(
            'second', content[:409_600] + bytes(100_000)
            + noise.randbytes(81_920)))

    def test_estimates(self):
        first, second = map(sketches.Sketch.of, (self.first, self.second))
        self.assertEqual(800_000, first.size)
        self.assertLess(first.patch_size_from(first), 2000)
        # What is new to each, and noise does not compress.
        self.assertAlmostEqual(
            90_000, second.patch_size_from(first), delta=9_000)
        self.assertAlmostEqual(
            390_000, first.patch_size_from(second), delta=30_000)

    def test_a_sketch_can_be_kept(self):
        first, second = map(sketches.Sketch.of, (self.first, self.second))
        kept = str(self.directory / 'kept')
        second.save(kept)
        again = sketches.Sketch.load(kept)
        self.assertEqual(second.data_size, again.data_size)
        self.assertEqual(second.patch_size_from(first),
                         again.patch_size_from(first))

    def test_damaged_sketches_are_refused(self):
        kept = self.directory / 'kept'
        sketches.Sketch.of(self.first).save(str(kept))
        good = kept.read_bytes()
        for bad in (b'', good[:-1], good[:40], b'x' + good[1:],
                    good[:100] + b'\xff' + good[101:]):
            kept.write_bytes(bad)
            self.assertRaises(exceptions.FormatError, sketches.Sketch.load,
                              str(kept))

    def test_missing_images_are_named(self):
        for call in (sketches.Sketch.of, sketches.Sketch.load):
            error = self.assertRaises(exceptions.NotFound, call, '/no/image')
            self.assertIn('/no/image', str(error))

    def test_the_matrix_is_that_of_the_pairs(self):
        paths = [self.first, self.second, self.first]
        samples = [sketches.Sketch.of(path) for path in paths]
        expected = [[target.patch_size_from(origin) for target in samples]
                    for origin in samples]
        self.assertEqual(expected, sketches.matrix(samples))

    def test_estimates_name_their_images_and_cost(self):
        reports = []
        estimates = matrix.estimate(
            [self.first, self.second],
            lambda done, total: reports.append((done, total)))
        self.assertEqual(
            [(self.first, self.second), (self.second, self.first)],
            [(pair.base, pair.target) for pair in estimates.pairs])
        self.assertIn('2 images', estimates.cost_line())
        self.assertIn('2 pairs', estimates.cost_line())
        done, total = reports[-1]
        self.assertEqual(done, total)
        self.assertEqual(sorted(reports), reports)
