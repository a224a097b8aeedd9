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
"""Choice of how images are built from base and patch: by what it took before.

Which mode is faster depends on the host's disk and processors and on the links
to its peers. All of them are in the seconds of a build, so those are compared.
"""

import collections
import statistics
import threading
import typing

from diffcache_openstack.agent.images import building
from diffcache_openstack.agent.images import site_transfers

AUTO = 'auto'

# Builds whose median is a mode's speed.
_TIMED = 16
# Builds of each mode before their speeds are compared.
_LEAST = 3
# Each this many choices the slower mode is measured again.
_AGAIN = 16
# Builds that fetch a larger part of their bytes over the WAN do not count.
_WAN_PART = 0.01


class BuildModes:
    """Chooses the mode of builds, and learns what they take.

    Not kept over restarts. Methods may be called from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._choices = 0
        self._timed: dict[str, collections.deque[float]] = {
            mode: collections.deque(maxlen=_TIMED) for mode in building.MODES}

    def choose(self) -> str:
        """Return the mode that was faster, now and then the other one."""
        with self._lock:
            fewest = min(building.MODES, key=lambda m: len(self._timed[m]))
            if len(self._timed[fewest]) < _LEAST:
                return fewest
            self._choices += 1
            ranked = sorted(building.MODES, key=lambda mode:
                            statistics.median(self._timed[mode]))
            return ranked[self._choices % _AGAIN == 0]

    def learn(self, mode: str, built: building.Built, size: int) -> None:
        """Note how long a build took, if the mode mattered.

        It does where a peer has the base or the patch; what crosses the WAN is
        copied in either mode. Where the base was still arriving, it was waited
        for.

        :param size: bytes of data of the image
        """
        if built.way == 'build' and size > 0 and not built.awaited \
                and _read_from_peers(built.moved):
            with self._lock:
                self._timed[mode].append(built.seconds / size)

    def report(self) -> dict[str, dict[str, typing.Any]]:
        """Return the builds of each mode that count, and their speed."""
        with self._lock:
            return {mode: {
                'builds': len(timed),
                'seconds_per_gb': statistics.median(timed) * 1e9
                if timed else None} for mode, timed in self._timed.items()}


def _read_from_peers(moved: site_transfers.Moved) -> bool:
    return moved.lan_bytes > 0 \
        and moved.wan_bytes <= _WAN_PART * moved.lan_bytes
