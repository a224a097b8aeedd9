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
"""Tabs of Horizon's own page of a server: tables, actions and forms."""

import typing

from django import http
from django import shortcuts
from django import urls
from horizon import tabs
from horizon.utils import http as http_utils

from diffcache_openstack.dashboard import pages

_SERVER = 'horizon:project:instances:detail'


def address(instance_id: str, query: str) -> str:
    """Return the address of the page of a server."""
    return f'{urls.reverse(_SERVER, args=[instance_id])}?{query}'


class Part:
    """What belongs to a tab of the page of a server.

    :cvar tab: slugs of the tab's group and of the tab
    :cvar panel: slug of the panel that handles actions and forms
    """

    tab = ''
    panel = ''

    @classmethod
    def reverse(cls, name: str, *args: typing.Any) -> str:
        """Return an address of the panel, by its name."""
        return urls.reverse(f'horizon:project:{cls.panel}:{name}', args=args)


class ServerTable(Part, pages.LiveTable, pages.TabTable):
    """A table of a tab, whose actions a page of the plug-in handles.

    Horizon's own page of a server handles none of the tables in its tabs.
    """

    @property
    def instance_id(self) -> str:
        """The ID of the server."""
        return self.kwargs['instance_id']

    def get_absolute_url(self) -> str:
        """Return the address that handles actions and updates of rows."""
        return self.reverse('actions', self.instance_id)

    def get_full_url(self) -> str:
        """Return that address, for the same page of the listing."""
        return f'{self.get_absolute_url()}?{self._query()}'

    def get_tab_url(self) -> str:
        """Return the address of the tab, at the same page."""
        return address(self.instance_id, self._query())

    def _query(self):
        query = self.request.GET.copy()
        query['tab'] = self.tab
        return query.urlencode()


class OwnedAction(pages.OwnedAction):
    """An action of such a table on a row that belongs to a project."""

    table: typing.Any

    def get_success_url(self, request: http.HttpRequest | None = None) -> str:
        """Return the address of the tab, at the same page."""
        return self.table.get_tab_url()


class ServerTab(pages.PagedTab):
    """A tab of the page of a server."""

    template_name = 'image_cache/_server_tab.html'
    permissions = ('openstack.services.diffcache',)

    @property
    def instance_id(self) -> str:
        """The ID of the server."""
        return self.tab_group.kwargs['instance_id']

    def get_context_data(self, request: http.HttpRequest,
                         **kwargs: typing.Any) -> dict[str, typing.Any]:
        """Return what the template shows; whether it comes into a page.

        Horizon begins to update rows with the page, not with a tab.
        """
        context = super().get_context_data(request, **kwargs)
        context['is_added'] = http_utils.is_ajax(request)
        context['tab_id'] = self.get_id()
        return context


class ActionsView(Part, tabs.TabbedTableView):
    """Handles actions of a tab's tables; leads to the tab otherwise."""

    def get_context_data(self, **kwargs: typing.Any
                         ) -> dict[str, typing.Any]:
        """Return nothing: the page is not shown."""
        return {'tab_group': None}

    def handle_tabbed_response(self, tab_group: typing.Any,
                               context: dict[str, typing.Any]
                               ) -> http.HttpResponse:
        """Lead to the tab."""
        return shortcuts.redirect(address(self.kwargs['instance_id'],
                                          f'tab={self.tab}'))


class FormView(Part, pages.FormView):
    """A form about a server; its tab follows.

    :cvar url_name: of its address
    """

    url_name = ''

    def get_success_url(self) -> str:
        return address(self.kwargs['instance_id'], f'tab={self.tab}')

    def get_cancel_url(self) -> str:
        return self.get_success_url()

    def get_context_data(self, **kwargs: typing.Any
                         ) -> dict[str, typing.Any]:
        context = super().get_context_data(**kwargs)
        context['submit_url'] = self.reverse(self.url_name,
                                             *self.kwargs.values())
        return context
