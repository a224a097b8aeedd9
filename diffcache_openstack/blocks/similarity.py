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
"""Keys by which similar images are found among very many.

The keys of a signature are those of an LSH forest (Bawa, Condie and Ganesan,
2005): each of its trees sorts images by some values of their signatures, so
that the images with the longest common prefix are neighbours in an ordered
index. Reading a few neighbours in each tree costs the same for any number of
images, however alike these are, and needs no threshold of similarity.
"""

import collections
import collections.abc
import os

TREES = 24
# Values of the signature in one key, and hexadecimal digits of each.
_DEPTH = 6
_DIGITS = 6
KEY_LENGTH = _DEPTH * _DIGITS
# What an image scores that agrees with another in each value.
MOST_LIKENESS = TREES * _DEPTH


def keys(signature: str) -> list[str]:
    """Return the keys of a signature, one for each tree.

    :param signature: as :attr:`.sketch.Sketch.signature` has it
    """
    return [signature[start:start + KEY_LENGTH]
            for start in range(0, len(signature), KEY_LENGTH)]


def common_values(one: str, other: str) -> int:
    """Return how many values two keys have in common from their start."""
    return len(os.path.commonprefix([one, other])) // _DIGITS


def likeness(wanted: collections.abc.Sequence[str],
             found: collections.abc.Iterable[tuple[int, str, int]]
             ) -> collections.Counter[int]:
    """Score images by the length of the prefixes that they share.

    :param wanted: keys of an image, by tree
    :param found: tree, key and number of images that may resemble it
    :returns: by number of the image; only those with anything in common
    """
    scores: collections.Counter[int] = collections.Counter()
    for tree, key, number in set(found):
        common = common_values(wanted[tree], key)
        if common:
            scores[number] += common
    return scores
