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
"""The default policies, one file per resource."""

import collections

from oslo_policy import policy

from diffcache_openstack.api.policies import base
from diffcache_openstack.api.policies import hosts
from diffcache_openstack.api.policies import hydrations
from diffcache_openstack.api.policies import limits
from diffcache_openstack.api.policies import lookups
from diffcache_openstack.api.policies import patches
from diffcache_openstack.api.policies import plans
from diffcache_openstack.api.policies import precache
from diffcache_openstack.api.policies import profiles
from diffcache_openstack.api.policies import requests
from diffcache_openstack.api.policies import root
from diffcache_openstack.api.policies import sites
from diffcache_openstack.api.policies import images
from diffcache_openstack.api.policies import versions
from diffcache_openstack.api.policies import volume_caches


_MODULES = (base, root, hosts, limits, lookups, patches, plans, precache,
            requests, sites, images, versions, volume_caches, profiles,
            hydrations)


def list_rules() -> list[policy.RuleDefault]:
    """Return every rule, for the enforcer and for the sample.

    What a rule controls are the routes that name it, for all of their
    requests or for some of their parameters.
    """
    # Its modules name the rules.
    from diffcache_openstack.api import handlers
    named = collections.defaultdict(list)
    for route in handlers.routes():
        for name in (route.policy, *route.guarded.values()):
            named[name].append((route.method, route.template))
    return [*base.ROLES, *(rule.documented(named[rule.name])
                           for module in _MODULES for rule in module.RULES)]
