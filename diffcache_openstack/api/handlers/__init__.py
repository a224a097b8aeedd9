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
"""Handlers of requests, one file per resource."""

import itertools

from diffcache_openstack.api.handlers import hosts
from diffcache_openstack.api.handlers import hydrations
from diffcache_openstack.api.handlers import limits
from diffcache_openstack.api.handlers import lookups
from diffcache_openstack.api.handlers import patches
from diffcache_openstack.api.handlers import plans
from diffcache_openstack.api.handlers import precache
from diffcache_openstack.api.handlers import profiles
from diffcache_openstack.api.handlers import requests
from diffcache_openstack.api.handlers import root
from diffcache_openstack.api.handlers import sites
from diffcache_openstack.api.handlers import images
from diffcache_openstack.api.handlers import version_policies
from diffcache_openstack.api.handlers import version_tasks
from diffcache_openstack.api.handlers import versions
from diffcache_openstack.api.handlers import volume_caches
from diffcache_openstack.api import routing


def routes() -> list[routing.Route]:
    """Return every route of the API."""
    return list(itertools.chain.from_iterable(
        module.TABLE.routes for module in (
            root, hosts, images, patches, plans, lookups, requests,
            precache, sites, versions, version_tasks, version_policies,
            limits, volume_caches, profiles, hydrations)))
