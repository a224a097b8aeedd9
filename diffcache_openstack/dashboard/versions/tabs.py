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

import typing

from django import http
from django.utils.translation import gettext_lazy as _
from horizon import tabs
from openstack_dashboard import policy

from diffcache_openstack.dashboard import servers
from diffcache_openstack.dashboard.versions import tables

_TASKS = (('diffcache', 'diffcache:version_tasks:list'),)


class VersionsTab(servers.ServerTab):
    """Versions of the server, and tasks on them."""

    name = _('Versions')
    slug = 'versions'
    policy_rules = (('diffcache', 'diffcache:versions:list'),)
    table_classes = (tables.VersionsTable, tables.TasksTable)

    def __init__(self, tab_group: typing.Any, request: http.HttpRequest):
        super().__init__(tab_group, request)
        if not policy.check(_TASKS, request):
            self._tables.pop(tables.TasksTable._meta.name, None)

    def get_versions_data(self) -> list:
        """Return the rows of the page."""
        return self._page(tables.VersionsTable,
                          _('Could not list the versions'), 'server_versions')

    def get_tasks_data(self) -> list:
        """Return the rows of the page."""
        return self._page(tables.TasksTable, _('Could not list the tasks'),
                          'version_tasks')

    def _page(self, table, failure, listing):
        return self.page(table, failure, listing,
                         server_id=self.instance_id)


class ServerTabs(tabs.TabGroup):
    """What handles the actions of the tab's tables."""

    slug = 'image_cache_server'
    tabs = (VersionsTab,)
