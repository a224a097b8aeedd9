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
"""Tabs of the page of an image."""

import typing

from django import http
from django.utils.translation import gettext_lazy as _
from horizon import tabs

from diffcache_openstack.dashboard import api
from diffcache_openstack.dashboard import formats
from diffcache_openstack.dashboard.images import families
from diffcache_openstack.dashboard.images import places
from diffcache_openstack.dashboard.images import tables
from diffcache_openstack.dashboard import pages
from diffcache_openstack.dashboard.profiles import tabs as profile_tabs

# Images that a graph can show, of so many the service lists patches in one
# call; and patches to them that are looked at.
_MOST_MEMBERS = 40
_MOST_PATCHES = 1000


class OverviewTab(tabs.Tab):
    """Sizes and identity."""

    name = _('Overview')
    slug = 'overview'
    template_name = 'image_cache/_fields.html'

    def get_context_data(self, request: http.HttpRequest,
                         **kwargs: typing.Any) -> dict[str, typing.Any]:
        image = self.tab_group.kwargs['image']
        return {'sections': [(_('Image'), [
            (_('ID'), image.id), (_('Content'), image.content_id),
            (_('Status'), dict(tables.STATUSES).get(image.status,
                                                    image.status)),
            (_('Size'), formats.size(image.size)),
            (_('Data'), formats.size(image.data_size)),
            (_('Compressed'), formats.size(image.compressed_size)),
            (_('File in Glance'), formats.size(image.file_size)),
            (_('Format'), image.disk_format),
            (_('Family'), formats.names(api.named(
                request, [image.family] if image.family else ()))
             or formats.NOTHING),
            (_('Created'), formats.instant(image.created_at))])]}


class LocationsTab(pages.PagedTab):
    """Where the image is."""

    name = _('Hosts')
    slug = 'hosts'
    table_classes = (tables.LocationsTable,)

    def get_locations_data(self) -> list:
        """Return the hosts; the service does not page them."""
        return places.locations(self.request, self.tab_group.kwargs['image'])


class StartsTab(pages.PagedTab):
    """How long a start of a server would take on each host."""

    name = _('Time to Start')
    slug = 'starts'
    policy_rules = (('diffcache', 'diffcache:lookups:show'),)
    table_classes = (tables.StartsTable,)

    def get_starts_data(self) -> list:
        """Return a page of hosts that are alive, each with its best way."""
        return places.with_details(self.request, self.page(
            tables.StartsTable, _('Could not look the image up'), 'lookups',
            self.tab_group.kwargs['image'].id))


class FamilyTab(tabs.Tab):
    """The images of the same family, and the smallest patches to them."""

    name = _('Family')
    slug = 'family'
    preload = False
    template_name = 'image_cache/images/_family.html'

    def get_context_data(self, request: http.HttpRequest,
                         **kwargs: typing.Any) -> dict[str, typing.Any]:
        """Return the graph."""
        image = self.tab_group.kwargs['image']
        images, patches = self._family(request, image)
        return {'graph': families.draw(images, patches), 'image': image,
                'width': families.WIDTH, 'height': families.HEIGHT,
                'has_more': len(images) == _MOST_MEMBERS}

    def _family(self, request, image):
        """Return the images of a family, its base first, and patches."""
        client = api.client(request)
        base = image.family or image.id
        with api.reported(request, _('Could not list the family')):
            members = {image.id: image}
            members.update((each.id, each) for each in api.first(
                client.images, _MOST_MEMBERS, family=base))
            if base not in members:
                members[base] = client.get_image(base)
            images = _shown(members, base, image.id)
            return images, api.first(
                client.patches, _MOST_PATCHES,
                target=[each.id for each in images])
        return [], []


def _shown(members, base, image_id):
    """Return the members of a family that its graph shows, its base first.

    The image of the page is among them, however many others there are.
    """
    by_name = sorted(members.values(), key=lambda each: (
        each.id != base, each.name or '', each.id))
    kept = sorted(by_name, key=lambda each: each.id not in (base, image_id))
    ids = {each.id for each in kept[:_MOST_MEMBERS]}
    return [each for each in by_name if each.id in ids]


class PatchesTab(pages.PagedTab):
    """Patches to the image and from it."""

    name = _('Patches')
    slug = 'patches'
    table_classes = (tables.IncomingTable, tables.OutgoingTable)

    def get_incoming_data(self) -> list:
        """Return a page of the patches that build the image."""
        return self._patches(tables.IncomingTable, 'target')

    def get_outgoing_data(self) -> list:
        """Return a page of the patches that build others from it."""
        return self._patches(tables.OutgoingTable, 'base')

    def _patches(self, table, end):
        found = self.page(
            table, _('Could not list the patches'), 'patches',
            **{end: self.tab_group.kwargs['image'].content_id})
        names = api.content_names(self.request) if found else {}
        for patch in found:
            patch.base_name = names.get(patch.base,
                                        formats.digits(patch.base))
            patch.target_name = names.get(patch.target,
                                          formats.digits(patch.target))
        return found


class ImageTabs(tabs.DetailTabsGroup):
    """All tabs of an image."""

    slug = 'image'
    tabs = (OverviewTab, LocationsTab, StartsTab, profile_tabs.ProfilesTab,
            FamilyTab, PatchesTab)
