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
"""Tab of the boot profiles of an image."""

import typing

from django import http
from django import urls
from django.utils import html
from django.utils.translation import gettext_lazy as _

from diffcache_openstack.dashboard import api
from diffcache_openstack.dashboard import formats
from diffcache_openstack.dashboard import pages
from diffcache_openstack.dashboard.profiles import heat_maps
from diffcache_openstack.dashboard.profiles import tables


class ProfilesTab(pages.PagedTab):
    """Profiles of the image, and the heat maps of one of them."""

    name = _('Boot Profile')
    slug = 'profiles'
    policy_rules = (('diffcache', 'diffcache:profiles:list'),
                    ('diffcache', 'diffcache:profiles:show'))
    template_name = 'image_cache/profiles/_tab.html'
    table_classes = (tables.ProfilesTable,)

    def get_profiles_data(self) -> list:
        """Return a page of the profiles."""
        found = self.page(tables.ProfilesTable,
                          _('Could not list the profiles'), 'profiles',
                          image_id=self.tab_group.kwargs['image'].id)
        for profile in found:
            profile.source_name = _source_name(self.request, profile)
        return found

    def get_context_data(self, request: http.HttpRequest,
                         **kwargs: typing.Any) -> dict[str, typing.Any]:
        """Return what the template shows: the table, and one profile.

        It is the one that the address names, or that of the most servers.
        """
        context = super().get_context_data(request, **kwargs)
        listed = self._tables[tables.ProfilesTable._meta.name].data or []
        first = max(listed, key=lambda each: each.instances, default=None)
        wanted = request.GET.get('profile') or (first and first.id)
        if wanted:
            context.update(shown(request, self.tab_group.kwargs['image'],
                                 wanted))
        return context


def shown(request: http.HttpRequest, image: typing.Any, profile_id: str,
          page: str = tables.IMAGE) -> dict[str, typing.Any]:
    """Return what the template shows of a profile of an image.

    :param page: name of the address of an image's page
    """
    with api.reported(request, _('Could not show the profile')):
        profile = api.client(request).get_profile(profile_id)
        if profile.image_id == image.id:
            return {'profile': profile,
                    'sections': _sections(request, profile, page),
                    'drawing': heat_maps.draw(profile, image.size or 0)}
    return {}


def _source_name(request, profile):
    """Return the name of the image that a profile was carried from.

    :returns: its ID if it has none, or is there no more; None for no image
    """
    source = profile.carried_from
    return api.named(request, [source])[0] if source else None


def _source_link(request, profile, page):
    source = profile.carried_from
    return html.format_html(
        '<a href="{}">{}</a>', urls.reverse(page, args=[source]),
        _source_name(request, profile))


def _sections(request, profile, page):
    last = max((mean_us for _chunk, _count, mean_us in profile.rows),
               default=0)
    source = [(_('Carried from'), _source_link(request, profile, page))] \
        if profile.carried_from else []
    return [(_('Profile'), [
        (_('Label'), tables.label_of(profile)), *source,
        (_('Servers'), profile.instances),
        (_('Read'), formats.size(profile.chunks * profile.chunk)),
        (_('Last first read'), formats.seconds(last / 1e6)),
        (_('Updated'), formats.instant(profile.updated_at))])]
