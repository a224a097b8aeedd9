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
"""Estimates of patches, by which pairs of images are chosen.

Between N images there are N(N-1) patches, and most would never be used: an
image is best built from a base close to it. The conductor finds pairs of
similar images; here the size of each patch is estimated from sketches of the
two images.
"""

import functools
import typing

from diffcache_openstack.objects import patch_work

Pair = tuple[str, str]

# Estimates are within some percent of the truth on the median, not always.
# A pair this far above the limit is not made; closer ones are, and measured.
_DOUBT = 1.5
# Sketches kept in memory, half a megabyte each.
_LOADED = 128


class Verdict(typing.NamedTuple):
    """What is reported of a pair.

    :param kind: one of patch_work.VERDICTS
    :param size: bytes of the patch, maybe estimated
    """

    kind: str
    size: int | None
    reason: str | None


class Estimates:
    """Estimated sizes of patches.

    :param load: reads the sketch of a content
    :param compare: bytes of the patch from one sketch to another
    """

    def __init__(self, load: typing.Callable[[str], typing.Any],
                 compare: typing.Callable[[typing.Any, typing.Any], int]
                 ) -> None:
        self._load = functools.lru_cache(maxsize=_LOADED)(load)
        self._compare = compare

    def size(self, base: str, target: str) -> int:
        """Estimate the bytes of the patch."""
        return self._compare(self._load(base), self._load(target))


def judge_estimate(size: int, data_size: int, max_ratio: float) -> Verdict:
    """Return whether a patch is worth creating, by its estimated size.

    :param data_size: bytes of data of the target
    :param max_ratio: largest patch, of that
    """
    limit = int(max_ratio * data_size * _DOUBT)
    if size <= limit:
        return Verdict(patch_work.ESTIMATED, size, None)
    return Verdict(
        patch_work.DECLINED, size,
        f'Its estimated {size} bytes are more than {limit}, for {data_size}'
        f' bytes of data ([repository] max_patch_ratio).')


def judge_size(size: int, data_size: int, max_ratio: float) -> Verdict | None:
    """Return why a patch is not worth keeping; None if it is."""
    limit = int(max_ratio * data_size)
    if size <= limit:
        return None
    return Verdict(
        patch_work.DECLINED, size,
        f'Its {size} bytes are more than {limit}, for {data_size} bytes of'
        f' data ([repository] max_patch_ratio).')
