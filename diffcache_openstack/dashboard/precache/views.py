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

from django import urls
from django.utils.translation import gettext_lazy as _

from diffcache_openstack.dashboard import pages
from diffcache_openstack.dashboard.precache import forms
from diffcache_openstack.dashboard.precache import tables
from diffcache_openstack.dashboard.precache import tabs

INDEX = 'horizon:admin:image_cache_precache:index'


class IndexView(pages.ListView):
    """Jobs by ID."""

    table_class = tables.JobsTable
    page_title = _('Precache Jobs')
    listing = 'precache_jobs'
    failure = _('Could not list precache jobs')

    def get_data(self) -> list:
        """Return the rows of the page, with the names of their images."""
        found = super().get_data()
        for job in found:
            job.image_names = tables.images_of(self.request, job)
        return found


class CreateView(pages.FormView):
    """The form to create a precache job."""

    rule = 'diffcache:precache_jobs:create'
    form_class = forms.CreateForm
    form_id = 'create_precache_job_form'
    template_name = 'image_cache/precache/create.html'
    submit_label = _('Create Precache Job')
    submit_url = urls.reverse_lazy(
        'horizon:admin:image_cache_precache:create')
    success_url = urls.reverse_lazy(INDEX)
    page_title = _('Create a Precache Job')


class DetailView(pages.DetailView):
    """A precache job."""

    tab_group_class = tabs.JobTabs
    page_title = '{{ job.name|default:job.id }}'
    resource = 'job'
    call = 'get_precache_job'
    failure = _('Could not show the precache job')
    index = INDEX
