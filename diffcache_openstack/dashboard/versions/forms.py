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
"""Forms to save a server and to roll it back."""

import typing

from django import http
from django.utils.translation import gettext_lazy as _
from horizon import forms
from horizon import messages

from diffcache_openstack.common import units
from diffcache_openstack.dashboard import api
from diffcache_openstack.dashboard import fields
from diffcache_openstack.dashboard import formats

ALPHAS = (('0', _('Takes the least storage')),
          ('auto', _('Restores fast enough')),
          ('1', _('Restores fastest')))
METHODS = (('auto', _('The cheaper one')),
           ('rollback', _('Write only what differs, in place')),
           ('rebuild', _('Write whole new disks')))
_MOST_KEPT = 10 ** 6
# Versions offered; the others are for the command.
_MOST_VERSIONS = 1000


def _kept(label):
    """Return a field for how many versions are kept."""
    return forms.IntegerField(label=label, min_value=0, max_value=_MOST_KEPT,
                              required=False)


class SaveForm(forms.SelfHandlingForm):
    """What the new version of a server is to be."""

    name = forms.CharField(label=_('Name'), max_length=255, required=False)
    description = forms.CharField(
        label=_('Description'), max_length=4096, required=False,
        widget=forms.Textarea(attrs={'rows': 3}))
    alpha = forms.ThemableChoiceField(label=_('Storage'), choices=ALPHAS)
    rate = fields.RateField(
        label=_('Read at Most per Second'),
        help_text=_('Such as 50MB; empty: no limit.'))
    exclude_volumes = forms.CharField(
        label=_('Volumes to Leave Out'), max_length=4096, required=False,
        help_text=_('IDs of volumes of the server, separated by spaces.'))
    is_protected = forms.BooleanField(
        label=_('Protected'), required=False,
        help_text=_('Refuse to delete the version.'))

    def clean_exclude_volumes(self) -> list[str]:
        """Return IDs."""
        return self.cleaned_data['exclude_volumes'].split()

    def handle(self, request: http.HttpRequest, data: dict[str, typing.Any]
               ) -> typing.Any:
        """Start to save the server; return the version, or None."""
        values = {name: value for name, value in data.items() if value}
        with api.reported(request, _('Could not save the server')):
            version = api.client(request).create_server_version(
                server_id=self.initial['instance_id'], **values)
            messages.success(request, _('Saving version %s.')
                             % (version.name or version.id))
            return version
        return None


class CompareForm(forms.SelfHandlingForm):
    """The version to compare one with."""

    against = forms.ThemableChoiceField(label=_('With Version'))

    def __init__(self, request: http.HttpRequest, *args: typing.Any,
                 **kwargs: typing.Any):
        super().__init__(request, *args, **kwargs)
        with api.reported(request, _('Could not list the versions')):
            self.fields['against'].choices = [
                (version.id, f'{version.name or version.id},'
                             f' {formats.instant(version.created_at)}')
                for version in api.first(
                    api.client(request).server_versions, _MOST_VERSIONS,
                    server_id=self.initial['instance_id'], state='available')
                if version.id != self.initial['version_id']]

    def handle(self, request: http.HttpRequest, data: dict[str, typing.Any]
               ) -> typing.Any:
        """Start to compare; return the task, or None."""
        with api.reported(request, _('Could not compare the versions')):
            task = api.client(request).diff_server_versions(
                self.initial['version_id'], data['against'])
            messages.success(request, _('Comparing two versions.'))
            return task
        return None


class ExportForm(forms.SelfHandlingForm):
    """Which disk of a version is exported, and what its image is called."""

    name = forms.CharField(label=_('Name of the Image'), max_length=255,
                           required=False)
    device = forms.CharField(
        label=_('Disk or Volume'), max_length=64, required=False,
        help_text=_('Its device, such as vdb; empty: the first.'))

    def handle(self, request: http.HttpRequest, data: dict[str, typing.Any]
               ) -> typing.Any:
        """Start to export; return the task, or None."""
        values = {name: value for name, value in data.items() if value}
        with api.reported(request, _('Could not export the version')):
            task = api.client(request).export_server_version(
                self.initial['version_id'], **values)
            messages.success(request, _('Exporting the version as an image.'))
            return task
        return None


class PolicyForm(forms.SelfHandlingForm):
    """When a server is saved, and which of its versions are kept."""

    every = forms.CharField(
        label=_('Time Between Two Versions'), max_length=16, required=False,
        help_text=_('Such as 30m, 6h or 1d; empty: no schedule.'))
    keep_last = _kept(_('Latest Versions to Keep'))
    keep_hourly = _kept(_('Hours to Keep'))
    keep_daily = _kept(_('Days to Keep'))
    keep_weekly = _kept(_('Weeks to Keep'))
    keep_monthly = _kept(_('Months to Keep'))
    is_on_shutdown = forms.BooleanField(
        label=_('Save before shutdown'), required=False)
    is_on_delete = forms.BooleanField(
        label=_('Save before deletion'), required=False)
    is_required = forms.BooleanField(
        label=_('Refuse both if saving fails'), required=False)
    has_volumes = forms.BooleanField(
        label=_('Save volumes too'), required=False, initial=True,
        help_text=_('At the times of the schedule.'))
    is_removed = forms.BooleanField(
        label=_('Remove the policy of this server'), required=False,
        help_text=_('That of the project holds then; versions are kept.'))

    def __init__(self, request: http.HttpRequest, *args: typing.Any,
                 **kwargs: typing.Any):
        super().__init__(request, *args, **kwargs)
        if not self.initial['policy_id']:
            del self.fields['is_removed']

    def clean_every(self) -> int | None:
        """Return seconds."""
        text = self.cleaned_data['every']
        try:
            return units.parse_duration(text) if text else None
        except ValueError as error:
            raise forms.ValidationError(str(error)) from error

    def handle(self, request: http.HttpRequest, data: dict[str, typing.Any]
               ) -> bool:
        """Set or remove the policy; return whether that succeeded."""
        client = api.client(request)
        with api.reported(request, _('Could not change the policy')):
            if data.pop('is_removed', False):
                client.unset_version_policy(self.initial['policy_id'])
                messages.success(request, _('Removed the version policy.'))
                return True
            values = {name: value for name, value in data.items()
                      if value is not None}
            client.set_version_policy(
                server_id=self.initial['instance_id'], **values)
            messages.success(request, _('Changed the version policy.'))
            return True
        return False


class RestoreForm(forms.SelfHandlingForm):
    """How to roll a server back."""

    method = forms.ThemableChoiceField(label=_('Method'), choices=METHODS)
    keep_current = forms.BooleanField(
        label=_('Save the current state as a version first'), initial=True,
        required=False)

    def handle(self, request: http.HttpRequest, data: dict[str, typing.Any]
               ) -> typing.Any:
        """Start to roll back; return the task, or None."""
        with api.reported(request, _('Could not roll back the server')):
            task = api.client(request).restore_server_version(
                self.initial['version_id'], **data)
            messages.success(request, _('Rolling back the server.'))
            return task
        return None
