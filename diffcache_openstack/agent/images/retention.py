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
"""Keeping what requests brought here, in the room that the plan leaves.

A plan follows demand with a delay, and names only what it expects. What was
just brought over the WAN is worth more than an empty cache, so it stays until
the plan needs its room, or until newer requests do.
"""

import logging
import pathlib
import typing

from diffcache_openstack.agent.state import holdings
from diffcache_openstack.sites import view as views

LOG = logging.getLogger(__name__)

#: Takes a verified file of an image's raw content, and tells where it lies
#: from then on.
Keep = typing.Callable[[views.TemplateRef, pathlib.Path], pathlib.Path]


#: Takes a verified patch that crossed the WAN, and the bytes of the content
#: that it makes; tells whether it is kept, by rename.
KeepPatch = typing.Callable[[views.Key, pathlib.Path, int], bool]


def leave_patch(key: views.Key, path: pathlib.Path, target_size: int) -> bool:
    """Keep nothing."""
    return False


def leave(template: views.TemplateRef, path: pathlib.Path) -> pathlib.Path:
    """Keep nothing."""
    return path


class Keeper:
    """Keeps raw content beside what the plan wants.

    :param held: what this host holds
    :param changed: called after each object that was kept
    """

    def __init__(self, held: holdings.Holdings,
                 changed: typing.Callable[[], None]) -> None:
        self._held = held
        self._changed = changed

    def keep(self, template: views.TemplateRef,
             path: pathlib.Path) -> pathlib.Path:
        """Hold a verified file of the staging area, if there is room.

        :returns: where it lies from now on, the path given if it was not kept
        """
        key = views.Key(views.TEMPLATES, template.content_id)
        if not self._held.adopt(key, path, template.data_size):
            return path
        LOG.info('%s is kept, as there is room', key)
        self._changed()
        return self._held.path(key)

    def keep_patch(self, key: views.Key, path: pathlib.Path,
                   target_size: int) -> bool:
        """Hold a patch where the content that it makes will find no room.

        The next request for that builds it without the WAN. Nothing is
        evicted for it: who knows whether there will be one.

        :returns: whether it was moved to its place
        """
        size = holdings.disk_bytes(path)
        if self._held.makes_room(target_size) or size > self._held.spare() \
                or not self._held.adopt(key, path, size):
            return False
        LOG.info('%s is kept, as there is no room for what it makes', key)
        self._changed()
        return True
