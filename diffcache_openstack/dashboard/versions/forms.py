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

ALPHAS = (('0', _('Takes the least storage')),
          ('auto', _('Restores fast enough')),
          ('1', _('Restores fastest')))
METHODS = (('auto', _('The cheaper one')),
           ('rollback', _('Write only what differs, in place')),
           ('rebuild', _('Write whole new disks')))
_MOST_RATE = 2 ** 40


class SaveForm(forms.SelfHandlingForm):
    """What the new version of a server is to be."""

    name = forms.CharField(label=_('Name'), max_length=255, required=False)
    description = forms.CharField(
        label=_('Description'), max_length=4096, required=False,
        widget=forms.Textarea(attrs={'rows': 3}))
    alpha = forms.ThemableChoiceField(label=_('Storage'), choices=ALPHAS)
    rate = forms.CharField(
        label=_('Read at Most per Second'), max_length=32, required=False,
        help_text=_('Such as 50MB; empty: no limit.'))
    is_protected = forms.BooleanField(
        label=_('Protected'), required=False,
        help_text=_('Refuse to delete the version.'))

    def clean_rate(self) -> int | None:
        """Return bytes per second."""
        text = self.cleaned_data['rate']
        if not text:
            return None
        try:
            rate = units.parse_size(text)
        except ValueError as error:
            raise forms.ValidationError(str(error)) from error
        if not 0 < rate <= _MOST_RATE:
            raise forms.ValidationError(_(
                'The rate has to be between 1 B and 1 TiB per second.'))
        return rate

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
