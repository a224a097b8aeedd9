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
"""Pages of plans."""

import typing

from django import urls
from django.utils.translation import gettext_lazy as _

from diffcache_openstack.dashboard import formats
from diffcache_openstack.dashboard import pages
from diffcache_openstack.dashboard.plans import forms
from diffcache_openstack.dashboard.plans import tables
from diffcache_openstack.dashboard.plans import tabs

INDEX = 'horizon:admin:image_cache_plans:index'


class IndexView(pages.ListView):
    """Plans, latest first."""

    table_class = tables.PlansTable
    page_title = _('Plans')
    listing = 'plans'
    failure = _('Could not list plans')


class CreateView(pages.FormView):
    """The form to compute a plan."""

    rule = 'diffcache:plans:create'
    form_class = forms.CreateForm
    form_id = 'compute_plan_form'
    template_name = 'image_cache/plans/create.html'
    submit_label = _('Compute Plan')
    submit_url = urls.reverse_lazy('horizon:admin:image_cache_plans:create')
    success_url = urls.reverse_lazy(INDEX)
    page_title = _('Compute a Plan')


class DetailView(pages.DetailView):
    """A plan."""

    tab_group_class = tabs.PlanTabs
    page_title = '{{ plan.site }}, {{ computed }}'
    resource = 'plan'
    call = 'get_plan'
    failure = _('Could not show the plan')
    index = INDEX

    def get_context_data(self, **kwargs: typing.Any
                         ) -> dict[str, typing.Any]:
        """Return what the template shows; actions as in the list."""
        context = super().get_context_data(**kwargs)
        plan = self.get_resource()
        context['computed'] = formats.instant(plan.created_at)
        context['actions'] = tables.PlansTable(
            self.request, data=[plan]).render_row_actions(plan)
        return context
