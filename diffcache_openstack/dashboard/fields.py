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
"""Fields of forms, for values that commands take, too."""

import typing

from django.utils.translation import gettext_lazy as _
from horizon import forms

from diffcache_openstack.common import units

_HIGHEST_RATE = 10 ** 12


class RateField(forms.CharField):
    """Bytes per second at most, with a unit; None, if empty, is no limit."""

    def __init__(self, **kwargs: typing.Any):
        super().__init__(max_length=32, required=False, **kwargs)

    def clean(self, value: typing.Any) -> int | None:
        """Return bytes per second.

        :raises ValidationError: the text is no size, or is out of range
        """
        text = super().clean(value)
        if not text:
            return None
        try:
            rate = units.parse_size(text)
        except ValueError as error:
            raise forms.ValidationError(str(error)) from error
        if not 0 < rate <= _HIGHEST_RATE:
            raise forms.ValidationError(_(
                'The rate has to be between 1 B and 1 TB per second.'))
        return rate
