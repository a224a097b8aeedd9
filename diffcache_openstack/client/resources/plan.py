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
"""Plans: the objects that hosts should hold."""

import typing

from openstack import resource

from diffcache_openstack.client.resources import base


class Plan(base.Resource):
    """A plan, current or proposed."""

    label = 'Plan'
    resource_key = 'plan'
    resources_key = 'plans'
    base_path = '/plans'
    allow_create = True
    _query_mapping = base.query('site', 'state')

    site = resource.Body('site')
    #: computing, proposed, failed, cancelled, current or superseded.
    state = resource.Body('state')
    generation = resource.Body('generation', type=int)
    #: Generation of the current plan when this one was computed.
    base_generation = resource.Body('base_generation', type=int)
    solver = resource.Body('solver')
    #: Seconds that the solver may take.
    time_limit = resource.Body('time_limit', type=float)
    #: Expected seconds of service per day.
    cost_s = resource.Body('cost_s', type=float)
    lower_bound_s = resource.Body('lower_bound_s', type=float)
    #: Share of the cost that the best plan might save.
    gap = resource.Body('gap', type=float)
    is_proved_optimal = resource.Body('proved_optimal', type=bool)
    solver_seconds = resource.Body('solver_seconds', type=float)
    #: Bytes that the plan moves from the repository, and between hosts.
    move_wan_bytes = resource.Body('move_wan_bytes', type=int)
    move_lan_bytes = resource.Body('move_lan_bytes', type=int)
    #: Seconds until the slowest host holds its part.
    fill_seconds = resource.Body('fill_seconds', type=float)
    #: Seconds of waiting, and bytes from the repository, saved per day.
    saved_seconds = resource.Body('saved_seconds', type=float)
    saved_wan_bytes = resource.Body('saved_wan_bytes', type=int)
    #: What the plan minimizes: seconds or wan_bytes.
    objective = resource.Body('objective')
    #: Bytes that the requests of a day take from repositories.
    cost_wan_bytes = resource.Body('cost_wan_bytes', type=int)
    error = resource.Body('error')
    created_at = resource.Body('created_at')
    hosts = resource.Body('hosts', type=list)
    items = resource.Body('items', type=list)

    def apply(self, session: typing.Any, generation: int | None = None
              ) -> 'Plan':
        """Make it the current plan of its site.

        :param generation: of the current plan that the caller has seen
        """
        body = {} if generation is None else {'generation': generation}
        return self.act(session, 'apply', body)

    def cancel(self, session: typing.Any) -> 'Plan':
        """Discard it."""
        return self.act(session, 'cancel')
