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
import random
from unittest import mock

from diffcache_openstack.cached_volumes import hot_blocks
from diffcache_openstack.common import exceptions
from tests import base


def runs(*pairs):
    return [hot_blocks.Run(*pair) for pair in pairs]


class TestText(base.TestCase):

    def test_runs_stay_as_they_are(self):
        for found in (runs(), runs((0, 1)), runs((5, 3), (8, 1), (1000, 700)),
                      runs((1 << 40, 1 << 17))):
            self.assertEqual(found, hot_blocks.unpack(hot_blocks.pack(found)))

    def test_the_bytes(self):
        # 5, 3; 0, 1; 291 and 700 with seven bits in each byte.
        self.assertEqual('BQMAAaMCvAU=', hot_blocks.pack(
            runs((5, 3), (8, 1), (300, 700))))

    def test_what_is_no_list(self):
        for text in ('A', 'AAA', 'BQ==', '!!!!', 'gA==', 'Å', 'BQA=',
                     hot_blocks.pack(runs((0, (1 << 17) + 1))),
                     hot_blocks.pack(runs((1 << 48, 1))),
                     hot_blocks.pack(runs((1 << 60, 1))),
                     'A' * (hot_blocks.MOST_CHARACTERS + 1)):
            self.assertRaises(exceptions.InvalidInput, hot_blocks.unpack,
                              text)

    def test_the_last_ones_are_left_out_where_it_would_be_too_long(self):
        many = [hot_blocks.Run(n << 29, 1) for n in range(100)]
        with mock.patch.object(hot_blocks, 'MOST_CHARACTERS', 80):
            text = hot_blocks.pack(many)
            self.assertEqual((76, many[:10]),
                             (len(text), hot_blocks.unpack(text)))

    def test_blocks_at_random(self):
        blocks = sorted(random.Random(1).sample(range(1 << 28), 5000))
        found = [hot_blocks.Run(block, 1) for block in blocks]
        self.assertEqual(found, hot_blocks.unpack(hot_blocks.pack(found)))


class TestDivided(base.TestCase):

    def test_parts_have_as_many_blocks(self):
        found = list(hot_blocks.divided(runs((0, 5), (9, 1), (20, 2)), 4))
        self.assertEqual([runs((0, 4)), runs((4, 1), (9, 1), (20, 2))], found)
        self.assertEqual([], list(hot_blocks.divided([], 4)))
