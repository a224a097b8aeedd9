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
"""Ends epochs of the SSD cache early, where hits are not as predicted."""

from diffcache_openstack import _native
from diffcache_openstack.agent.ssdcache import attached
from diffcache_openstack.ssdcache import departures
from diffcache_openstack.ssdcache import engines

# States in which what hits does not depend on what is requested.
_OK = 'ok'


class EarlyEnds:
    """Compares the hits of volumes with what their curves predict.

    :param least: the part of all references by which the hits of a volume
        differ at least
    """

    def __init__(self, least: float) -> None:
        self._departures = departures.Departures(least)

    def look(self, states: attached.States) -> list[str]:
        """Return the reasons to end the epoch early; none to continue it."""
        return self._departures.look(_served(states))

    def end(self, curves: dict[str, _native.HitCurve],
            states: attached.States) -> None:
        """End an epoch.

        :param curves: of what was requested in it, by volume
        :param states: with the sizes in it
        """
        self._departures.end(
            curves, {name: state.limit for name, state in states.items()},
            _served(states))

    def begin(self, curves: dict[str, _native.HitCurve],
              states: attached.States) -> None:
        """Begin an epoch.

        :param curves: of what is expected in it, by volume
        :param states: with the sizes from now on
        """
        self._departures.begin(
            curves, {name: state.limit for name, state in states.items()},
            _served(states))


def _served(states: attached.States) -> dict[str, departures.Served]:
    """Return what was served of volumes that are cached as usual."""
    return {name: _of(state) for name, state in states.items()
            if state.state == _OK}


def _of(state: engines.State) -> departures.Served:
    traffic = state.traffic
    # What a sequence keeps out of the cache is not in curves either.
    references = traffic.hits + traffic.misses - traffic.bypassed
    return departures.Served(references, traffic.hits,
                             state.blocks >= state.limit)
