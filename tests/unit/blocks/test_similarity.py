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
from diffcache_openstack.blocks import similarity
from tests import base


def values(*numbers):
    """A key of some values."""
    return ''.join(f'{number:06x}' for number in numbers)


class TestSimilarity(base.TestCase):

    def test_keys_are_the_parts_of_a_signature(self):
        signature = ''.join(f'{number:06x}' for number in range(144))
        found = similarity.keys(signature)
        self.assertEqual(similarity.TREES, len(found))
        self.assertEqual(signature, ''.join(found))
        self.assertEqual([], similarity.keys(''))

    def test_values_count_as_far_as_all_before_them_agree(self):
        one = values(1, 2, 3, 4, 5, 6)
        self.assertEqual(6, similarity.common_values(one, one))
        self.assertEqual(2, similarity.common_values(
            one, values(1, 2, 9, 4, 5, 6)))
        self.assertEqual(0, similarity.common_values(
            one, values(0, 2, 3, 4, 5, 6)))
        # Digits of a value alone are chance.
        self.assertEqual(0, similarity.common_values(
            values(0x111111), values(0x111112)))

    def test_images_score_in_each_tree_once(self):
        keys = [values(1, 2, 3), values(4, 5, 6)]
        scores = similarity.likeness(keys, [
            (0, values(1, 2, 9), 7), (0, values(1, 2, 9), 7),
            (1, values(4, 5, 6), 7), (1, values(4, 9, 9), 8),
            (0, values(9, 9, 9), 9)])
        self.assertEqual({7: 5, 8: 1}, dict(scores))
