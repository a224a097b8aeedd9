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

from django.utils.translation import gettext_lazy as _

from diffcache_openstack.dashboard import api
from diffcache_openstack.dashboard import formats
from diffcache_openstack.dashboard.images import tables
from diffcache_openstack.dashboard.images import tabs
from diffcache_openstack.dashboard import pages

INDEX = 'horizon:admin:image_cache_images:index'


class IndexView(pages.ListView):
    """Images by ID."""

    table_class = tables.ImagesTable
    page_title = _('Images')
    listing = 'images'
    failure = _('Could not list images')

    def get_data(self) -> list:
        """Return the rows of the page, with the names of their families."""
        found = super().get_data()
        for image in found:
            image.family_name = formats.names(api.named(
                self.request, [image.family] if image.family else ()))
        return found


class DetailView(pages.DetailView):
    """An image."""

    tab_group_class = tabs.ImageTabs
    page_title = '{{ image.name|default:image.id }}'
    resource = 'image'
    call = 'get_image'
    failure = _('Could not show the image')
    index = INDEX
