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
"""Forms to save a server and to roll it back, and actions of its tab."""

import typing

from django import http
from django import shortcuts
from django.utils.translation import gettext_lazy as _
from horizon.utils import memoized

from diffcache_openstack.client import version_calls
from diffcache_openstack.common import units
from diffcache_openstack.dashboard import api
from diffcache_openstack.dashboard import formats
from diffcache_openstack.dashboard import servers
from diffcache_openstack.dashboard.versions import forms
from diffcache_openstack.dashboard.versions import tables
from diffcache_openstack.dashboard.versions import tabs

# Seconds until a page with an unfinished check is loaded again.
_INTERVAL = 2


class ActionsView(servers.ActionsView):
    """Handles actions of the tab's tables; leads to the tab otherwise."""

    tab = tables.TAB
    tab_group_class = tabs.ServerTabs


class _FormView(servers.FormView):
    """A form about a server; its tab follows."""

    tab = tables.TAB
    panel = tables.PANEL


class SaveView(_FormView):
    """The form to save a server."""

    url_name = 'save'
    rule = 'diffcache:versions:create'
    form_class = forms.SaveForm
    form_id = 'save_version_form'
    template_name = 'image_cache/versions/save.html'
    submit_label = _('Save Version')
    page_title = _('Save a Version')

    def get_initial(self) -> dict[str, typing.Any]:
        """Return what the form is about."""
        return {'instance_id': self.kwargs['instance_id']}


class _VersionView(_FormView):
    """A form about a version of a server."""

    def get_initial(self) -> dict[str, typing.Any]:
        """Return what the form is about."""
        return {'instance_id': self.kwargs['instance_id'],
                'version_id': str(self.kwargs['version_id'])}


class CompareView(_VersionView):
    """The form to compare two versions."""

    url_name = 'compare'
    rule = 'diffcache:versions:diff'
    form_class = forms.CompareForm
    form_id = 'compare_versions_form'
    template_name = 'image_cache/versions/compare.html'
    submit_label = _('Compare')
    page_title = _('Compare Versions')


class ExportView(_VersionView):
    """The form to export a version."""

    url_name = 'export'
    rule = 'diffcache:versions:export'
    form_class = forms.ExportForm
    form_id = 'export_version_form'
    template_name = 'image_cache/versions/export.html'
    submit_label = _('Export as Image')
    page_title = _('Export a Version as an Image')


class PolicyView(_FormView):
    """The form of the version policy of a server."""

    url_name = 'policy'
    rule = 'diffcache:version_policies:set'
    form_class = forms.PolicyForm
    form_id = 'version_policy_form'
    template_name = 'image_cache/versions/policy.html'
    submit_label = _('Save')
    page_title = _('Version Policy of the Server')

    @memoized.memoized_method
    def get_initial(self) -> dict[str, typing.Any]:
        """Return what the form is about: the policy, if there is one."""
        server_id = self.kwargs['instance_id']
        initial = {'instance_id': server_id, 'policy_id': None}
        with api.reported(self.request, _('Could not show the policy'),
                          redirect=self.get_success_url()):
            for found in api.client(self.request).version_policies(
                    server_id=server_id):
                initial.update(
                    {name: getattr(found, name)
                     for name in forms.PolicyForm.base_fields
                     if hasattr(found, name)},
                    policy_id=found.id,
                    every=found.every and units.format_duration(found.every))
        return initial


class RestoreView(_FormView):
    """What rolling a server back would write, and the form to do it."""

    url_name = 'restore'
    rule = 'diffcache:versions:restore'
    form_class = forms.RestoreForm
    form_id = 'restore_version_form'
    template_name = 'image_cache/versions/restore.html'
    submit_label = _('Roll Back')
    page_title = _('Roll Back to a Version')

    @memoized.memoized_method
    def get_check(self) -> typing.Any:
        """Return the task that finds what would be written."""
        with api.reported(self.request,
                          _('Could not check what would be written'),
                          redirect=self.get_success_url()):
            task = api.client(self.request).get_version_task(
                str(self.kwargs['task_id']))
        if (task.kind, task.server_id) != ('restore',
                                           self.kwargs['instance_id']):
            raise http.Http404
        return task

    @memoized.memoized_method
    def get_version(self) -> typing.Any:
        """Return the version to which the server is rolled back."""
        with api.reported(self.request, _('Could not show the version'),
                          redirect=self.get_success_url()):
            return api.client(self.request).get_server_version(
                self.get_check().version_id)

    def is_checked(self) -> bool:
        """Return whether what would be written is known."""
        task = self.get_check()
        return task.state == 'done' and bool((task.result or {}).get(
            'dry_run'))

    def get(self, request: http.HttpRequest, *args: typing.Any,
            **kwargs: typing.Any) -> http.HttpResponse:
        """Show the check; the page is loaded again until it is done."""
        response = super().get(request, *args, **kwargs)
        if self.get_check().state not in version_calls.ENDED:
            response['Refresh'] = str(_INTERVAL)
        return response

    def post(self, request: http.HttpRequest, *args: typing.Any,
             **kwargs: typing.Any) -> http.HttpResponse:
        """Roll back; not before it is known what that writes."""
        if not self.is_checked():
            return shortcuts.redirect(request.path)
        return super().post(request, *args, **kwargs)

    def get_initial(self) -> dict[str, typing.Any]:
        """Return what the form is about."""
        return {'version_id': self.get_check().version_id,
                'keep_current': True}

    def get_context_data(self, **kwargs: typing.Any
                         ) -> dict[str, typing.Any]:
        context = super().get_context_data(**kwargs)
        task = self.get_check()
        context['is_checked'] = self.is_checked()
        context['is_ended'] = task.state in version_calls.ENDED
        context['sections'] = [(_('Version'), _version(self.get_version())),
                               (_('Check'), _check(task))]
        return context


def _version(version):
    return [
        (_('Name'), version.name or formats.NOTHING), (_('ID'), version.id),
        (_('Created'), formats.instant(version.created_at)),
        (_('Size'), formats.size(version.size))]


def _check(task):
    found = task.result or {}
    fields = [
        (_('State'), dict(tables.TASK_STATES).get(task.state, task.state)),
        (_('Read'), formats.share(task.done, task.total)),
        (_('Differs'), formats.size(found.get('bytes_differing'))),
        (_('New disks'), formats.size(found.get('bytes_rebuild'))),
        (_('Cheaper'), tables.method(found.get('cheaper'))),
        (_('Reason'), found.get('reason', formats.NOTHING))]
    return fields + ([(_('Error'), task.error)] if task.error else [])
