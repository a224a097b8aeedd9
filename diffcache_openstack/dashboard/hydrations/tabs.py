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
"""The tab of Horizon's own page of a server."""

import contextlib

from django.utils.translation import gettext_lazy as _
from horizon import tabs
from openstack import exceptions as sdk_exceptions

from diffcache_openstack.dashboard import api
from diffcache_openstack.dashboard.hydrations import tables
from diffcache_openstack.dashboard import servers


class HydrationTab(servers.ServerTab):
    """How far the image of the server is."""

    name = _('Image Arrival')
    slug = 'hydration'
    policy_rules = (('diffcache', 'diffcache:hydrations:show'),)
    table_classes = (tables.HydrationTable,)

    def get_hydration_data(self) -> list:
        """Return the only row; none if the server reads a whole file."""
        # A server that reads a whole file has none.
        with api.reported(self.request,
                          _('Could not show how far the image is')), \
                contextlib.suppress(sdk_exceptions.NotFoundException):
            return [api.client(self.request).get_hydration(self.instance_id)]
        return []


class ServerTabs(tabs.TabGroup):
    """What handles the actions of the tab's table."""

    slug = 'image_cache_hydration'
    tabs = (HydrationTab,)
