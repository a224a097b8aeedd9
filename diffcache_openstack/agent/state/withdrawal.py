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
"""Images that were deactivated or deleted: gone from this host.

The site map names them. Their content, their recipes, and patches that carry
pieces of them are dropped, whether the plan places them or not, and no longer
lent to peers. Borrowed files are no longer used.
"""

import logging
import pathlib
import typing

from diffcache_openstack.agent.state import holdings
from diffcache_openstack.common import exceptions
from diffcache_openstack.sites import views

LOG = logging.getLogger(__name__)

REASON = 'its image was withdrawn'


class Withdrawal:
    """Deletes objects that must not be served any more.

    :param held: what this host holds
    :param end_lending: has peers no longer read an object
    :param patch_ends: content ids of base and target of a patch file
    """

    def __init__(self, held: holdings.Holdings,
                 end_lending: typing.Callable[[views.Key], None],
                 patch_ends: typing.Callable[[pathlib.Path],
                                             tuple[str, str]]) -> None:
        self._held = held
        self._end_lending = end_lending
        self._patch_ends = patch_ends
        self._ends: dict[str, tuple[str, str]] = {}

    def enforce(self, view: views.SiteView) -> bool:
        """Drop what a site map forbids.

        :returns: whether anything was held of it
        """
        gone = view.withdrawn_contents
        recipes = {image.form_id for image in view.images
                   if image.status != views.ACTIVE} - {
                       image.form_id for image in view.images
                       if image.status == views.ACTIVE}
        for content_id in gone:
            self._end_lending(views.Key(views.IMAGES, content_id))
        found = [key for key in self._held.readable()
                 if key.kind in (views.IMAGES, views.MANIFESTS,
                                 views.COMPRESSED)
                 and key.id in gone
                 or key.kind == views.RECIPES and key.id in recipes
                 or key.kind == views.PATCHES and self._concerns(key, gone)]
        for key in found:
            LOG.info('Deleting %s: %s', key, REASON)
            self._held.drop(key, REASON)
        return bool(found)

    def _concerns(self, key: views.Key, gone: frozenset[str]) -> bool:
        if not gone:
            return False
        if key.id not in self._ends:
            try:
                self._ends[key.id] = self._patch_ends(self._held.path(key))
            except exceptions.DiffCacheError as error:
                LOG.warning('Deleting %s, which cannot be read: %s', key,
                            error)
                return True
        return bool(gone & set(self._ends[key.id]))
