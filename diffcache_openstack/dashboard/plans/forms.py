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
"""Form to compute a plan."""

import typing

from django import http
from django.utils.translation import gettext_lazy as _
from horizon import forms
from horizon import messages

from diffcache_openstack.dashboard import api

# Of sites offered; the others are for the command.
_MOST = 1000


class CreateForm(forms.SelfHandlingForm):
    """The site to compute a plan for."""

    site = forms.ThemableChoiceField(label=_('Site'))

    def __init__(self, request: http.HttpRequest, *args: typing.Any,
                 **kwargs: typing.Any):
        super().__init__(request, *args, **kwargs)
        with api.reported(request, _('Could not list the sites')):
            self.fields['site'].choices = [
                (site.name, site.name) for site in
                api.first(api.client(request).sites, _MOST)]

    def handle(self, request: http.HttpRequest, data: dict[str, typing.Any]
               ) -> typing.Any:
        """Start to compute the plan; return it, or None."""
        with api.reported(request, _('Could not compute a plan')):
            plan = api.client(request).create_plan(site=data['site'])
            messages.success(request, _(
                'Computing a plan for site %s. It will be a proposal.')
                % data['site'])
            return plan
        return None
