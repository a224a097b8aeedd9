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
"""The form of deadline and rate, and actions of the tab."""

import typing

from django.utils.translation import gettext_lazy as _
from horizon.utils import memoized

from diffcache_openstack.dashboard import api
from diffcache_openstack.dashboard import formats
from diffcache_openstack.dashboard.hydrations import forms
from diffcache_openstack.dashboard.hydrations import tables
from diffcache_openstack.dashboard.hydrations import tabs
from diffcache_openstack.dashboard import servers


class ActionsView(servers.ActionsView):
    """Handles actions of the tab's table; leads to the tab otherwise."""

    tab = tables.TAB
    tab_group_class = tabs.ServerTabs


class ChangeView(servers.FormView):
    """The form of deadline and rate."""

    tab = tables.TAB
    panel = tables.PANEL
    url_name = 'change'
    rule = 'diffcache:hydrations:update'
    form_class = forms.ChangeForm
    form_id = 'change_hydration_form'
    template_name = 'image_cache/hydrations/change.html'
    submit_label = _('Save')
    page_title = _('Deadline and Rate of the Image')

    @memoized.memoized_method
    def get_initial(self) -> dict[str, typing.Any]:
        """Return what the form is about: the rate that holds."""
        server_id = self.kwargs['instance_id']
        with api.reported(self.request,
                          _('Could not show how far the image is'),
                          redirect=self.get_success_url()):
            found = api.client(self.request).get_hydration(server_id)
        return {'instance_id': server_id, 'when': forms.KEEP,
                'rate': '' if found.rate is None
                else formats.size(found.rate)}
