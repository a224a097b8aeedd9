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

import threading

from diffcache_openstack.agent.state import holdings
from diffcache_openstack.blocks import image_tools
from diffcache_openstack.common import exceptions
from diffcache_openstack.prefetch import carry
from diffcache_openstack.prefetch import profiles
from diffcache_openstack.sites import view as views

Found = tuple[dict[int, int], list[carry.Common]]


class CommonContent:
    """Compares images by their blocks.

    :param held: the images
    :param tools: the native core
    """

    def __init__(self, held: holdings.Holdings,
                 tools: image_tools.ImageTools) -> None:
        self._held = held
        self._tools = tools
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Give up what is being compared."""
        self._stopped.set()

    def find(self, source: str, target: str, chunks: list[int]) -> Found:
        """Return what chunks of an image have in common with another image.

        :param source: content ID of the image whose chunks they are
        :param target: content ID of the other image, which is read once
        :returns: the blocks of each of the chunks that has any, and what of
            them is where in the other image
        :raises ObjectMissing: an image was withdrawn
        :raises DiffCacheError: an image cannot be read
        """
        keys = (views.Key(views.TEMPLATES, content)
                for content in (source, target))
        with self._held.lease(next(keys)) as base_path, \
                self._held.lease(next(keys)) as target_path:
            sizes, found = self._tools.common_blocks(
                base_path, target_path, chunks, profiles.CHUNK, self._check)
        return dict(sizes), [carry.Common(*each) for each in found]

    def _check(self, _done: int, _total: int) -> None:
        if self._stopped.is_set():
            raise exceptions.Cancelled('The agent stops; profiles are carried'
                                       ' later.')
