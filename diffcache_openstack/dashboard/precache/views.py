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
"""Pages of precache jobs."""

from django.utils.translation import gettext_lazy as _

from diffcache_openstack.dashboard import pages
from diffcache_openstack.dashboard.precache import tables
from diffcache_openstack.dashboard.precache import tabs

INDEX = 'horizon:admin:image_cache_precache:index'


class IndexView(pages.ListView):
    """Jobs by ID."""

    table_class = tables.JobsTable
    page_title = _('Precache Jobs')
    listing = 'precache_jobs'
    failure = _('Could not list precache jobs')


class DetailView(pages.DetailView):
    """A precache job."""

    tab_group_class = tabs.JobTabs
    page_title = '{{ job.name|default:job.id }}'
    resource = 'job'
    call = 'get_precache_job'
    failure = _('Could not show the precache job')
    index = INDEX
