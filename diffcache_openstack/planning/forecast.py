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
"""The forecast of requests that plans are computed for."""

import typing

from oslo_config import cfg

from diffcache_openstack.planning import model
from diffcache_openstack.planning import site_state


class Expected(typing.NamedTuple):
    """The expected number of requests of a host for a content."""

    content_id: str
    host: str
    images: list[str]
    requests_per_day: float


def expected(state: site_state.SiteState, options: cfg.ConfigOpts.GroupAttr
             ) -> list[Expected]:
    """List the demand that a plan would assume, most requests first.

    :param options: the group [planner]
    """
    site_model = model.build(state, options)
    images: dict[str, list[str]] = {}
    for image in state.images:
        images.setdefault(image.content_id, []).append(image.id)
    rates = site_model.instance.rates
    found = [Expected(content_id, host, images[content_id],
                      float(rates[number, column]))
             for number, content_id in enumerate(site_model.contents)
             for column, host in enumerate(site_model.hosts)
             if rates[number, column] > 0]
    return sorted(found, key=lambda entry: (
        -entry.requests_per_day, entry.content_id, entry.host))
