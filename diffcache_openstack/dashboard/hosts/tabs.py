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
"""Tabs of the page of a host."""

import typing

from django import http
from django.utils.translation import gettext_lazy as _
from horizon import tabs

from diffcache_openstack.dashboard import api
from diffcache_openstack.dashboard import formats
from diffcache_openstack.dashboard.hosts import tables
from diffcache_openstack.dashboard import pages


class OverviewTab(tabs.Tab):
    """State, fill and links."""

    name = _('Overview')
    slug = 'overview'
    template_name = 'image_cache/_fields.html'

    def get_context_data(self, request: http.HttpRequest,
                         **kwargs: typing.Any) -> dict[str, typing.Any]:
        host = self.tab_group.kwargs['host']
        return {'sections': [(_('Host'), _fields(host)),
                             (_('Network'), _network(host))]}


def _fields(host):
    return [
        (_('Site'), host.site),
        (_('Role'), dict(tables.ROLES).get(host.role, host.role)),
        (_('State'), dict(tables.STATES)[tables.state(host)]),
        (_('Last report'), formats.instant(host.seen_at)),
        (_('Objects'), host.held['objects']),
        (_('Held'), formats.size(host.held['bytes'])),
        (_('Capacity'), formats.size(host.capacity)),
        (_('Full'), formats.share(host.held['bytes'], host.capacity)),
        (_('Plan held'), formats.progress(host.plan)),
        (_('Plan generation'), host.plan_generation)]


def _network(host):
    links, measured = host.link_speeds or {}, host.measured or {}
    fill = host.fill or {}
    rate = fill.get('max_rate')
    return [
        (_('WAN, assumed'), formats.bandwidth(links.get('repo'))),
        (_('WAN, measured'), formats.bandwidth(measured.get('repo'))),
        (_('LAN, assumed'), formats.bandwidth(links.get('peer'))),
        (_('LAN, measured'), formats.bandwidth(measured.get('peer'))),
        (_('Fills at most at'), f'{formats.size(rate)}/s' if rate
         else _('No limit')),
        (_('Fills at'), ', '.join(fill.get('windows', ()))
         or _('Any time'))]


class ObjectsTab(pages.PagedTab):
    """What a host holds, and why."""

    name = _('Objects')
    slug = 'objects'
    table_classes = (tables.ObjectsTable,)

    def get_objects_data(self) -> list:
        """Return the rows of the page."""
        host = self.tab_group.kwargs['host']
        found = self.page(tables.ObjectsTable,
                          _('Could not list the objects'), 'host_objects',
                          host.name)
        reasons = self._reasons(host) if found else {}
        for each in found:
            each.names = api.object_names(self.request, each.kind, each.id,
                                          each.images)
            each.reason = reasons.get((each.kind, each.id)) or self._other(
                host, each.kind)
        return found

    def _reasons(self, host):
        """Return the explanation of the current plan, by object."""
        if host.role == 'repository':
            return {}
        client = api.client(self.request)
        with api.reported(self.request, _('Could not explain the plan')):
            for plan in client.plans(site=host.site, state='current',
                                     limit=1):
                return {(reason['kind'], reason['id']):
                        api.in_words(self.request, reason['why'])
                        for reason in client.explain_plan(
                            plan.id, host=host.name)}
        return {}

    @staticmethod
    def _other(host, kind):
        if kind not in formats.PLACED:
            return _('It comes with an image.')
        if host.role == 'repository':
            return _('Repositories hold all objects of their site.')
        return _('The current plan does not place it here.')


class ConnectionsTab(pages.PagedTab):
    """Repositories that a host reads from, and hosts that read from it."""

    name = _('Connections')
    slug = 'connections'
    table_classes = (tables.RepositoriesTable, tables.ClientsTable)

    def get_repositories_data(self) -> list[dict[str, typing.Any]]:
        """Return what the host reported of repositories."""
        return self.tab_group.kwargs['host'].repositories or []

    def get_clients_data(self) -> list[dict[str, typing.Any]]:
        """Return what hosts reported of this repository."""
        return self.tab_group.kwargs['host'].clients or []


class PendingTab(pages.PagedTab):
    """Images that a repository could not add yet."""

    name = _('Pending Images')
    slug = 'pending'
    table_classes = (tables.PendingTable,)

    def allowed(self, request: http.HttpRequest) -> bool:
        """Return whether the host adds images: repositories do."""
        return self.tab_group.kwargs['host'].role == 'repository'

    def get_pending_data(self) -> list:
        """Return the rows of the page."""
        return self.page(tables.PendingTable,
                         _('Could not list the pending images'),
                         'pending_images', self.tab_group.kwargs['host'].name)


class HostTabs(tabs.DetailTabsGroup):
    """All tabs of a host."""

    slug = 'host'
    tabs = (OverviewTab, ObjectsTab, ConnectionsTab, PendingTab)
