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
"""What a site lacks, chosen and put into a bundle at the repository."""

import collections.abc
import pathlib
import typing

from diffcache_openstack.agent.bundles import sealing
from diffcache_openstack import objects
from diffcache_openstack.sites import map_state
from diffcache_openstack.sites import views

PACKED, HELD, ABSENT = 'packed', 'held there', 'not at the repository'


class Entry(typing.NamedTuple):
    """An object, and what became of it.

    :ivar size: bytes that were written or read
    """

    key: views.Key
    size: int
    state: str


class Choice:
    """What a site lacks of the objects that it is to have.

    :param site_map: of the site
    :param plan: of the site; None to have all images that are served
    :param root: the objects of the repository
    """

    def __init__(self, site_map: objects.SiteMap, plan: objects.Plan | None,
                 root: pathlib.Path) -> None:
        self._view = map_state.MapState(site_map, lambda image: True).view()
        self._plan = plan
        self._root = root
        self._there = {key for host in self._view.hosts
                       if host.role != views.REPOSITORY_ROLE
                       for key in host.holdings}

    def wanted(self) -> list[views.Key]:
        """List images and patches that the site is to have, in order."""
        if self._plan is not None:
            items = sorted(self._plan.items, key=lambda item: item.priority)
            return list(dict.fromkeys(
                views.Key(item.kind, item.id) for item in items))
        return list(dict.fromkeys(
            views.Key(views.IMAGES, image.content_id)
            for image in self._view.images if image.status == views.ACTIVE))

    def files(self, key: views.Key) -> list[views.Key]:
        """List what has to be carried for an image or a patch, in order."""
        if key.kind == views.PATCHES:
            patch = self._view.patch(key.id)
            needed = [] if patch is None else [
                views.Key(views.MANIFESTS, patch.base)]
            return [*needed, key]
        form = views.Key(views.COMPRESSED, key.id)
        return [views.Key(views.MANIFESTS, key.id), *(
            views.Key(views.RECIPES, image.form_id)
            for image in self._view.images_with_recipe.get(key.id, ())
            if image.form_id is not None),
            form if self.path(form).exists() else key]

    def path(self, key: views.Key) -> pathlib.Path:
        """Return the file of an object of the repository."""
        return self._root / key.kind / key.id

    def is_there(self, key: views.Key) -> bool:
        """Return whether a compute host of the site reported to hold it."""
        return key in self._there


def contents(site_map: objects.SiteMap, plan: objects.Plan | None,
             revoked: dict[str, str] | None) -> dict[str, typing.Any]:
    """Return what hosts of a site need beside objects, as plain values.

    :param revoked: the list of revoked keys, as a controller signed it
    """
    items: dict[str, list] = {}
    for each in [] if plan is None else plan.items:
        items.setdefault(each.host, []).append(
            [each.kind, each.id, each.priority])
    return {'map': site_map.obj_to_primitive(),
            'plan': plan and {'generation': plan.generation, 'items': items},
            'revoked': revoked}


def pack(choice: Choice, writer: sealing.Writer, progress: sealing.Progress
         ) -> collections.abc.Iterator[Entry]:
    """Put what a site lacks into a bundle; yield what became of each."""
    packed = set()
    for key in choice.wanted():
        if choice.is_there(key):
            yield Entry(key, 0, HELD)
            continue
        needed = choice.files(key)
        if not all(choice.path(each).exists() for each in needed):
            yield Entry(key, 0, ABSENT)
            continue
        size = 0
        for each in needed:
            if each not in packed:
                writer.add(each, choice.path(each), progress)
                packed.add(each)
                size += choice.path(each).stat().st_size
        yield Entry(key, size, PACKED)
