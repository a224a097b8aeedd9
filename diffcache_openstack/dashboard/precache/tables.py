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
"""Tables of precache jobs and of their progress."""

import typing

from django import http
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy
from django.utils.translation import pgettext_lazy
from horizon import tables

from diffcache_openstack.dashboard import api
from diffcache_openstack.dashboard import formats
from diffcache_openstack.dashboard.hosts import tables as host_tables
from diffcache_openstack.dashboard import pages

STATES = (('running', _('Running')),
          ('ready', pgettext_lazy('state of a precache job', 'Ready')),
          ('cancelled', _('Cancelled')), ('expired', _('Expired')))
TARGET_STATES = (('waiting', _('Waiting')), ('fetching', _('Fetching')),
                 ('ready', pgettext_lazy('state of a precache job', 'Ready')),
                 ('failed', _('Failed')), ('cancelled', _('Cancelled')))
_ENDED = ('cancelled', 'expired')


class CreateJob(tables.LinkAction):
    """Cache images on hosts before they are requested."""

    name = 'create'
    verbose_name = _('Create Precache Job')
    url = 'horizon:admin:image_cache_precache:create'
    classes = ('ajax-modal',)
    icon = 'plus'
    policy_rules = (('diffcache', 'diffcache:precache_jobs:create'),)


class RetryJob(pages.OwnedAction, tables.BatchAction):
    """Have hosts fetch at once what they failed to fetch."""

    name = 'retry'
    icon = 'refresh'
    policy_rules = (('diffcache', 'diffcache:precache_jobs:retry'),)
    help_text = _('Hosts try at once to fetch what they failed to fetch.')

    action_present = staticmethod(lambda count: ngettext_lazy(
        'Retry Job', 'Retry Jobs', count))
    action_past = staticmethod(lambda count: ngettext_lazy(
        'Retried Job', 'Retried Jobs', count))

    def allowed(self, request: http.HttpRequest, datum: typing.Any = None
                ) -> bool:
        """Return whether to offer it: if a host failed."""
        return datum is None or (datum.state == 'running'
                                 and bool(datum.progress['failed']))

    def action(self, request: http.HttpRequest, obj_id: str) -> None:
        with api.reported(request, _('Could not retry the job'),
                          escalate=True):
            api.client(request).retry_precache_job(obj_id)


class CancelJob(pages.OwnedAction, tables.BatchAction):
    """End a job before its time."""

    name = 'cancel'
    icon = 'times'
    action_type = 'danger'
    policy_rules = (('diffcache', 'diffcache:precache_jobs:cancel'),)

    action_present = staticmethod(lambda count: ngettext_lazy(
        'Cancel Job', 'Cancel Jobs', count))
    action_past = staticmethod(lambda count: ngettext_lazy(
        'Cancelled Job', 'Cancelled Jobs', count))

    def allowed(self, request: http.HttpRequest, datum: typing.Any = None
                ) -> bool:
        """Return whether to offer it: until the job ends."""
        return datum is None or datum.state not in _ENDED

    def action(self, request: http.HttpRequest, obj_id: str) -> None:
        with api.reported(request, _('Could not cancel the job'),
                          escalate=True):
            api.client(request).cancel_precache_job(obj_id)


class JobsFilter(tables.FilterAction):
    """Filters of the service."""

    filter_type = 'server'
    filter_choices = (
        ('state', _('State ='), True,
         _('running, ready, cancelled or expired')),
        ('project_id', _('Project ID ='), True))


def images_of(request: http.HttpRequest, job: typing.Any) -> str:
    """Return the names of the images and families that a job is for."""
    return formats.names([
        *api.named(request, job.images),
        *(str(_('family of %s') % name)
          for name in api.named(request, job.families))])


def places_of(job: typing.Any) -> str:
    """Return the hosts, aggregates and zones that a job is for."""
    return formats.names([*(job.hosts or ()), *(job.aggregates or ()),
                          *(job.availability_zones or ())])


class JobRow(pages.LiveRow):
    """A job that is not ready."""

    call = 'get_precache_job'

    def get_data(self, request: http.HttpRequest, obj_id: str) -> typing.Any:
        """Return the job as it is now.

        :raises Failed: the call failed
        """
        job = super().get_data(request, obj_id)
        job.image_names = images_of(request, job)
        return job


class JobsTable(pages.LiveTable):
    """Precache jobs."""

    name = tables.WrappingColumn(
        lambda job: job.name or job.id, verbose_name=_('Name'),
        link='horizon:admin:image_cache_precache:detail')
    state = tables.Column(
        'state', verbose_name=_('State'), status=True,
        display_choices=STATES,
        status_choices=tuple((name, True) for name, _label in STATES
                             if name != 'running'))
    images = tables.WrappingColumn('image_names', verbose_name=_('Images'))
    places = tables.WrappingColumn(places_of, verbose_name=_('Places'))
    ready = tables.Column(
        lambda job: formats.ready(job.progress), verbose_name=_('Ready'))
    fetched = tables.Column(
        lambda job: formats.share(job.progress['bytes_done'],
                                  job.progress['bytes']),
        verbose_name=_('Fetched'), cell_attributes_getter=formats.percentage)
    priority = tables.Column('priority', verbose_name=_('Priority'))
    expires_at = tables.Column(
        lambda job: formats.instant(job.expires_at),
        verbose_name=_('Expires'))

    class Meta(pages.Look):
        name = 'jobs'
        verbose_name = _('Precache Jobs')
        pagination_param = 'job_marker'
        row_class = JobRow
        status_columns = ['state']
        row_actions = (RetryJob, CancelJob)
        table_actions = (JobsFilter, CreateJob)


class TargetRow(pages.LiveRow):
    """An image that a host does not have yet."""

    def get_data(self, request: http.HttpRequest, obj_id: str) -> typing.Any:
        """Return the progress as it is now.

        :raises Failed: the call failed, or it is no target any more
        """
        with api.unreported():
            for target in api.client(request).precache_targets(
                    str(self.table.kwargs['job_id']),
                    host=obj_id.rpartition('/')[0]):
                if target.id == obj_id:
                    [target.image_name] = api.named(
                        request, [target.image_id])
                    return target
        raise api.Failed(http.HttpResponseNotFound.status_code)


class TargetsTable(pages.LiveTable, pages.TabTable):
    """Progress of a job by host and image."""

    tab = 'job__targets'

    host = tables.Column(
        'host', verbose_name=_('Host'),
        link=lambda target: host_tables.address(target.host))
    image = tables.WrappingColumn('image_name', verbose_name=_('Image'))
    state = tables.Column(
        'state', verbose_name=_('State'), status=True,
        display_choices=TARGET_STATES,
        status_choices=(('ready', True), ('cancelled', True),
                        ('failed', False)))
    done = tables.Column(
        lambda target: formats.share(target.bytes_done, target.bytes_total),
        verbose_name=_('Fetched'), cell_attributes_getter=formats.percentage)
    size = tables.Column(lambda target: formats.size(target.bytes_total),
                         verbose_name=_('Size'))
    retry_at = tables.Column(
        lambda target: formats.instant(target.retry_at),
        verbose_name=_('Next Attempt'))
    message = tables.WrappingColumn('message', verbose_name=_('Reason'),
                                    empty_value=formats.NOTHING)

    class Meta(pages.Look):
        name = 'targets'
        verbose_name = _('Progress')
        pagination_param = 'target_marker'
        row_class = TargetRow
        status_columns = ['state']
