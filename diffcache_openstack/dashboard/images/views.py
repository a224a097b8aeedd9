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
"""Pages of images."""

import typing

from django import http
from django import urls
from django.utils.translation import gettext_lazy as _
from horizon import tabs as horizon_tabs
from horizon.utils import memoized

from diffcache_openstack.dashboard import api
from diffcache_openstack.dashboard.images import tables
from diffcache_openstack.dashboard.images import tabs
from diffcache_openstack.dashboard import pages

INDEX = 'horizon:admin:image_cache_images:index'


class IndexView(pages.ListView):
    """Images by ID."""

    table_class = tables.ImagesTable
    page_title = _('Images')
    failure = _('Could not list images')

    def listing(self) -> pages.Listing:
        """Return the listing of the service's proxy."""
        return api.client(self.request).templates


class DetailView(horizon_tabs.TabbedTableView):
    """An image."""

    tab_group_class = tabs.ImageTabs
    template_name = 'horizon/common/_detail.html'
    page_title = '{{ image.name|default:image.id }}'

    @memoized.memoized_method
    def get_image(self) -> typing.Any:
        """Return the image; without it, show why on the list of images."""
        with api.reported(self.request, _('Could not show the image'),
                          redirect=urls.reverse(INDEX)):
            return api.client(self.request).get_template(
                self.kwargs['template_id'])

    def get_tabs(self, request: http.HttpRequest, *args: typing.Any,
                 **kwargs: typing.Any) -> tabs.ImageTabs:
        """Return the tabs, which know the image."""
        return super().get_tabs(request, image=self.get_image(), **kwargs)

    def get_context_data(self, **kwargs: typing.Any
                         ) -> dict[str, typing.Any]:
        """Return what the template shows."""
        context = super().get_context_data(**kwargs)
        context['image'] = self.get_image()
        context['url'] = urls.reverse(INDEX)
        return context
