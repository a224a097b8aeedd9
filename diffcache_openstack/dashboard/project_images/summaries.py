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
"""What the cache has of an image, as far as a user may know it.

Where it is and how it would get to a host is for operators, by the default
rules of the API; what its servers read is for all who see the image.
"""

import typing

from django import http
from django.utils.translation import gettext_lazy as _
from openstack import exceptions as sdk_exceptions
from openstack_dashboard import policy

from diffcache_openstack.dashboard import api
from diffcache_openstack.dashboard import formats
from diffcache_openstack.dashboard.images import places
from diffcache_openstack.dashboard.images import tables
from diffcache_openstack.dashboard.profiles import tabs as profile_tabs

_LOCATIONS = (('diffcache', 'diffcache:images:locations'),)
_STARTS = (('diffcache', 'diffcache:lookups:show'),)
_PROFILES = (('diffcache', 'diffcache:profiles:list'),
             ('diffcache', 'diffcache:profiles:show'))
# Horizon's own page of an image.
_PAGE = 'horizon:project:images:images:detail'
# Hosts and profiles that are looked at.
_MOST = 20


def summarize(request: http.HttpRequest, image_id: str
              ) -> dict[str, typing.Any]:
    """Return what the template shows of an image."""
    with api.reported(request, _('Could not show the image')):
        try:
            image = api.client(request).get_image(image_id)
        except sdk_exceptions.NotFoundException:
            return {'is_missing': True}
        return {'image_sections': [(_('Image Cache'), _fields(image))],
                'image_tables': [*_locations(request, image),
                                 *_starts(request, image)],
                **_profile(request, image)}
    return {}


def _fields(image):
    found = [
        (_('Status'), dict(tables.STATUSES).get(image.status, image.status)),
        (_('Size'), formats.size(image.size)),
        (_('Data'), formats.size(image.data_size)),
        (_('Over the WAN'), formats.size(image.compressed_size))]
    # Only operators see a number.
    return found if image.host_count is None else [
        *found, (_('Hosts'), image.host_count)]


def _locations(request, image):
    """Return the table of hosts that have the image, if it may be seen."""
    if not policy.check(_LOCATIONS, request):
        return []
    return [(_('Hosts'), tables.LocationsTable(
        request, data=places.locations(request, image)))]


def _starts(request, image):
    """Return the table of how long a start would take, likewise."""
    if not policy.check(_STARTS, request):
        return []
    found: list = []
    with api.reported(request, _('Could not look the image up')):
        found = api.first(api.client(request).lookups, _MOST, image.id)
    return [(_('Time to Start'), tables.StartsTable(
        request, data=places.with_details(request, found)))]


def _profile(request, image):
    """Return what the template shows of the profile of the most servers."""
    if not policy.check(_PROFILES, request):
        return {}
    with api.reported(request, _('Could not list the profiles')):
        found = api.first(api.client(request).profiles, _MOST,
                          image_id=image.id)
        if found:
            most = max(found, key=lambda each: each.instances)
            return profile_tabs.shown(request, image, most.id, _PAGE)
    return {}
