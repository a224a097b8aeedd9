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
"""Site maps as they cross the wire, and as look-ups use them."""

import dataclasses

from diffcache_openstack import objects
from diffcache_openstack.sites import view as views


def _template(template: objects.Template) -> views.TemplateRef:
    return views.TemplateRef(**{
        field.name: getattr(template, field.name)
        for field in dataclasses.fields(views.TemplateRef)})


def to_view(site_map: objects.SiteMap) -> views.SiteView:
    """Convert a site map to the form that routes are found in."""
    return views.SiteView(
        site_map.generation,
        tuple(_template(t) for t in site_map.templates),
        tuple(views.PatchRef(p.id, p.base, p.target, p.size, p.apply_seconds)
              for p in site_map.patches),
        tuple(views.HostRef(
            h.name, h.role, h.url or '', h.alive,
            frozenset(views.Key(held.kind, held.id) for held in h.holdings))
            for h in site_map.hosts),
        views.Links(site_map.links.local, site_map.links.peer,
                    site_map.links.repo),
        site_map.hops)
