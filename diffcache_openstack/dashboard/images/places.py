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
"""Where an image is, and how it would get to hosts."""

import typing

from django import http
from django.utils.translation import gettext_lazy as _

from diffcache_openstack.dashboard import api


def locations(request: http.HttpRequest, image: typing.Any) -> list:
    """Return the hosts that hold an image, each with the reason."""
    found: list = []
    with api.reported(request, _('Could not list the hosts')):
        found = list(api.client(request).image_locations(image.id))
    reasons: dict[str, dict[str, str]] = {}
    for place in found:
        if place.site not in reasons:
            reasons[place.site] = _reasons(request, image, place.site)
        place.why = reasons[place.site].get(
            place.host, _('No current plan places it here.'))
    return found


def _reasons(request, image, site):
    """Return why the current plan of a site places the image, by host."""
    client = api.client(request)
    with api.reported(request, _('Could not explain the plan')):
        for plan in client.plans(site=site, state='current', limit=1):
            return {reason['host']: api.in_words(request, reason['why'])
                    for reason in client.explain_plan(plan.id)
                    if reason['id'] == image.content_id}
    return {}


def with_details(request: http.HttpRequest, lookups: list) -> list:
    """Return lookups of an image, with images' names in their details."""
    for each in lookups:
        each.detail = api.in_words(request, each.way.get('detail', ''))
    return lookups
