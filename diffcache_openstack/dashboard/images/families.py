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
"""Layout of the graph of a family: images, and the patches between them.

Each image is right of the one from which the smallest patch builds it, so that
the graph is a tree, whose root crosses the WAN whole.
"""

import collections.abc
import dataclasses
import typing

from diffcache_openstack.dashboard import formats

WIDTH, HEIGHT = 230, 56
_STEP_X, _STEP_Y = 350, 76
_MARGIN = 10


@dataclasses.dataclass(frozen=True)
class Node:
    """An image.

    :ivar left: of its box, in pixels
    :ivar top: of its box
    """

    image: typing.Any
    left: int
    top: int

    @property
    def data(self) -> str:
        """Its bytes that are not zero, as they are shown."""
        return formats.size(self.image.data_size)

    @property
    def whole(self) -> str:
        """What crosses the WAN for the whole image, as it is shown."""
        return formats.size(self.image.compressed_size)

    @property
    def middle(self) -> int:
        """Vertical middle of its box."""
        return self.top + HEIGHT // 2

    @property
    def right(self) -> int:
        """Right edge of its box."""
        return self.left + WIDTH


@dataclasses.dataclass(frozen=True)
class Edge:
    """A patch.

    :ivar base: image that it needs
    :ivar target: image that it builds
    """

    patch: typing.Any
    base: Node
    target: Node

    @property
    def path(self) -> str:
        """Path of SVG from the base to the target."""
        start, end = self.base.right, self.target.left
        bend = (start + end) // 2
        return (f'M{start},{self.base.middle} C{bend},{self.base.middle}'
                f' {bend},{self.target.middle} {end - 8},'
                f'{self.target.middle}')

    @property
    def label(self) -> tuple[int, int]:
        """Place of its label: the end of the text, above the arrow's head."""
        return self.target.left - 12, self.target.middle - 6

    @property
    def size(self) -> str:
        """Its size as it is shown."""
        return formats.size(self.patch.size)


@dataclasses.dataclass(frozen=True)
class Graph:
    """A family as it is drawn.

    :ivar width: of the picture, in pixels
    :ivar height: of the picture
    """

    nodes: list[Node]
    edges: list[Edge]
    width: int
    height: int


def draw(images: collections.abc.Sequence[typing.Any],
         patches: collections.abc.Iterable[typing.Any]) -> Graph:
    """Lay a family out.

    :param images: with the base of the family first, if it is one of them
    :param patches: between contents of these images; others are left out
    """
    by_content = {image.content_id: image for image in reversed(images)}
    best = _smallest(patches, by_content)
    below = _tree([image for image in images
                   if by_content[image.content_id] is image], best)
    places: dict[str, Node] = {}
    row = 0
    for root in below[None]:
        row = _place(root, below, by_content, places, 0, row)
    edges = [Edge(patch, places[patch.base], places[target])
             for target, patch in best.items()
             if target in below.get(patch.base, ())]
    nodes = list(places.values())
    return Graph(nodes, edges,
                 max((node.right for node in nodes), default=0) + _MARGIN,
                 max(row, 1) * _STEP_Y)


def _smallest(patches, by_content):
    """Return the smallest patch to each content."""
    best: dict[str, typing.Any] = {}
    for patch in patches:
        if {patch.base, patch.target} <= by_content.keys() and (
                patch.target not in best
                or patch.size < best[patch.target].size):
            best[patch.target] = patch
    return best


def _tree(images, best):
    """Return the contents that are right of each; None has the roots.

    A circle of smallest patches is cut before the image that comes first.
    """
    below: dict[str | None, list[str]] = {None: []}
    for image in images:
        content, seen = image.content_id, set()
        while content in best and content not in seen:
            seen.add(content)
            content = best[content].base
        is_first_of_circle = content == image.content_id and not any(
            root in seen for root in below[None])
        base = (None if image.content_id not in best or is_first_of_circle
                else best[image.content_id].base)
        below.setdefault(base, []).append(image.content_id)
    return below


def _place(content, below, by_content, places, depth, row):
    """Place a content and those right of it; return the next free row."""
    places[content] = Node(by_content[content], _MARGIN + depth * _STEP_X,
                           _MARGIN + row * _STEP_Y)
    children = below.get(content, ())
    for child in children:
        row = _place(child, below, by_content, places, depth + 1, row)
    return row if children else row + 1
