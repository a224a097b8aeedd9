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
from diffcache_openstack.dashboard.images import tables
from diffcache_openstack.dashboard import pages


class OverviewTab(tabs.Tab):
    """Sizes and identity."""

    name = _('Overview')
    slug = 'overview'
    template_name = 'image_cache/_fields.html'

    def get_context_data(self, request: http.HttpRequest,
                         **kwargs: typing.Any) -> dict[str, typing.Any]:
        """Return labels and values, by section."""
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
            (_('Family'), image.family or formats.NOTHING),
            (_('Created'), formats.instant(image.created_at))])]}


class LocationsTab(pages.PagedTab):
    """Where the image is."""

    name = _('Hosts')
    slug = 'hosts'
    table_classes = (tables.LocationsTable,)

    def get_locations_data(self) -> list:
        """Return the hosts; the service does not page them."""
        found: list = []
        with api.reported(self.request, _('Could not list the hosts')):
            found = list(api.client(self.request).template_locations(
                self.tab_group.kwargs['image'].id))
        return found


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
        return self.page(table, _('Could not list the patches'), 'patches',
                         **{end: self.tab_group.kwargs['image'].content_id})


class ImageTabs(tabs.DetailTabsGroup):
    """All tabs of an image."""

    slug = 'image'
    tabs = (OverviewTab, LocationsTab, PatchesTab)
