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
"""Form of changes of a site whose value is estimated."""

import typing

from django import forms
from django.utils.translation import gettext_lazy as _

_PERCENT = 100


class Slider(forms.NumberInput):
    """A number between two others."""

    input_type = 'range'


def _slider(label, least, most, step, initial):
    return forms.FloatField(
        label=label, min_value=least, max_value=most, initial=initial,
        widget=Slider(attrs={'step': step}))


class WhatIfForm(forms.Form):
    """Changes of a site, as parts of what it has."""

    add_hosts = _slider(_('Hosts added'), 0, 10, 1, 0)
    capacity = _slider(_('Cache of each host larger by (%)'), 0, 400, 10, 0)
    wan = _slider(_('WAN faster by the factor'), 1, 20, 0.5, 1)
    demand = _slider(_('Requests multiplied by'), 0.5, 10, 0.5, 1)

    def changes(self, hosts: dict[str, int], mbps: float | None
                ) -> dict[str, typing.Any]:
        """Return the changes as the API takes them.

        :param hosts: how many hosts are alive, and their capacity in bytes
        :param mbps: bandwidth of the WAN now, if it is known
        """
        data = self.cleaned_data
        found: dict[str, typing.Any] = {
            'add_hosts': int(data['add_hosts']),
            'demand_factor': data['demand'],
            'capacity_bytes': round(
                hosts['capacity'] / max(1, hosts['alive'])
                * data['capacity'] / _PERCENT)}
        if mbps is not None and data['wan'] != 1:
            found['repository_mbps'] = mbps * data['wan']
        return found
