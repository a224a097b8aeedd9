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
"""Requests: the history and the forecast."""

import typing

from oslo_utils import timeutils
from werkzeug import exceptions as http

from diffcache_openstack.api import fields
from diffcache_openstack.api import paging
from diffcache_openstack.api.policies import requests as policies
from diffcache_openstack.api import requests
from diffcache_openstack.api import routing
from diffcache_openstack.api.schemas import requests as schemas
from diffcache_openstack.db.views import request_views
from diffcache_openstack.planning import forecast
from diffcache_openstack.planning import site_state

TABLE = routing.Table()


@TABLE.route('GET', '/v1/requests', policy=policies.LIST,
             query=schemas.LIST_QUERY, shows=fields.OPERATORS,
             response=schemas.LIST)
def list_requests(request: requests.Request) -> dict[str, typing.Any]:
    """List requests, latest first."""
    filters = request.filters()
    for name in ('since', 'until'):
        if name in filters:
            filters[name] = _instant(name, filters[name])
    part = request.look(request_views.list_requests, filters, request.page)
    return paging.document(request, 'requests', part)


@TABLE.route('GET', '/v1/sites/<name>/forecast', policy=policies.FORECAST,
             query=schemas.FORECAST_QUERY, shows=fields.OPERATORS,
             response=schemas.FORECAST)
def show_forecast(request: requests.Request, name: str
                  ) -> dict[str, typing.Any]:
    """Show the requests per day that a site's plans are computed for."""
    conf = request.services.conf
    limit = min(request.parameters.get('limit', requests.PAGE),
                conf.api.max_limit)
    state = request.read(site_state.read, name, conf)[-1]
    expected = forecast.expected(state, conf.planner)
    return {'site': name, 'forecast': [
        {'content_id': entry.content_id, 'host': entry.host,
         'images': entry.images,
         'requests_per_day': entry.requests_per_day}
        for entry in expected[:limit]]}


def _instant(name, text):
    """Parse a time of a query; one without a zone is UTC."""
    try:
        found = timeutils.parse_isotime(text.replace(' ', '+'))
    except ValueError:
        raise http.BadRequest(
            f'{name}: "{text}" is not a time; write 2026-01-31T12:00:00Z.'
        ) from None
    return found
