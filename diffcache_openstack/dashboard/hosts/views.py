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

from django.utils.translation import gettext_lazy as _

from diffcache_openstack.dashboard.hosts import tables
from diffcache_openstack.dashboard.hosts import tabs
from diffcache_openstack.dashboard import pages

INDEX = 'horizon:admin:image_cache_hosts:index'


class IndexView(pages.ListView):
    """Hosts by name."""

    table_class = tables.HostsTable
    page_title = _('Hosts')
    listing = 'hosts'
    failure = _('Could not list hosts')


class DetailView(pages.DetailView):
    """A host."""

    tab_group_class = tabs.HostTabs
    page_title = '{{ host.name }}'
    resource = 'host'
    call = 'get_host'
    failure = _('Could not show the host')
    index = INDEX
