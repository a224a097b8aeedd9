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
"""Pages of hosts."""

import typing

from django import http
from django import urls
from django.utils.translation import gettext_lazy as _
from horizon import tabs as horizon_tabs
from horizon.utils import memoized

from diffcache_openstack.dashboard import api
from diffcache_openstack.dashboard.hosts import tables
from diffcache_openstack.dashboard.hosts import tabs
from diffcache_openstack.dashboard import pages

INDEX = 'horizon:admin:image_cache_hosts:index'


class IndexView(pages.ListView):
    """Hosts by name."""

    table_class = tables.HostsTable
    page_title = _('Hosts')
    failure = _('Could not list hosts')

    def listing(self) -> pages.Listing:
        """Return the listing of the service's proxy."""
        return api.client(self.request).hosts


class DetailView(horizon_tabs.TabbedTableView):
    """A host."""

    tab_group_class = tabs.HostTabs
    template_name = 'horizon/common/_detail.html'
    page_title = '{{ host.name }}'

    @memoized.memoized_method
    def get_host(self) -> typing.Any:
        """Return the host; without it, show why on the list of hosts."""
        with api.reported(self.request, _('Could not show the host'),
                          redirect=urls.reverse(INDEX)):
            return api.client(self.request).get_host(self.kwargs['name'])

    def get_tabs(self, request: http.HttpRequest, *args: typing.Any,
                 **kwargs: typing.Any) -> tabs.HostTabs:
        """Return the tabs, which know the host."""
        return super().get_tabs(request, host=self.get_host(), **kwargs)

    def get_context_data(self, **kwargs: typing.Any
                         ) -> dict[str, typing.Any]:
        """Return what the template shows."""
        context = super().get_context_data(**kwargs)
        context['host'] = self.get_host()
        context['url'] = urls.reverse(INDEX)
        return context
