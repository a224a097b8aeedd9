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
"""Tabs of the page of a site."""

import typing

from django import http
from django.utils.translation import gettext_lazy as _
from horizon import tabs

from diffcache_openstack.client import problems
from diffcache_openstack.dashboard import api
from diffcache_openstack.dashboard import formats
from diffcache_openstack.dashboard import pages
from diffcache_openstack.dashboard.sites import tables


class OverviewTab(tabs.Tab):
    """Hosts, what they hold, the plan, and what was saved."""

    name = _('Overview')
    slug = 'overview'
    template_name = 'image_cache/_fields.html'

    def get_context_data(self, request: http.HttpRequest,
                         **kwargs: typing.Any) -> dict[str, typing.Any]:
        """Return labels and values, by section."""
        report = self.tab_group.kwargs['report']
        return {'sections': [(_('Site'), _fields(report['site'])),
                             (_('Held'), _held(report['held'])),
                             (_('Plan'), _plan(report['plan'])),
                             (_('WAN'), _wan(report))]}


def _fields(site):
    return [(_('Hosts up'), tables.alive(site['hosts'])),
            (_('Capacity'), formats.size(site['hosts']['capacity'])),
            (_('Last planned'), formats.instant(site['planned_at']))]


def _held(held):
    names = dict(formats.KINDS)
    return [(names.get(kind, kind), _('%(objects)s objects, %(size)s') % {
        'objects': each['objects'], 'size': formats.size(each['bytes'])})
        for kind, each in sorted(held.items())]


def _plan(plan):
    found = [(_('Held'), formats.progress(plan))]
    if plan is None:
        return found
    return found + [(_('Waiting per day'), formats.seconds(plan['cost_s'])),
                    (_('At least'), formats.seconds(plan['lower_bound_s']))]


def _wan(report):
    moved, whole = report['wan_bytes'], report['whole_bytes']
    return [(_('Since'), formats.instant(report['since'])),
            (_('Moved for requests'), formats.size(moved)),
            (_('Requested images whole'), formats.size(whole)),
            (_('Saved'), formats.share(whole - moved, whole))]


class RequestsTab(pages.PagedTab):
    """How requests were served."""

    name = _('Requests')
    slug = 'requests'
    table_classes = (tables.WaysTable,)

    def get_ways_data(self) -> list[dict[str, typing.Any]]:
        """Return the ways, most requests first."""
        return self.tab_group.kwargs['report']['requests']


class ProblemsTab(pages.PagedTab):
    """What needs attention, looked up when the tab is opened."""

    name = _('Problems')
    slug = 'problems'
    table_classes = (tables.ProblemsTable,)

    def get_problems_data(self) -> list[str]:
        """Return the problems as sentences."""
        report = self.tab_group.kwargs['report']
        with api.reported(self.request, _('Could not look for problems')):
            return list(problems.of_site(
                api.client(self.request), report['site']['name'],
                has_plan=report['plan'] is not None))
        return []


class SiteTabs(tabs.DetailTabsGroup):
    """All tabs of a site."""

    slug = 'site'
    tabs = (OverviewTab, RequestsTab, ProblemsTab)
