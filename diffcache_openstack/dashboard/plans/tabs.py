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
"""Tabs of the page of a plan."""

import typing

from django import http
from django.utils.translation import gettext_lazy as _
from horizon import tabs
from openstack_dashboard.utils import settings

from diffcache_openstack.dashboard import api
from diffcache_openstack.dashboard import formats
from diffcache_openstack.dashboard import pages
from diffcache_openstack.dashboard.plans import tables

# States in which a plan places no objects yet, or none any more.
_EMPTY = ('computing', 'failed', 'cancelled')


class OverviewTab(tabs.Tab):
    """What the plan costs, saves and moves."""

    name = _('Overview')
    slug = 'overview'
    template_name = 'image_cache/_fields.html'

    def get_context_data(self, request: http.HttpRequest,
                         **kwargs: typing.Any) -> dict[str, typing.Any]:
        plan = self.tab_group.kwargs['plan']
        return {'sections': [(_('Plan'), _fields(plan)),
                             (_('Cost per Day'), _cost(plan)),
                             (_('Fill'), _fill(plan))]}


def _fields(plan):
    found = [
        (_('ID'), plan.id), (_('Site'), plan.site),
        (_('State'), dict(tables.STATES).get(plan.state, plan.state)),
        (_('Computed'), formats.instant(plan.created_at)),
        (_('Solver'), plan.solver),
        (_('Minimizes'), dict(tables.OBJECTIVES).get(
            plan.objective, formats.NOTHING)),
        (_('Proved optimal'), _('Yes') if plan.is_proved_optimal
         else _('No')),
        (_('Generation'), formats.NOTHING if plan.generation is None
         else plan.generation)]
    return found + ([(_('Error'), plan.error)] if plan.error else [])


def _cost(plan):
    return [
        (_('Waiting'), formats.seconds(plan.cost_s)),
        (_('At least'), formats.seconds(plan.lower_bound_s)),
        (_('WAN traffic'), formats.size(plan.cost_wan_bytes)),
        (_('Saved waiting'), formats.seconds(plan.saved_seconds)),
        (_('Saved WAN'), formats.size(plan.saved_wan_bytes))]


def _fill(plan):
    held = [item for item in plan.items or () if item['held']]
    return [
        (_('Held'), _('%(held)s of %(all)s objects') % {
            'held': len(held), 'all': len(plan.items or ())}),
        (_('Over the WAN'), formats.size(plan.move_wan_bytes)),
        (_('Between hosts'), formats.size(plan.move_lan_bytes)),
        (_('Takes'), formats.seconds(plan.fill_seconds))]


class ItemsTab(pages.PagedTab):
    """Objects that the plan places, beside what is held, and why."""

    name = _('Objects')
    slug = 'items'
    table_classes = (tables.ItemsTable, tables.OthersTable)

    def get_items_data(self) -> list[dict[str, typing.Any]]:
        """Return the rows of the page; the plan has all of them at hand."""
        plan = self.tab_group.kwargs['plan']
        rows = self._rows(tables.ItemsTable, plan.items or ())
        reasons = self._reasons(plan) if rows else {}
        return [{**item, 'why': reasons.get(tables.row_id(item),
                                            formats.NOTHING)}
                for item in rows]

    def get_others_data(self) -> list[dict[str, typing.Any]]:
        """Return a page of what hosts hold besides, and may remove.

        The service's IDs of them are those of the rows.
        """
        plan = self.tab_group.kwargs['plan']
        if plan.state in _EMPTY:
            return []
        found = self.page(
            tables.OthersTable, _('Could not list the objects'), 'holdings',
            not_in_plan=plan.id)
        return self._named({
            'host': each.host, 'kind': each.kind, 'id': each.object_id,
            'bytes': each.bytes, 'images': each.images}
            for each in found)

    def _rows(self, table, items):
        """Return a page of the plan's objects."""
        marker = self.request.GET.get(table._meta.pagination_param, '')
        left = sorted((item for item in items
                       if tables.row_id(item) > marker), key=tables.row_id)
        size = settings.get_page_size(self.request)
        self._more[table._meta.name] = len(left) > size
        return self._named(left[:size])

    def _named(self, items):
        """Return objects with the names of their images."""
        return [{**item, 'names': api.object_names(
            self.request, item['kind'], item['id'], item['images'])}
            for item in items]

    def _reasons(self, plan):
        """Return the explanation of the plan, by row."""
        if plan.state in _EMPTY:
            return {}
        with api.reported(self.request, _('Could not explain the plan')):
            return {tables.row_id(reason):
                    api.in_words(self.request, reason['why']) for reason in
                    api.client(self.request).explain_plan(plan.id)}
        return {}


class PlanTabs(tabs.DetailTabsGroup):
    """All tabs of a plan."""

    slug = 'plan'
    tabs = (OverviewTab, ItemsTab)
