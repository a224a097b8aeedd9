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
"""Retention: caching content that requests fetched, in unused capacity.

A plan follows demand with a delay, and names only the images that it expects.
Content that has just crossed the WAN is worth more than free space, so it
stays until the plan, or a newer request, needs its room.
"""

import logging
import pathlib

from diffcache_openstack.agent.state import holdings
from diffcache_openstack.agent.state import host_state
from diffcache_openstack.sites import views

LOG = logging.getLogger(__name__)


class Retention:
    """Caches verified content and patches in addition to the plan's objects.

    :param host: this host's state
    :param keep_requested: whether to keep also what the plan does not want
    """

    def __init__(self, host: host_state.HostState, keep_requested: bool
                 ) -> None:
        self._host = host
        self._keep_requested = keep_requested

    def keep(self, image: views.ImageRef,
             path: pathlib.Path) -> pathlib.Path:
        """Cache raw content that was brought for a client, if there is room.

        The plan's own objects are kept in any case: a fill would fetch them
        again.

        :param path: a verified file of the staging area
        :returns: its path from now on, the given one if it was not kept
        """
        key = views.Key(views.IMAGES, image.content_id)
        held = self._host.held
        if (self._keep_requested or held.wants(key)) and self._adopt(
                key, path, image.data_size, 'the cache has room'):
            return held.path(key)
        return path

    def keep_planned(self, key: views.Key, path: pathlib.Path) -> bool:
        """Cache a base or patch that was fetched, if the plan places it here.

        :param path: a verified file of the staging area
        :returns: whether the file was moved to the cache
        """
        return self._host.held.wants(key) and self._adopt(
            key, path, holdings.disk_bytes(path), 'the plan places it')

    def keep_patch(self, key: views.Key, path: pathlib.Path,
                   target_size: int) -> bool:
        """Cache a patch if there is no room for its target's content.

        The next request for that image is built without the WAN. Nothing is
        evicted for a patch, because there may be no such request.

        :returns: whether the file was moved to the cache
        """
        held = self._host.held
        size = holdings.disk_bytes(path)
        return self._keep_requested and not held.makes_room(target_size) \
            and size <= held.spare() and self._adopt(
                key, path, size, 'there is no room for its target')

    def _adopt(self, key: views.Key, path: pathlib.Path, size: int,
               reason: str) -> bool:
        if not self._host.held.adopt(key, path, size):
            return False
        LOG.info('Caching %s: %s', key, reason)
        self._host.object_added()
        return True
