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
"""Pages of SSD caches."""

import typing

from django.utils.translation import gettext_lazy as _

from diffcache_openstack.dashboard import pages
from diffcache_openstack.dashboard.ssd_caches import tables
from diffcache_openstack.dashboard.ssd_caches import tabs

INDEX = 'horizon:admin:image_cache_ssd_caches:index'


class IndexView(pages.ListView):
    """SSD caches by host."""

    table_class = tables.CachesTable
    page_title = _('SSD Caches')
    listing = 'ssd_caches'
    failure = _('Could not list SSD caches')

    def get_filters(self) -> dict[str, typing.Any]:
        """Return the filters of the listing: the service has none."""
        return {}


class DetailView(pages.DetailView):
    """The SSD cache of a host."""

    tab_group_class = tabs.CacheTabs
    page_title = '{{ cache.host }}'
    resource = 'cache'
    call = 'get_ssd_cache'
    failure = _('Could not show the SSD cache')
    index = INDEX


class VolumeView(pages.DetailView):
    """A volume in the SSD cache of a host."""

    tab_group_class = tabs.VolumeTabs
    page_title = '{{ volume.id }}'
    resource = 'volume'
    call = 'get_volume_cache'
    failure = _('Could not show the volume')
    index = INDEX
