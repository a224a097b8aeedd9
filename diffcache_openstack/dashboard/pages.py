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
"""Views, tabs and tables that show listings of the service in pages."""

import collections.abc
import typing

from django import http
from horizon import tables
from horizon import tabs

from diffcache_openstack.dashboard import api

Listing = collections.abc.Callable[..., collections.abc.Iterator]


class ListView(tables.DataTableView):
    """A page with one table.

    :cvar failure: what is shown if the listing fails
    """

    failure: typing.Any = None
    _more = False

    def listing(self) -> Listing:
        """Return the listing of the service's proxy."""
        raise NotImplementedError

    def has_more_data(self, table: typing.Any) -> bool:
        """Tell whether there is another page."""
        return self._more

    def get_data(self) -> list:
        """Return the rows of the page."""
        found: list = []
        with api.reported(self.request, self.failure):
            found, self._more = api.page(self.request, self.table_class,
                                         self.listing(), **self.get_filters())
        return found


class TabTable(tables.DataTable):
    """A table in a tab, to which the links of its pages lead back.

    :cvar tab: slugs of the tab's group and of the tab
    """

    tab = ''

    def get_pagination_string(self) -> str:
        """Return the query of the next page."""
        return f'tab={self.tab}&{super().get_pagination_string()}'


class LiveRow(tables.Row):
    """A row that is updated until its state is a final one.

    :cvar call: name of the call of the service's proxy that returns its datum
    """

    ajax = True
    call = ''

    def get_data(self, request: http.HttpRequest, obj_id: str) -> typing.Any:
        """Return the datum as it is now.

        :raises Failed: the call failed
        """
        with api.unreported():
            return getattr(api.client(request), self.call)(obj_id)


class LiveTable(TabTable):
    """A table with such rows."""

    def maybe_preempt(self) -> http.HttpResponse | None:
        """Handle what needs no data; a row that is gone is removed."""
        try:
            return super().maybe_preempt()
        except api.Failed as failure:
            return http.HttpResponse(status=failure.status)


class PagedTab(tabs.TableTab):
    """A tab with tables that the service pages; loaded when it is opened."""

    preload = False
    template_name = 'image_cache/_tables.html'

    def __init__(self, *args: typing.Any, **kwargs: typing.Any):
        super().__init__(*args, **kwargs)
        self._more: dict[str, bool] = {}

    def page(self, table: typing.Any, failure: typing.Any, listing: str,
             *of: typing.Any, **filters: typing.Any) -> list:
        """Return the rows of a table's page.

        :param table: its class
        :param failure: what is shown if the listing fails
        :param listing: its name in the service's proxy
        """
        found: list = []
        with api.reported(self.request, failure):
            found, self._more[table._meta.name] = api.page(
                self.request, table,
                getattr(api.client(self.request), listing), *of, **filters)
        return found

    def get_context_data(self, request: http.HttpRequest,
                         **kwargs: typing.Any) -> dict[str, typing.Any]:
        """Return what the template shows: all tables."""
        context = super().get_context_data(request, **kwargs)
        context['tables'] = list(self._tables.values())
        return context

    def has_more_data(self, table: typing.Any) -> bool:
        """Tell whether there is another page."""
        return self._more.get(table.name, False)
