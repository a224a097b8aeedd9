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

import typing

from django import http
from django import urls
from django.utils.translation import gettext_lazy as _
from horizon import tabs as horizon_tabs
from horizon.utils import memoized

from diffcache_openstack.dashboard import api
from diffcache_openstack.dashboard import pages
from diffcache_openstack.dashboard.precache import tables
from diffcache_openstack.dashboard.precache import tabs

INDEX = 'horizon:admin:image_cache_precache:index'


class IndexView(pages.ListView):
    """Jobs by ID."""

    table_class = tables.JobsTable
    page_title = _('Precache Jobs')
    failure = _('Could not list precache jobs')

    def listing(self) -> pages.Listing:
        """Return the listing of the service's proxy."""
        return api.client(self.request).precache_jobs


class DetailView(horizon_tabs.TabbedTableView):
    """A precache job."""

    tab_group_class = tabs.JobTabs
    template_name = 'horizon/common/_detail.html'
    page_title = '{{ job.name|default:job.id }}'

    @memoized.memoized_method
    def get_job(self) -> typing.Any:
        """Return the job; without it, show why on the list of jobs."""
        with api.reported(self.request, _('Could not show the precache job'),
                          redirect=urls.reverse(INDEX)):
            return api.client(self.request).get_precache_job(
                str(self.kwargs['job_id']))

    def get_tabs(self, request: http.HttpRequest, *args: typing.Any,
                 **kwargs: typing.Any) -> tabs.JobTabs:
        """Return the tabs, which know the job."""
        return super().get_tabs(request, job=self.get_job(), **kwargs)

    def get_context_data(self, **kwargs: typing.Any
                         ) -> dict[str, typing.Any]:
        """Return what the template shows."""
        context = super().get_context_data(**kwargs)
        context['job'] = self.get_job()
        context['url'] = urls.reverse(INDEX)
        return context
