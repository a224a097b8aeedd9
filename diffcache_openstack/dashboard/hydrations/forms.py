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
"""Form of deadline and rate of an image that arrives."""

import typing

from django import http
from django.utils.translation import gettext_lazy as _
from horizon import forms
from horizon import messages

from diffcache_openstack.common import units
from diffcache_openstack.dashboard import api
from diffcache_openstack.dashboard import fields

KEEP = 'keep'
DEADLINE = 'deadline'
IDLE = 'idle'
_WHEN = ((KEEP, _('As before')), (DEADLINE, _('Within the time below')),
         (IDLE, _('While no read waits, without a deadline')))
_LONGEST = 10 ** 8


class ChangeForm(forms.SelfHandlingForm):
    """Change the deadline of a hydration, and its rate.

    What is left as it was is not sent: it may have changed meanwhile.
    """

    when = forms.ThemableChoiceField(label=_('Have It Whole'), choices=_WHEN)
    deadline = forms.CharField(
        label=_('Time from Now'), max_length=16, required=False,
        help_text=_('Such as 90s, 30m or 6h.'))
    rate = fields.RateField(
        label=_('Fetch at Most per Second'),
        help_text=_('Such as 2MB, besides what guests read; empty: no'
                    ' limit.'))

    def clean_deadline(self) -> int | None:
        """Return seconds; None where they do not matter."""
        if self.cleaned_data.get('when') != DEADLINE:
            return None
        try:
            found = units.parse_duration(self.cleaned_data['deadline'])
        except ValueError as error:
            raise forms.ValidationError(str(error)) from error
        if not 0 < found <= _LONGEST:
            raise forms.ValidationError(_(
                'The time has to be between 1 second and three years.'))
        return found

    def handle(self, request: http.HttpRequest, data: dict[str, typing.Any]
               ) -> bool:
        """Change what was changed; return whether that succeeded."""
        values: dict[str, typing.Any] = {}
        if data['when'] != KEEP:
            values['deadline'] = data['deadline']
        if 'rate' in self.changed_data:
            values['rate'] = data['rate']
        if not values:
            return True
        with api.reported(request, _('Could not change the arrival')):
            api.client(request).update_hydration(
                self.initial['instance_id'], **values)
            messages.success(request, _('Changed the arrival of the image.'))
            return True
        return False
