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
"""Tabs of the page of a precache job."""

import typing

from django import http
from django.utils.translation import gettext_lazy as _
from horizon import tabs

from diffcache_openstack.dashboard import api
from diffcache_openstack.dashboard import formats
from diffcache_openstack.dashboard import pages
from diffcache_openstack.dashboard.precache import tables


class OverviewTab(tabs.Tab):
    """What the job is for, and what is done."""

    name = _('Overview')
    slug = 'overview'
    template_name = 'image_cache/_fields.html'

    def get_context_data(self, request: http.HttpRequest,
                         **kwargs: typing.Any) -> dict[str, typing.Any]:
        job = self.tab_group.kwargs['job']
        return {'sections': [(_('Precache Job'), [
            (_('ID'), job.id), (_('Project ID'), job.project_id),
            (_('State'), dict(tables.STATES).get(job.state, job.state)),
            (_('Reason'), job.message or formats.NOTHING),
            (_('Images'), tables.images_of(request, job)),
            (_('Places'), tables.places_of(job)),
            (_('Ready'), formats.ready(job.progress)),
            (_('Fetched'), formats.share(job.progress['bytes_done'],
                                         job.progress['bytes'])),
            (_('Priority'), job.priority),
            (_('Pinned'), _('Yes') if job.is_pinned else _('No')),
            (_('Created'), formats.instant(job.created_at)),
            (_('Expires'), formats.instant(job.expires_at))])]}


class TargetsTab(pages.PagedTab):
    """Progress by host and image."""

    name = _('Progress')
    slug = 'targets'
    table_classes = (tables.TargetsTable,)

    def get_targets_data(self) -> list:
        """Return the rows of the page."""
        found = self.page(tables.TargetsTable,
                          _('Could not list the progress'),
                          'precache_targets', self.tab_group.kwargs['job'].id)
        for target in found:
            [target.image_name] = api.named(self.request,
                                            [target.image_id])
        return found


class JobTabs(tabs.DetailTabsGroup):
    """All tabs of a job."""

    slug = 'job'
    tabs = (OverviewTab, TargetsTab)
