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
"""Volumes as they are attached to the cache, as an engine has them."""

import collections.abc

from diffcache_openstack.agent.ssdcache import volume_settings
from diffcache_openstack.cached_volumes import choices
from diffcache_openstack.common import exceptions
from diffcache_openstack.ssdcache import engines

States = collections.abc.Mapping[str, engines.State]


def find(states: States, name: str) -> engines.State:
    """Return the state of an attached volume.

    :raises NotFound: it is not attached
    """
    if name not in states:
        raise exceptions.NotFound(
            f'Volume {name} is not attached to the SSD cache of this host.')
    return states[name]


def as_it_is(state: engines.State) -> volume_settings.VolumeSettings:
    """Return the settings of a volume that another program attached."""
    return volume_settings.VolumeSettings('', state.mode, state.limit,
                                          state.limit,
                                          sequential=state.sequential,
                                          rates=state.rates)


def known(store: volume_settings.SettingsStore, states: States
          ) -> dict[str, volume_settings.VolumeSettings]:
    """Return what the attached volumes want."""
    kept = store.wanted()
    return {name: as_it_is(state) if state.state == choices.HELD
            else store.settled(name, kept.get(name) or as_it_is(state))
            for name, state in states.items()}
