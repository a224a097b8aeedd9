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
"""Tables of the versions of a server, and of tasks on them."""

import typing

from django import http
from django import shortcuts
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy
from django.utils.translation import pgettext_lazy
from horizon import tables
from openstack_dashboard.dashboards.project.images.images import (
    tables as image_tables)

from diffcache_openstack.dashboard import api
from diffcache_openstack.dashboard import formats
from diffcache_openstack.dashboard import pages
from diffcache_openstack.dashboard import servers

TAB = 'instance_details__versions'
PANEL = 'image_cache_versions'
_RESTORE = f'horizon:project:{PANEL}:restore'
STATES = (('saving', _('Saving')), ('available', _('Available')),
          ('error', _('Error')), ('deleting', _('Deleting')))
TRIGGERS = (('request', _('Request')), ('schedule', _('Schedule')),
            ('shutdown', _('Shutdown')), ('delete', _('Deletion')),
            ('rollback', _('Rollback')))
KINDS = (('save', _('Save')), ('restore', _('Roll back')),
         ('export', _('Export')), ('diff', _('Compare')),
         ('forget', _('Delete')), ('prune', _('Prune')),
         ('verify', _('Verify')), ('rekey', _('Replace key')),
         ('accept', _('Accept')), ('replicate', _('Copy store')),
         ('recover', _('Rebuild store')),
         ('restore-volume', _('Restore volume')))
TASK_STATES = (('queued', _('Queued')), ('running', _('Running')),
               ('done', pgettext_lazy('state of a task', 'Done')),
               ('failed', _('Failed')), ('cancelled', _('Cancelled')))
# Once started, the service has them complete.
_COMPLETED = ('restore', 'forget')


def outcome(task: typing.Any) -> typing.Any:
    """Return what a task found or did, or why it failed."""
    found = task.result or {}
    if task.error or not found:
        return task.error or formats.NOTHING
    if task.kind == 'diff':
        return _('%s differ') % formats.size(found.get('bytes'))
    if task.kind == 'export':
        return _('Image %s') % found.get('image_id')
    if task.kind != 'restore':
        return formats.NOTHING
    if found.get('dry_run'):
        return _('Check: %(size)s differ, the cheaper method is'
                 ' "%(method)s"') % {
            'size': formats.size(found.get('bytes_differing')),
            'method': method(found.get('cheaper'))}
    return _('%(size)s written, method "%(method)s"') % {
        'size': formats.size(found.get('bytes_written')),
        'method': method(found.get('method'))}


def method(name: str | None) -> typing.Any:
    """Return what pages call a method of rolling back."""
    return {'rollback': _('in place'), 'rebuild': _('new disks')}.get(
        name or '', formats.NOTHING)


class SaveVersion(tables.LinkAction):
    """Save the disks of the server."""

    name = 'save'
    verbose_name = _('Save Version')
    classes = ('ajax-modal',)
    icon = 'plus'
    policy_rules = (('diffcache', 'diffcache:versions:create'),)

    def get_link_url(self, datum: typing.Any = None) -> str:
        return self.table.reverse('save', self.table.instance_id)


class RollBack(servers.OwnedAction, tables.Action):
    """Check what rolling back would write; the form follows.

    It has no dialog to confirm, as nothing is written yet.
    """

    name = 'restore'
    verbose_name = _('Roll Back')
    icon = 'undo'
    policy_rules = (('diffcache', 'diffcache:versions:restore'),
                    ('diffcache', 'diffcache:version_tasks:show'))

    def allowed(self, request: http.HttpRequest, datum: typing.Any = None
                ) -> bool:
        """Return whether to offer it: for versions that are stored."""
        return datum is None or datum.state == 'available'

    def single(self, table: typing.Any, request: http.HttpRequest,
               obj_id: str) -> http.HttpResponse:
        """Start the check."""
        with api.reported(request,
                          _('Could not check what would be written')):
            task = api.client(request).restore_server_version(
                obj_id, dry_run=True)
            return shortcuts.redirect(_RESTORE, table.instance_id, task.id)
        return shortcuts.redirect(self.get_success_url())


class ProtectVersion(servers.OwnedAction, tables.BatchAction):
    """Have the service refuse to delete a version."""

    name = 'protect'
    icon = 'lock'
    policy_rules = (('diffcache', 'diffcache:versions:update'),)
    help_text = _('A protected version is not deleted, by policies neither.')
    protected = True

    action_present = staticmethod(lambda count: ngettext_lazy(
        'Protect Version', 'Protect Versions', count))
    action_past = staticmethod(lambda count: ngettext_lazy(
        'Protected Version', 'Protected Versions', count))

    def allowed(self, request: http.HttpRequest, datum: typing.Any = None
                ) -> bool:
        """Return whether to offer it: if it changes something."""
        return datum is None or (datum.state != 'deleting' and
                                 bool(datum.is_protected) != self.protected)

    def action(self, request: http.HttpRequest, obj_id: str) -> None:
        with api.reported(request, _('Could not change the protection'),
                          escalate=True):
            api.client(request).update_server_version(
                obj_id, protected=self.protected)


class UnprotectVersion(ProtectVersion):
    """Allow a version to be deleted."""

    name = 'unprotect'
    icon = 'unlock'
    help_text = _('Users and policies may delete the version afterwards.')
    protected = False

    action_present = staticmethod(lambda count: ngettext_lazy(
        'Unprotect Version', 'Unprotect Versions', count))
    action_past = staticmethod(lambda count: ngettext_lazy(
        'Unprotected Version', 'Unprotected Versions', count))


class DeleteVersion(servers.OwnedAction, tables.DeleteAction):
    """Delete a version; later ones are not affected."""

    policy_rules = (('diffcache', 'diffcache:versions:delete'),)

    action_present = staticmethod(lambda count: ngettext_lazy(
        'Delete Version', 'Delete Versions', count))
    action_past = staticmethod(lambda count: ngettext_lazy(
        'Scheduled Deletion of Version',
        'Scheduled Deletion of Versions', count))

    def allowed(self, request: http.HttpRequest, datum: typing.Any = None
                ) -> bool:
        """Return whether to offer it: the service refuses it for others."""
        return datum is None or (not datum.is_protected and
                                 datum.state in ('available', 'error'))

    def delete(self, request: http.HttpRequest, obj_id: str) -> None:
        with api.reported(request, _('Could not delete the version'),
                          escalate=True):
            api.client(request).delete_server_version(obj_id)


class _FormAction(servers.OwnedAction, tables.LinkAction):
    """A form about a version.

    :cvar url_name: of the address of the form
    """

    classes = ('ajax-modal',)
    url_name = ''

    def get_link_url(self, datum: typing.Any = None) -> str:
        return self.table.reverse(self.url_name, self.table.instance_id,
                                  self.table.get_object_id(datum))

    def allowed(self, request: http.HttpRequest, datum: typing.Any = None
                ) -> bool:
        """Return whether to offer it: for versions that are stored."""
        return datum is None or datum.state == 'available'


class CompareVersion(_FormAction):
    """Find how much two versions differ."""

    name = 'compare'
    verbose_name = _('Compare')
    icon = 'arrows-h'
    url_name = 'compare'
    policy_rules = (('diffcache', 'diffcache:versions:diff'),)


class ExportVersion(_FormAction):
    """Make an image of a version."""

    name = 'export'
    verbose_name = _('Export as Image')
    icon = 'share'
    url_name = 'export'
    policy_rules = (('diffcache', 'diffcache:versions:export'),)

    def allowed(self, request: http.HttpRequest, datum: typing.Any = None
                ) -> bool:
        """Return whether to offer it: once for each version."""
        return (super().allowed(request, datum)
                and not getattr(datum, 'image_id', None))


class LaunchServer(image_tables.LaunchImageNG):
    """Start a server from the image of a version, in Horizon's wizard."""

    name = 'launch'
    verbose_name = _('Launch Server')
    icon = 'cloud-upload'

    def get_link_url(self, datum: typing.Any) -> str:
        """Return no address: the wizard is opened by a script."""
        self.attrs.update({
            'ng-controller': 'LaunchInstanceModalController as modal',
            'ng-click': 'modal.openLaunchInstanceWizard('
                        f"{{successUrl: '{self.table.get_tab_url()}',"
                        f" imageId: '{datum.image_id}'}})"})
        return 'javascript:void(0);'

    def allowed(self, request: http.HttpRequest, datum: typing.Any = None
                ) -> bool:
        """Return whether to offer it: for versions that have an image."""
        return datum is None or bool(datum.image_id)


class SetPolicy(tables.LinkAction):
    """Decide when the server is saved, and which versions are kept."""

    name = 'policy'
    verbose_name = _('Version Policy')
    classes = ('ajax-modal',)
    icon = 'clock'
    policy_rules = (('diffcache', 'diffcache:version_policies:set'),)

    def get_link_url(self, datum: typing.Any = None) -> str:
        return self.table.reverse('policy', self.table.instance_id)


class CancelTask(servers.OwnedAction, tables.BatchAction):
    """Cancel a task that may be interrupted."""

    name = 'cancel'
    icon = 'times'
    action_type = 'danger'
    policy_rules = (('diffcache', 'diffcache:version_tasks:cancel'),)
    help_text = _('What the task did so far is discarded.')

    action_present = staticmethod(lambda count: ngettext_lazy(
        'Cancel Task', 'Cancel Tasks', count))
    action_past = staticmethod(lambda count: ngettext_lazy(
        'Cancelled Task', 'Cancelled Tasks', count))

    def allowed(self, request: http.HttpRequest, datum: typing.Any = None
                ) -> bool:
        """Return whether to offer it: the service refuses it for others."""
        return datum is None or datum.state == 'queued' or (
            datum.state == 'running' and datum.kind not in _COMPLETED)

    def action(self, request: http.HttpRequest, obj_id: str) -> None:
        with api.reported(request, _('Could not cancel the task'),
                          escalate=True):
            api.client(request).cancel_version_task(obj_id)


class _VersionsPart(servers.ServerTable):
    """A table of the tab."""

    tab = TAB
    panel = PANEL


class VersionRow(pages.LiveRow):
    """A version that is being saved or deleted."""

    call = 'get_server_version'


class VersionsTable(_VersionsPart):
    """Versions of a server, latest first."""

    name = tables.WrappingColumn(
        lambda version: version.name or formats.digits(version.id),
        verbose_name=_('Name'))
    created_at = tables.Column(
        lambda version: formats.instant(version.created_at),
        verbose_name=_('Created'))
    stored = tables.Column(
        lambda version: formats.size(version.bytes_stored),
        verbose_name=_('Size Stored'),
        help_text=_('What the version takes in the store beside others.'))
    id = tables.Column(lambda version: formats.digits(version.id),
                       verbose_name=_('ID'))
    parent = tables.Column(
        lambda version: formats.digits(version.parent_id or formats.NOTHING),
        verbose_name=_('Parent'),
        help_text=_('ID of the previous version of the server.'))
    trigger = tables.Column('trigger', verbose_name=_('Saved By'),
                            display_choices=TRIGGERS)
    state = tables.Column(
        'state', verbose_name=_('State'), status=True,
        display_choices=STATES,
        status_choices=(('available', True), ('error', False)))
    is_protected = tables.Column(
        lambda version: _('Yes') if version.is_protected else _('No'),
        verbose_name=_('Protected'))
    error = tables.WrappingColumn('error', verbose_name=_('Reason'),
                                  empty_value=formats.NOTHING)

    class Meta(pages.Look):
        name = 'versions'
        hidden_title = False
        verbose_name = _('Versions')
        pagination_param = 'version_marker'
        row_class = VersionRow
        status_columns = ['state']
        row_actions = (RollBack, LaunchServer, CompareVersion, ExportVersion,
                       ProtectVersion, UnprotectVersion, DeleteVersion)
        table_actions = (SaveVersion, SetPolicy)

    def get_object_display(self, datum: typing.Any) -> str:
        """Return what messages call the version."""
        return datum.name or datum.id


class TaskRow(pages.LiveRow):
    """A task that has not ended."""

    call = 'get_version_task'


class TasksTable(_VersionsPart):
    """Tasks on the versions of a server, latest first."""

    created_at = tables.Column(
        lambda task: formats.instant(task.created_at),
        verbose_name=_('Requested'))
    kind = tables.Column('kind', verbose_name=_('Task'),
                         display_choices=KINDS)
    version = tables.Column(
        lambda task: formats.digits(task.version_id or formats.NOTHING),
        verbose_name=_('Version'), help_text=_('ID of the version.'))
    state = tables.Column(
        'state', verbose_name=_('State'), status=True,
        display_choices=TASK_STATES,
        status_choices=(('done', True), ('cancelled', True),
                        ('failed', False)))
    done = tables.Column(lambda task: formats.share(task.done, task.total),
                         verbose_name=_('Progress'),
                         cell_attributes_getter=formats.percentage)
    total = tables.Column(lambda task: formats.size(task.total),
                          verbose_name=_('Size'))
    outcome = tables.WrappingColumn(outcome, verbose_name=_('Result'))

    class Meta(pages.Look):
        name = 'tasks'
        hidden_title = False
        verbose_name = _('Tasks')
        pagination_param = 'task_marker'
        row_class = TaskRow
        status_columns = ['state']
        row_actions = (CancelTask,)

    def get_object_display(self, datum: typing.Any) -> str:
        """Return what messages call the task."""
        return datum.id
