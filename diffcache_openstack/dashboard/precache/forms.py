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
"""Form to create a precache job."""

import datetime
import typing

from django import http
from django.utils.translation import gettext_lazy as _
from horizon import forms
from horizon import messages

from diffcache_openstack.dashboard import api

# Images and hosts offered; the others are for the command.
_MOST = 1000
_MOST_DAYS = 36500


def _choices(label, help_text):
    """Return a field of which several may be chosen."""
    return forms.MultipleChoiceField(
        label=label, help_text=help_text,
        widget=forms.ThemableCheckboxSelectMultiple())


class CreateForm(forms.SelfHandlingForm):
    """The images to cache, and where."""

    name = forms.CharField(label=_('Name'), max_length=255, required=False)
    images = _choices(_('Images'), '')
    is_family = forms.BooleanField(
        label=_('With their families'), required=False, help_text=_(
            'Also images that were made from these, and new ones.'))
    hosts = _choices(_('Hosts'), '')
    is_pinned = forms.BooleanField(
        label=_('Require whole images'), required=False, help_text=_(
            'Otherwise a base and a patch at the site are enough.'))
    priority = forms.IntegerField(
        label=_('Priority'), min_value=0, max_value=100, initial=50,
        help_text=_('From 0 to 100, over other objects of the plan.'))
    window = forms.CharField(
        label=_('Fetch Only At'), max_length=255, required=False,
        help_text=_('Such as "mon-fri 22:00-06:00"; empty: at any time.'))
    days = forms.IntegerField(
        label=_('Days Until It Ends'), min_value=1, max_value=_MOST_DAYS,
        required=False, help_text=_('Empty: until it is cancelled.'))

    def __init__(self, request: http.HttpRequest, *args: typing.Any,
                 **kwargs: typing.Any):
        super().__init__(request, *args, **kwargs)
        self.fields['images'].choices = sorted(
            api.image_names(request).items(), key=lambda each: each[1])
        with api.reported(request, _('Could not list hosts')):
            self.fields['hosts'].choices = [
                (host.name, f'{host.name} ({host.site})') for host in
                api.first(api.client(request).hosts, _MOST)
                if host.role == 'compute']

    def handle(self, request: http.HttpRequest, data: dict[str, typing.Any]
               ) -> typing.Any:
        """Create the job; return it, or None."""
        values = {name: data[name] for name in (
            'name', 'images', 'hosts', 'is_pinned', 'window') if data[name]}
        values['priority'] = data['priority']
        if data['is_family']:
            values['families'] = data['images']
        if data['days']:
            ends = (datetime.datetime.now(datetime.UTC)
                    + datetime.timedelta(days=data['days']))
            values['expires_at'] = ends.strftime('%Y-%m-%dT%H:%M:%SZ')
        with api.reported(request, _('Could not create the precache job')):
            job = api.client(request).create_precache_job(**values)
            messages.success(request, _('Hosts fetch the images of job %s.')
                             % (job.name or job.id))
            return job
        return None
