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

import typing

from django import http
from django import urls
from horizon import exceptions
from horizon import forms
from horizon import tables
from horizon import tabs
from horizon.utils import memoized
from openstack_dashboard import policy

from diffcache_openstack.dashboard import api


class ListView(tables.DataTableView):
    """A page with one table.

    :cvar listing: its name in the service's proxy
    :cvar failure: what is shown if the listing fails
    """

    listing = ''
    failure: typing.Any = None
    _more = False

    def has_more_data(self, table: typing.Any) -> bool:
        """Return whether there is another page."""
        return self._more

    def get_data(self) -> list:
        found: list = []
        with api.reported(self.request, self.failure):
            found, self._more = api.page(
                self.request, self.table_class,
                getattr(api.client(self.request), self.listing),
                **self.get_filters())
        return found


class DetailView(tabs.TabbedTableView):
    """A page of one resource, whose address has one parameter, its ID.

    :cvar resource: what tabs and templates call it
    :cvar call: name of the call of the service's proxy that returns it
    :cvar failure: what is shown if that fails, on the list of resources
    :cvar index: the address of that list
    """

    template_name = 'image_cache/_detail.html'
    resource = ''
    call = ''
    failure: typing.Any = None
    index = ''

    @memoized.memoized_method
    def get_resource(self) -> typing.Any:
        """Return the resource; without it, show why on the list."""
        [resource_id] = self.kwargs.values()
        with api.reported(self.request, self.failure,
                          redirect=urls.reverse(self.index)):
            return getattr(api.client(self.request), self.call)(
                str(resource_id))

    def get_tabs(self, request: http.HttpRequest, *args: typing.Any,
                 **kwargs: typing.Any) -> tabs.TabGroup:
        """Return the tabs, which know the resource."""
        return super().get_tabs(
            request, **{self.resource: self.get_resource()}, **kwargs)

    def get_context_data(self, **kwargs: typing.Any
                         ) -> dict[str, typing.Any]:
        context = super().get_context_data(**kwargs)
        context[self.resource] = self.get_resource()
        context['url'] = urls.reverse(self.index)
        return context


class FormView(forms.ModalFormView):
    """A form for users who have a right.

    :cvar rule: of the API, for the call that the form leads to
    """

    rule = ''

    def dispatch(self, request: http.HttpRequest, *args: typing.Any,
                 **kwargs: typing.Any) -> http.HttpResponse:
        """Handle a request of a user who has the right.

        :raises NotAuthorized: the user has not
        """
        if not policy.check((('diffcache', self.rule),), request):
            raise exceptions.NotAuthorized
        return super().dispatch(request, *args, **kwargs)


class Look:
    """Options of all tables, which name their controls for screen readers.

    A table's ``Meta`` derives from this class.
    """

    css_classes = 'image-cache'
    table_actions_template = 'image_cache/_table_actions.html'
    row_actions_dropdown_template = 'image_cache/_row_actions.html'
    multi_select = False


class OwnedAction:
    """An action on a row that belongs to a project."""

    def get_policy_target(self, request: http.HttpRequest,
                          datum: typing.Any = None) -> dict[str, typing.Any]:
        """Return what the rule is about."""
        return {'project_id': getattr(datum, 'project_id', None)}


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


class LiveTable(tables.DataTable):
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
        """Return whether there is another page."""
        return self._more.get(table.name, False)
