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
"""Parts of site maps as they cross the wire, and as look-ups use them."""

import dataclasses
import sys
import typing
import weakref

from diffcache_openstack import objects
from diffcache_openstack.sites import views

_Ref = typing.TypeVar('_Ref', views.ImageRef, views.PatchRef)

_IMAGE_FIELDS = tuple(
    field.name for field in dataclasses.fields(views.ImageRef))
# What is in use of the catalogue, which is the same for all sites.
_images: weakref.WeakValueDictionary[str, views.ImageRef] = \
    weakref.WeakValueDictionary()
_patches: weakref.WeakValueDictionary[str, views.PatchRef] = \
    weakref.WeakValueDictionary()


def to_image(image: objects.Image) -> views.ImageRef:
    """Convert an image to the form that look-ups work on."""
    return _shared(_images, views.ImageRef(**{
        name: getattr(image, name) for name in _IMAGE_FIELDS}))


def to_patch(patch: objects.Patch) -> views.PatchRef:
    """Convert a patch to the form that look-ups work on."""
    return _shared(_patches, views.PatchRef(
        sys.intern(patch.id), sys.intern(patch.base), sys.intern(patch.target),
        patch.size, patch.apply_seconds))


def to_key(kind: str, object_id: str) -> views.Key:
    """Return the key of an object that hosts hold.

    Equal names are one text: in a conductor, each repository is in the map of
    every site.
    """
    return views.Key(sys.intern(kind), sys.intern(object_id))


def _shared(known: weakref.WeakValueDictionary[str, _Ref], ref: _Ref) -> _Ref:
    """Return an equal one of another map, if there is one."""
    found = known.get(ref.id)
    if found == ref:
        return found
    known[ref.id] = ref
    return ref


def to_links(links: objects.Links) -> views.Links:
    """Convert rates to the form that look-ups work on."""
    return views.Links(links.local, links.peer, links.repo, tuple(
        views.HostLinks(own.host, own.peer, own.repo) for own in links.hosts),
        tuple((each.name, each.mbps) for each in links.repositories))


def of_links(links: views.Links) -> objects.Links:
    """Convert rates to the form in which maps are kept and sent."""
    return objects.Links(
        local=links.local, peer=links.peer, repo=links.repo,
        hosts=[objects.HostLinks(**own._asdict()) for own in links.hosts],
        repositories=[objects.RepositoryLink(name=name, mbps=mbps)
                      for name, mbps in links.repositories])
