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
"""What backends with cached volumes report: to schedulers, and to users."""

import typing

from diffcache_openstack.cached_volumes import choices
from diffcache_openstack.objects import volume_specs

Proceed = typing.Callable[[], typing.Any]

# The capability that extra specs can ask for beside Cinder's ``cacheable``.
SSD_CACHE = 'diffcache_ssd_cache'
_KEY = volume_specs.PREFIX


def _get_volume_stats(_driver: typing.Any, proceed: Proceed,
                      _refresh: bool = False) -> typing.Any:
    """Report the capability, of each pool, too: schedulers look at pools.

    A backend that says that it is not cacheable stays so.
    """
    stats = proceed()
    if not stats:
        return stats
    found = _capable(stats)
    if stats.get('pools'):
        found['pools'] = [_capable(pool) for pool in stats['pools']]
    return found


def _capable(stats: dict[str, typing.Any]) -> dict[str, typing.Any]:
    cacheable = stats.get('cacheable')
    return {**stats, 'cacheable': True if cacheable is None else cacheable,
            SSD_CACHE: True}


def _init_capabilities(driver: typing.Any, proceed: Proceed) -> None:
    """Add our properties: a driver has one vendor prefix, the backend's."""
    proceed()
    driver.capabilities['properties'].update(properties(driver))


def properties(driver: typing.Any) -> dict[str, dict[str, typing.Any]]:
    """Return the keys of volume types, as vendor properties of a driver."""
    found: dict[str, dict[str, typing.Any]] = {}
    for key, title, description, kind, more in (
            ('', 'SSD cache', 'Cache volumes on the SSD of the host of their'
             ' server, in this mode.', 'string',
             {'enum': [*volume_specs.MODES, 'off'], 'default': 'off'}),
            (':min', 'Minimum cache size', 'Minimum cache size of each volume,'
             ' such as 2GiB.', 'string', {}),
            (':max', 'Maximum cache size', 'Maximum cache size of each'
             ' volume.', 'string', {}),
            (':weight', 'Weight', 'What a hit of these volumes is worth beside'
             ' those of others, above 0.', 'string', {'default': '1'}),
            (':priority', 'Priority', 'On hosts with the policy "priority",'
             ' volumes with the highest number are cached first.', 'string',
             {}),
            (':sla', 'Target', 'What each volume is to reach: hit=0.9 or'
             ' latency=2ms.', 'string', {}),
            (':sequential', 'Sequential limit', 'Bytes in sequence after which'
             ' requests are not cached, such as 1MiB.', 'string', {}),
            (':admission', 'Admission', 'Cache a block at this reference to'
             ' it.', 'integer',
             {'minimum': 1, 'maximum': choices.MAX_ADMISSION}),
            (':required', 'Required', 'Rather not attach a volume than without'
             ' the cache.', 'boolean', {'default': False})):
        driver._set_property(found, f'{_KEY}{key}', title, description, kind,
                             **more)
    return found


AROUND: dict[str, typing.Callable[..., typing.Any]] = {
    'get_volume_stats': _get_volume_stats,
    'init_capabilities': _init_capabilities,
}
