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
"""Finds engines of the SSD cache by name."""

import typing

import stevedore

from diffcache_openstack.common import exceptions
from diffcache_openstack.ssdcache.engines import base

NAMESPACE = 'diffcache.ssdcache.engines'


def load(name: str, settings: base.Settings) -> base.Engine:
    """Open the engine with a name.

    :raises InvalidInput: there is none
    :raises NotConfigured: it needs another option, or root
    """
    found = stevedore.ExtensionManager(NAMESPACE, invoke_on_load=False)
    if name not in found:
        raise exceptions.InvalidInput(
            f'[ssd_cache] engine: there is no {name}, choose one of'
            f' {", ".join(sorted(found.names()))}')
    return typing.cast(base.Engine, found[name].plugin(settings))
