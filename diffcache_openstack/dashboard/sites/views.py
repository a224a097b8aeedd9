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
"""Pages of sites."""

import typing

from django.utils.translation import gettext_lazy as _

from diffcache_openstack.dashboard import pages
from diffcache_openstack.dashboard.sites import tables
from diffcache_openstack.dashboard.sites import tabs

INDEX = 'horizon:admin:image_cache_sites:index'


class IndexView(pages.ListView):
    """Sites by name."""

    table_class = tables.SitesTable
    page_title = _('Sites')
    listing = 'sites'
    failure = _('Could not list sites')

    def get_filters(self) -> dict[str, typing.Any]:
        """Return the filters of the listing: the service has none."""
        return {}


class DetailView(pages.DetailView):
    """A site."""

    tab_group_class = tabs.SiteTabs
    page_title = '{{ report.site.name }}'
    resource = 'report'
    call = 'site_report'
    failure = _('Could not show the site')
    index = INDEX
