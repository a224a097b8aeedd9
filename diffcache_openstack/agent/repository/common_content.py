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
"""What two images of a repository have in common, chunk by chunk."""

import collections
import collections.abc
import logging
import pathlib
import threading

from diffcache_openstack.agent.state import holdings
from diffcache_openstack.blocks import file_map
from diffcache_openstack.blocks import image_tools
from diffcache_openstack.common import exceptions
from diffcache_openstack.prefetch import by_file
from diffcache_openstack.prefetch import carry
from diffcache_openstack.prefetch import profiles
from diffcache_openstack.sites import views

LOG = logging.getLogger(__name__)


class CommonContent:
    """Compares images by their blocks, and by the paths of their files.

    :ivar without_files: how often files could not be compared
    :param held: the images
    :param tools: the native core
    """

    def __init__(self, held: holdings.Holdings,
                 tools: image_tools.ImageTools) -> None:
        self._held = held
        self._tools = tools
        self._stopped = threading.Event()
        self.without_files = 0

    def stop(self) -> None:
        """Give up what is being compared."""
        self._stopped.set()

    def find(self, source: str, target: str, chunks: list[int]
             ) -> list[carry.Way]:
        """Return what chunks of an image have in common with another image.

        Files are compared if too little of a chunk is found by its blocks.

        :param source: content ID of the image whose chunks they are
        :param target: content ID of the other image, which is read once
        :returns: by blocks, then by files: how much content each of the
            chunks has, and what of it is where in the other image
        :raises ObjectMissing: an image was withdrawn
        :raises DiffCacheError: an image cannot be read
        """
        keys = (views.Key(views.IMAGES, content)
                for content in (source, target))
        with self._held.lease(next(keys)) as base_path, \
                self._held.lease(next(keys)) as target_path:
            sizes, found = self._tools.common_blocks(
                base_path, target_path, chunks, profiles.CHUNK, self._check)
            blocks = dict(sizes), [carry.Common(*each) for each in found]
            left = _not_found(chunks, blocks)
            if not left:
                return [blocks]
            return [blocks, *self._by_files(base_path, target_path, left)]

    def _by_files(self, source: pathlib.Path, target: pathlib.Path,
                  chunks: list[int]) -> list[carry.Way]:
        try:
            maps = [file_map.read_content(str(path), self._check)
                    for path in (source, target)]
        except exceptions.Cancelled:
            raise
        except (exceptions.DiffCacheError, OSError) as error:
            self.without_files += 1
            LOG.warning('Comparing %s with %s by blocks alone: %s', source,
                        target, error)
            return []
        files = (by_file.Files(found.known_names(), found.extents)
                 for found in maps)
        return [carry.common_files(next(files), next(files), chunks,
                                   profiles.CHUNK)]

    def _check(self, _done: int, _total: int) -> None:
        if self._stopped.is_set():
            raise exceptions.Cancelled('The agent stops; profiles are carried'
                                       ' later.')


def _not_found(chunks: list[int], way: carry.Way) -> list[int]:
    """Return the chunks that another way may find more of."""
    sizes, common = way
    found: collections.Counter[int] = collections.Counter()
    for each in common:
        found[each.source] += each.amount
    return [chunk for chunk in chunks
            if found[chunk] < carry.ENOUGH * sizes.get(chunk, 0)
            or not sizes.get(chunk, 0)]
