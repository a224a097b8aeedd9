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
"""Plans: the objects that hosts should hold, current or proposed."""

import typing

from werkzeug import exceptions as http

from diffcache_openstack.api import fields
from diffcache_openstack.api import paging
from diffcache_openstack.api.policies import plans as policies
from diffcache_openstack.api import requests
from diffcache_openstack.api import routing
from diffcache_openstack.api.schemas import plans as schemas
from diffcache_openstack.db.views import plan_views

TABLE = routing.Table()
_COMPUTING = ('computing', 'failed')
# Since this version, plans have what they move and save.


@TABLE.route('GET', '/v1/plans', policy=policies.LIST,
             query=schemas.LIST_QUERY, shows=fields.OPERATORS,
             response=schemas.LIST)
def list_plans(request: requests.Request) -> dict[str, typing.Any]:
    """List plans, latest first."""
    return paging.listed(request, 'plans', plan_views.list_plans)


@TABLE.route('GET', '/v1/plans/<plan_id>', policy=policies.SHOW,
             shows=fields.OPERATORS,
             response=schemas.SHOW)
def show_plan(request: requests.Request, plan_id: str
              ) -> dict[str, typing.Any]:
    """Show a plan with all objects that it places."""
    return {'plan': _plan(request, plan_id)}


@TABLE.route('POST', '/v1/plans', policy=policies.CREATE,
             body=schemas.CREATE, shows=fields.OPERATORS,
             response=schemas.CREATED, status=202)
def create_plan(request: requests.Request
                ) -> tuple[dict[str, typing.Any], dict[str, str]]:
    """Start to compute a plan, which will be a proposal."""
    values = request.document['plan']
    plan_id = request.services.control.propose_plan(
        request.context, values['site'], values.get('solver'),
        values.get('time_limit'))
    plan = _summary(request, plan_id)
    return {'plan': plan}, {
        'Location': f'{request.url_root}v1/plans/{plan_id}'}


@TABLE.route('GET', '/v1/plans/<plan_id>/explanation', policy=policies.SHOW,
             query=schemas.EXPLANATION_QUERY, shows=fields.OPERATORS,
             response=schemas.EXPLANATION)
def explain_plan(request: requests.Request, plan_id: str
                 ) -> dict[str, typing.Any]:
    """Explain why a plan places each object where it does."""
    plan = _summary(request, plan_id)
    if plan['state'] in _COMPUTING:
        raise http.Conflict(
            f'Plan {plan_id} is {plan["state"]} and places no objects to'
            f' explain.')
    reasons = request.services.control.explain_plan(request.context, plan_id)
    host = request.parameters.get('host')
    return {'explanation': [reason for reason in reasons
                            if host in (None, reason['host'])]}


@TABLE.route('POST', '/v1/plans/<plan_id>/apply', policy=policies.APPLY,
             body=schemas.APPLY, shows=fields.OPERATORS,
             response=schemas.CREATED)
def apply_plan(request: requests.Request, plan_id: str
               ) -> dict[str, typing.Any]:
    """Make a proposed plan the current one."""
    request.services.control.apply_plan(
        request.context, plan_id, request.document.get('generation'))
    return {'plan': _summary(request, plan_id)}


@TABLE.route('POST', '/v1/plans/<plan_id>/cancel', policy=policies.CANCEL,
             body=schemas.CANCEL, shows=fields.OPERATORS,
             response=schemas.CREATED)
def cancel_plan(request: requests.Request, plan_id: str
                ) -> dict[str, typing.Any]:
    """Discard a proposed plan, or stop computing it."""
    request.services.control.cancel_plan(request.context, plan_id)
    return {'plan': _summary(request, plan_id)}


@TABLE.route('POST', '/v1/what-if', policy=policies.WHAT_IF,
             body=schemas.WHAT_IF, shows=fields.OPERATORS,
             response=schemas.WHAT_IF_ANSWER)
def what_if(request: requests.Request) -> dict[str, typing.Any]:
    """Compare the best plans of a site before and after a change.

    ``saving`` is the share of the mean seconds that images are waited for.
    ``objective`` is what both plans minimize, by default what plans of the
    site do; bytes are those that requests take from repositories, per day and
    per request.
    """
    change = request.document['what_if']
    answer = request.services.control.what_if(
        request.context, change['site'], change['changes'],
        change.get('objective'))
    return {'what_if': {**change, **answer}}


def _plan(request, plan_id):
    return request.look(plan_views.get_plan, plan_id)


def _summary(request, plan_id):
    plan = _plan(request, plan_id)
    del plan['hosts'], plan['items']
    return plan
