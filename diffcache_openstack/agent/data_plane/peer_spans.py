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
"""Spans of what peers read from this host for traces.

The data plane serves peers from native code, which passes on what they say of
their trace. Here that is verified, and what is genuine is sent.
"""

from diffcache_openstack.agent.data_plane import native_plane
from diffcache_openstack.common.telemetry import tracing
from diffcache_openstack.common import threads

INTERVAL_SECONDS = 1.0
# An object is read by many requests, which one span stands for.
_QUIET_SECONDS = 2.0


class PeerSpans(threads.Rounds):
    """Sends a span of each object that a peer read in a step of its trace.

    :param plane: the data plane of this host
    """

    def __init__(self, plane: native_plane.DataPlane) -> None:
        super().__init__('served-spans', lambda: self.send(_QUIET_SECONDS),
                         INTERVAL_SECONDS, 'Could not send spans')
        self._plane = plane

    def stop(self) -> None:
        """Send those that are left, and stop."""
        super().stop()
        self.send(0.0)

    def send(self, quiet: float) -> None:
        """Send a span of all that peers read and seem to have done with.

        :param quiet: seconds in which they did not read more of it
        """
        for each in self._plane.take_served(quiet):
            origin = tracing.open_ticket(each.trace)
            if origin is not None:
                tracing.report(
                    origin, 'serve', tracing.Times(each.began, each.ended),
                    host=self._plane.name, object=each.key, bytes=each.size,
                    requests=each.requests)
