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
"""Tables of plans and of what one places."""

import typing

from django import http
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy
from django.utils.translation import pgettext_lazy
from horizon import tables

from diffcache_openstack.dashboard import api
from diffcache_openstack.dashboard import formats
from diffcache_openstack.dashboard.hosts import tables as host_tables
from diffcache_openstack.dashboard import pages

STATES = (('computing', _('Computing')), ('proposed', _('Proposed')),
          ('failed', _('Failed')), ('cancelled', _('Cancelled')),
          ('current', pgettext_lazy('state of a plan', 'Current')),
          ('superseded', _('Superseded')))
OBJECTIVES = (('seconds', _('Waiting time')), ('wan_bytes', _('WAN traffic')))
_CANCELLED = ('computing', 'proposed')


def row_id(item: dict[str, typing.Any]) -> str:
    """Return what names an object on a host among those of a plan."""
    return f'{item["host"]}.{item["kind"]}.{item["id"]}'


def _moves(plan):
    """Return what applying a plan does, in sentences."""
    found = [_('Hosts fetch %(wan)s over the WAN and %(lan)s from each other,'
               ' in %(time)s, and may remove what the plan does not place.')
             % {'wan': formats.size(plan.move_wan_bytes),
                'lan': formats.size(plan.move_lan_bytes),
                'time': formats.seconds(plan.fill_seconds)}]
    if plan.items is not None:
        missing = sum(not item['held'] for item in plan.items)
        found.append(ngettext_lazy(
            '%(missing)s object of %(all)s is missing.',
            '%(missing)s objects of %(all)s are missing.', missing)
            % {'missing': missing, 'all': len(plan.items)})
    return ' '.join(map(str, found))


class ComputePlan(tables.LinkAction):
    """Compute a plan as a proposal."""

    name = 'create'
    verbose_name = _('Compute Plan')
    url = 'horizon:admin:image_cache_plans:create'
    classes = ('ajax-modal',)
    icon = 'plus'
    policy_rules = (('diffcache', 'diffcache:plans:create'),)


class ApplyPlan(tables.BatchAction):
    """Make a proposed plan the current one of its site."""

    name = 'apply'
    icon = 'check'
    # Horizon asks for a confirmation, with the help text.
    action_type = 'danger'
    policy_rules = (('diffcache', 'diffcache:plans:apply'),)

    action_present = staticmethod(lambda count: ngettext_lazy(
        'Apply Plan', 'Apply Plans', count))
    action_past = staticmethod(lambda count: ngettext_lazy(
        'Applied Plan', 'Applied Plans', count))

    def allowed(self, request: http.HttpRequest, datum: typing.Any = None
                ) -> bool:
        """Return whether to offer it: for proposals."""
        return datum is None or datum.state == 'proposed'

    def update(self, request: http.HttpRequest, datum: typing.Any) -> None:
        """Have the confirmation tell what the plan moves."""
        super().update(request, datum)
        self.help_text = _moves(datum)

    def action(self, request: http.HttpRequest, obj_id: str) -> None:
        """Call the service, unless the site has another plan meanwhile."""
        plan = self.table.get_object_by_id(obj_id)
        with api.reported(request, _('Could not apply the plan'),
                          escalate=True):
            api.client(request).apply_plan(
                obj_id, generation=plan.base_generation)


class CancelPlan(tables.BatchAction):
    """Discard a proposed plan, or stop computing it."""

    name = 'cancel'
    icon = 'times'
    action_type = 'danger'
    policy_rules = (('diffcache', 'diffcache:plans:cancel'),)

    action_present = staticmethod(lambda count: ngettext_lazy(
        'Cancel Plan', 'Cancel Plans', count))
    action_past = staticmethod(lambda count: ngettext_lazy(
        'Cancelled Plan', 'Cancelled Plans', count))

    def allowed(self, request: http.HttpRequest, datum: typing.Any = None
                ) -> bool:
        """Return whether to offer it: until the plan is applied."""
        return datum is None or datum.state in _CANCELLED

    def action(self, request: http.HttpRequest, obj_id: str) -> None:
        with api.reported(request, _('Could not cancel the plan'),
                          escalate=True):
            api.client(request).cancel_plan(obj_id)


class PlansFilter(tables.FilterAction):
    """Filters of the service."""

    filter_type = 'server'
    filter_choices = (
        ('site', _('Site ='), True),
        ('state', _('State ='), True,
         _('computing, proposed, failed, cancelled, current or'
           ' superseded')))


class PlansTable(tables.DataTable):
    """Plans, latest first."""

    created_at = tables.Column(
        lambda plan: formats.instant(plan.created_at),
        verbose_name=_('Computed'),
        link='horizon:admin:image_cache_plans:detail')
    site = tables.Column('site', verbose_name=_('Site'))
    state = tables.Column(
        'state', verbose_name=_('State'), status=True,
        display_choices=STATES, status_choices=(
            *((name, True) for name, _label in STATES if name != 'failed'),
            ('failed', False)))
    objective = tables.Column('objective', verbose_name=_('Minimizes'),
                              display_choices=OBJECTIVES)
    cost = tables.Column(
        lambda plan: formats.seconds(plan.cost_s),
        verbose_name=_('Waiting per Day'))
    saved = tables.Column(
        lambda plan: formats.seconds(plan.saved_seconds),
        verbose_name=_('Saves per Day'), help_text=_(
            'Seconds of waiting for images, compared with the plan before.'))
    saved_wan = tables.Column(
        lambda plan: formats.size(plan.saved_wan_bytes),
        verbose_name=_('Saves WAN per Day'))
    moved = tables.Column(
        lambda plan: formats.size(plan.move_wan_bytes),
        verbose_name=_('Moves over WAN'))
    fill = tables.Column(
        lambda plan: formats.seconds(plan.fill_seconds),
        verbose_name=_('Filled In'))

    class Meta(pages.Look):
        name = 'plans'
        verbose_name = _('Plans')
        pagination_param = 'plan_marker'
        status_columns = ['state']
        row_actions = (ApplyPlan, CancelPlan)
        table_actions = (PlansFilter, ComputePlan)

    def get_object_by_id(self, lookup: str) -> typing.Any:
        """Return a plan by its ID.

        The page of a plan sends its actions to the list, whose page or filter
        may leave that plan out.
        """
        for plan in self.data:
            if plan.id == lookup:
                return plan
        with api.reported(self.request, _('Could not show the plan'),
                          redirect=self.get_absolute_url()):
            return api.client(self.request).get_plan(lookup)

    def get_object_display(self, datum: typing.Any) -> str:
        """Return what messages call the plan."""
        return datum.id


class ObjectsTable(pages.TabTable):
    """Objects on hosts."""

    tab = 'plan__items'

    host = tables.Column(
        lambda item: item['host'], verbose_name=_('Host'),
        link=lambda item: host_tables.address(item['host']))
    kind = tables.Column(lambda item: item['kind'], verbose_name=_('Kind'),
                         display_choices=formats.KINDS)
    names = tables.WrappingColumn(
        lambda item: formats.names(item['names']),
        verbose_name=_('Images'))
    id = tables.Column(lambda item: formats.digits(item['id']),
                       verbose_name=_('ID'))
    bytes = tables.Column(lambda item: formats.size(item['bytes']),
                          verbose_name=_('Size'))

    def get_object_id(self, datum: dict[str, typing.Any]) -> str:
        """Return what names the row."""
        return row_id(datum)

    def get_object_display(self, datum: dict[str, typing.Any]) -> str:
        """Return what messages call the object."""
        return datum['id']


class ItemsTable(ObjectsTable):
    """Objects that a plan places."""

    held = tables.Column(lambda item: _('Held') if item['held']
                         else _('Missing'), verbose_name=_('State'))
    saved = tables.Column(
        lambda item: formats.seconds(item['saved_seconds']),
        verbose_name=_('Saves per Day'))
    why = tables.WrappingColumn(lambda item: item['why'],
                                verbose_name=_('Reason'))

    class Meta(pages.Look):
        name = 'items'
        hidden_title = False
        verbose_name = _('Placed by the Plan')
        pagination_param = 'item_marker'


class OthersTable(ObjectsTable):
    """Objects that hosts hold, but that a plan does not place."""

    class Meta(pages.Look):
        name = 'others'
        hidden_title = False
        verbose_name = _('Held Without a Place in the Plan')
        pagination_param = 'other_marker'
