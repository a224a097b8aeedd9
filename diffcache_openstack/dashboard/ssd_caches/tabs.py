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
"""Tabs of the pages of an SSD cache and of a volume in one."""

import contextlib
import typing

from django import http
from django.utils.translation import gettext_lazy as _
from horizon import tabs
from openstack import exceptions as sdk_exceptions

from diffcache_openstack.dashboard import api
from diffcache_openstack.dashboard import formats
from diffcache_openstack.dashboard import pages
from diffcache_openstack.dashboard.ssd_caches import curves
from diffcache_openstack.dashboard.ssd_caches import tables


_LOST = _('Lost by the storage, in bytes')


class OverviewTab(tabs.Tab):
    """State and capacity."""

    name = _('Overview')
    slug = 'overview'
    template_name = 'image_cache/_fields.html'

    def get_context_data(self, request: http.HttpRequest,
                         **kwargs: typing.Any) -> dict[str, typing.Any]:
        cache = self.tab_group.kwargs['cache']
        return {'sections': [(_('SSD Cache'), [
            (_('Host'), cache.host),
            (_('State'), dict(tables.STATES).get(cache.state, cache.state)),
            (_('Capacity'), formats.blocks(cache.capacity)),
            (_('Volumes'), cache.volumes), (_('Policy'), cache.policy),
            (_('Epoch'), formats.seconds(cache.epoch)),
            (_('Last report'), formats.instant(cache.updated_at))])]}


class VolumesTab(pages.PagedTab):
    """Volumes that share the cache."""

    name = _('Volumes')
    slug = 'volumes'
    policy_rules = (('diffcache', 'diffcache:volume_caches:list'),)
    table_classes = (tables.VolumesTable,)

    def get_volume_caches_data(self) -> list:
        """Return the rows of the page."""
        return self.page(tables.VolumesTable, _('Could not list the volumes'),
                         'volume_caches',
                         host=self.tab_group.kwargs['cache'].host)


class DecisionsTab(pages.PagedTab):
    """The latest decisions about sizes, each with its reasons."""

    name = _('Decisions')
    slug = 'decisions'
    table_classes = (tables.DecisionsTable,)

    def get_decisions_data(self) -> list[dict[str, typing.Any]]:
        """Return the decisions."""
        return self.tab_group.kwargs['cache'].decisions or []


class CacheTabs(tabs.DetailTabsGroup):
    """All tabs of an SSD cache."""

    slug = 'ssd_cache'
    tabs = (OverviewTab, VolumesTab, DecisionsTab)


class _VolumeTab(tabs.Tab):
    """How a volume is cached, its curve, and why it has its size."""

    name = _('SSD Cache')
    slug = 'image_cache_ssd_cache'
    preload = False
    permissions = ('openstack.services.diffcache',)
    policy_rules = (('diffcache', 'diffcache:volume_caches:show'),)
    template_name = 'image_cache/ssd_caches/_volume.html'

    def shown(self, volume: typing.Any) -> dict[str, typing.Any]:
        """Return what the template shows of a cached volume."""
        curve = self._curve(volume)
        return {
            'sections': [(_('SSD Cache'), _fields(volume)),
                         (_('References'), _references(volume, curve))],
            'reasons': volume.explain or (), 'curve': curve,
            'drawing': curve and curves.draw(curve, volume.limit)}

    def _curve(self, volume):
        """Return the curve of the last epoch; None until one has ended."""
        with api.reported(self.request, _('Could not show the curve')), \
                contextlib.suppress(sdk_exceptions.NotFoundException):
            return api.client(self.request).volume_curve(volume.id)
        return None


class CachedVolumeTab(_VolumeTab):
    """On the page of a volume in an SSD cache, for operators."""

    preload = True

    def get_context_data(self, request: http.HttpRequest,
                         **kwargs: typing.Any) -> dict[str, typing.Any]:
        return self.shown(self.tab_group.kwargs['volume'])


class ProjectVolumeTab(_VolumeTab):
    """On Horizon's own page of a volume, which may have no SSD cache."""

    def get_context_data(self, request: http.HttpRequest,
                         **kwargs: typing.Any) -> dict[str, typing.Any]:
        with api.reported(request, _('Could not show the SSD cache')):
            with contextlib.suppress(sdk_exceptions.NotFoundException):
                return self.shown(api.client(request).get_volume_cache(
                    self.tab_group.kwargs['volume'].id))
            return {'is_missing': True}
        return {}


class ServerVolumesTab(tabs.Tab):
    """On Horizon's own page of a server: its volumes in the SSD cache."""

    name = _('SSD Cache')
    slug = 'image_cache_ssd_cache'
    preload = False
    permissions = ('openstack.services.diffcache',)
    policy_rules = (('diffcache', 'diffcache:volume_caches:list'),)
    template_name = 'image_cache/ssd_caches/_server.html'

    def get_context_data(self, request: http.HttpRequest,
                         **kwargs: typing.Any) -> dict[str, typing.Any]:
        """Return a section for each volume, those with losses first."""
        volumes = []
        with api.reported(request, _('Could not list the volumes')):
            volumes = sorted(
                api.client(request).volume_caches(
                    server_id=self.tab_group.kwargs['instance_id']),
                key=lambda volume: (not volume.losses, volume.id))
        return {'sections': [(volume.id, _of_server(volume))
                             for volume in volumes]}


class VolumeTabs(tabs.DetailTabsGroup):
    """All tabs of a volume in an SSD cache."""

    slug = 'volume_cache'
    tabs = (CachedVolumeTab,)


def _fields(volume):
    found = [
        (_('Mode'), dict(tables.MODES).get(volume.mode, volume.mode)),
        (_('State'), dict(tables.STATES).get(volume.state, volume.state)),
        (_('Size'), formats.blocks(volume.limit)),
        (_('At least'), formats.blocks(volume.min)),
        (_('At most'), formats.blocks(volume.max)),
        (_('Cached'), formats.blocks(volume.blocks)),
        (_('Not written back'), formats.blocks(volume.dirty)),
        (_('Target'), volume.sla or formats.NOTHING),
        (_('Last report'), formats.instant(volume.updated_at))]
    if volume.losses:
        found.insert(2, (_LOST, ', '.join(volume.losses)))
    # Only operators see hosts.
    return ([(_('Host'), volume.host)] if volume.host else []) + found


def _of_server(volume):
    """Return what is shown of a volume on the page of its server."""
    shown = (_('Mode'), _('State'), _('Size'), _('Not written back'), _LOST)
    return [(_('Hits'), tables.hit_ratio(volume)), *(
        field for field in _fields(volume) if field[0] in shown)]


def _references(volume, curve):
    found = [
        (_('Reads'), volume.reads), (_('Writes'), volume.writes),
        (_('Hits'), tables.hit_ratio(volume)),
        (_('Evictions'), volume.evictions)]
    return found if curve is None else [
        *found, (_('In the last epoch'), curve['references']),
        (_('Working set'), formats.blocks(curve['distinct']))]
