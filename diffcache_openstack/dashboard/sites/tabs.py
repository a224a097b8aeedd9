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

from django import conf
from django import http
from django.utils.translation import gettext_lazy as _
from horizon import tabs

from diffcache_openstack.client import problems
from diffcache_openstack.common import units
from diffcache_openstack.dashboard import api
from diffcache_openstack.dashboard import formats
from diffcache_openstack.dashboard import pages
from diffcache_openstack.dashboard.sites import forms
from diffcache_openstack.dashboard.sites import problems as sentences
from diffcache_openstack.dashboard.sites import tables

_GB = 1000 ** 3
# Ways that no agent served: that of whole images compares with others.
_NOTICED = ('nova', 'glance')
_FIGURES = (
    ('cost_s', _('Waiting per day'), formats.seconds),
    ('mean_s', _('Mean waiting for a request'), formats.seconds),
    ('cost_wan_bytes', _('WAN traffic per day'), formats.size),
    ('mean_wan_bytes', _('Mean WAN traffic of a request'), formats.size))


class OverviewTab(tabs.Tab):
    """Hosts, what they hold, the plan, and what was saved."""

    name = _('Overview')
    slug = 'overview'
    template_name = 'image_cache/_fields.html'

    def get_context_data(self, request: http.HttpRequest,
                         **kwargs: typing.Any) -> dict[str, typing.Any]:
        report = self.tab_group.kwargs['report']
        return {'sections': [(_('Site'), _fields(report)),
                             (_('Held'), _held(report['held'])),
                             (_('Plan'), _plan(report['plan'])),
                             (_('WAN'), _wan(report))]}


def _fields(report):
    site = report['site']
    held = sum(each['bytes'] for each in report['held'].values())
    return [(_('Hosts up'), tables.alive(site['hosts'])),
            (_('Capacity'), formats.size(site['hosts']['capacity'])),
            (_('Full'), formats.share(held, site['hosts']['capacity'])),
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
            (_('Saved'), _('%(size)s (%(share)s)') % {
                'size': formats.size(whole - moved),
                'share': formats.share(whole - moved, whole)})]


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
            return [sentences.sentence(problem) for problem in
                    problems.of_site(
                        api.client(self.request), report['site']['name'],
                        has_plan=report['plan'] is not None)]
        return []


class SavingsTab(tabs.Tab):
    """What the cache is worth: bytes, time, and money if that has a price."""

    name = _('Savings')
    slug = 'savings'
    preload = False
    template_name = 'image_cache/sites/_savings.html'

    def get_context_data(self, request: http.HttpRequest,
                         **kwargs: typing.Any) -> dict[str, typing.Any]:
        report = self.tab_group.kwargs['report']
        saved = report['whole_bytes'] - report['wan_bytes']
        sections = [(_('WAN'), _wan(report)),
                    (_('Time'), _time(report))]
        price = getattr(conf.settings, 'IMAGE_CACHE_WAN_PRICE', None)
        if price is not None:
            sections.append((_('Money'), _money(saved, price)))
        return {'sections': sections}


def _time(report):
    """Compare what requests took with downloads at the measured rate."""
    took = sum(way['requests'] * way['mean_s'] for way in report['requests']
               if way['way'] not in _NOTICED and way['mean_s'])
    rate = _repository_mbps(report, 'measured')
    whole = None if rate is None else units.transfer_seconds(
        report['whole_bytes'], rate)
    return [
        (_('Requests took'), formats.duration(took)),
        (_('Downloads would take'), formats.duration(whole)),
        (_('Saved'), formats.duration(
            None if whole is None else whole - took)),
        (_('Measured rate'), formats.bandwidth(rate))]


def _money(saved, price):
    currency = getattr(conf.settings, 'IMAGE_CACHE_CURRENCY', '')
    return [(_('Price of 1 GB'), f'{price:g} {currency}'),
            (_('Saved'), f'{saved / _GB * price:.2f} {currency}')]


def _repository_mbps(report, kind):
    """Return a rate of the site from repositories in Mbit/s, if known.

    :param kind: assumed (the lowest) or measured (the highest)
    """
    return report['repository_mbps'].get(kind)


class WhatIfTab(tabs.Tab):
    """What more hosts, larger caches or a faster link would bring."""

    name = _('What If')
    slug = 'what_if'
    preload = False
    template_name = 'image_cache/sites/_what_if.html'
    policy_rules = (('diffcache', 'diffcache:plans:what_if'),)

    def get_context_data(self, request: http.HttpRequest,
                         **kwargs: typing.Any) -> dict[str, typing.Any]:
        """Return the form, and what the change in it would bring."""
        report = self.tab_group.kwargs['report']
        form = forms.WhatIfForm(request.GET if 'add_hosts' in request.GET
                                else None)
        rows: list = []
        if form.is_bound and form.is_valid():
            rows = self._compare(report, form)
        return {'form': form, 'rows': rows}

    def _compare(self, report, form):
        client, site = api.client(self.request), report['site']
        with api.reported(self.request,
                          _('Could not estimate what that would bring')):
            found = client.what_if(site['name'], **form.changes(
                site['hosts'], _repository_mbps(report, 'assumed')))
            before, after = found['before'], found['after']
            return [(label, show(before[name]), show(after[name]))
                    for name, label, show in _FIGURES
                    if name in before and name in after]
        return []


class SiteTabs(tabs.DetailTabsGroup):
    """All tabs of a site."""

    slug = 'site'
    tabs = (OverviewTab, SavingsTab, RequestsTab, ProblemsTab, WhatIfTab)
