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
"""Layout of families of images."""

from tests.unit.dashboard import needs

import types

from diffcache_openstack.dashboard.images import families


def image(name):
    """Return an image whose content is named as it is."""
    return types.SimpleNamespace(id=name, name=name, content_id=name,
                                 data_size=1, compressed_size=1)


def patch(base, target, size):
    """Return a patch."""
    return types.SimpleNamespace(base=base, target=target, size=size)


class DrawTest(needs.PageTest):

    def drawn(self, names, *patches):
        """Return columns and rows by name, and the patches drawn."""
        graph = families.draw([image(name) for name in names],
                              [patch(*each) for each in patches])
        columns = sorted({node.left for node in graph.nodes})
        rows = sorted({node.top for node in graph.nodes})
        return ({node.image.name: (columns.index(node.left),
                                   rows.index(node.top))
                 for node in graph.nodes},
                sorted(edge.patch.base + edge.patch.target
                       for edge in graph.edges))

    def test_smallest_patches_are_a_tree(self):
        self.assertEqual(
            ({'a': (0, 0), 'b': (1, 0), 'c': (1, 1), 'd': (2, 1)},
             ['ab', 'ac', 'cd']),
            self.drawn('abcd', ('a', 'b', 2), ('c', 'b', 3), ('a', 'c', 1),
                       ('c', 'd', 1), ('a', 'd', 2)))

    def test_a_circle_is_cut_before_the_first(self):
        self.assertEqual(
            ({'a': (0, 0), 'c': (1, 0), 'b': (2, 0)}, ['ac', 'cb']),
            self.drawn('abc', ('b', 'a', 1), ('c', 'b', 1), ('a', 'c', 1)))

    def test_a_circle_beside_the_first(self):
        self.assertEqual(
            ({'b': (0, 0), 'a': (1, 0), 'c': (1, 1)}, ['ba', 'bc']),
            self.drawn('abc', ('b', 'a', 1), ('c', 'b', 1), ('b', 'c', 1)))

    def test_images_without_patches(self):
        self.assertEqual(({'a': (0, 0), 'b': (0, 1)}, []),
                         self.drawn('ab', ('x', 'a', 1)))

    def test_nothing(self):
        self.assertEqual(({}, []), self.drawn(''))
