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
"""How fast work is done, and when it has to wait.

Requests run as fast as they can. Fills keep to a rate and to time windows,
and the data plane takes them off the WAN while a request of the same host
uses it. A fill that a request waits for becomes a request at once.
"""

import collections.abc
import threading

from diffcache_openstack import _native
from diffcache_openstack.agent.data_plane import orders
from diffcache_openstack.agent.images.limits import pulses
from diffcache_openstack.common import exceptions


class Throttle:
    """The throttle of a request: as fast as possible.

    :param handle: of the orders that are made for it
    :param durable: whether what is written must survive a power cut
    :ivar excluded: hosts that nothing may be read from
    :ivar progress: receives the bytes done and the bytes in all of the
        transfer that is under way
    :ivar abandoned: whether no client waits for the result any more
    :ivar pulse: shows whether the work makes progress
    """

    job_class = orders.JobClass.REQUEST
    rate: float | None = None
    excluded: frozenset[str] = frozenset()
    progress: collections.abc.Callable[[int, int], None] | None = None
    abandoned: collections.abc.Callable[[], bool] | None = None

    def __init__(self, handle: _native.Handle, *,
                 durable: bool = True) -> None:
        self.handle = handle
        self.durable = durable
        self.pulse = pulses.Pulse()

    def note(self, done: int, total: int, over_wan: bool) -> None:
        """Check whether the work may continue, and report progress.

        See :class:`.orders.Progress`.

        :raises Cancelled: it may not
        """
        self.check(over_wan)
        self.pulse.note(done, total)
        if total and self.progress is not None:
            self.progress(done, total)

    def check(self, over_wan: bool) -> None:
        """Check whether the work may continue.

        :raises Cancelled: no client waits for it any more
        """
        if self.abandoned is not None and self.abandoned():
            raise exceptions.Cancelled('The client has disconnected.')

    def promote(self) -> None:
        """Do nothing: a request has no limits."""

    @property
    def can_wait(self) -> bool:
        """Whether no client waits for the work."""
        return False


class FillThrottle(Throttle):
    """The throttle of a fill.

    :param rate: bytes/s, None for no limit
    :param may_run: whether the time windows are open; they bind the WAN
        only, what is at the site already moves at any time
    """

    job_class = orders.JobClass.FILL

    def __init__(self, handle: _native.Handle, rate: float | None,
                 may_run: collections.abc.Callable[[], bool]) -> None:
        super().__init__(handle)
        self.rate = rate
        self._may_run = may_run
        self._promoted = threading.Event()

    def check(self, over_wan: bool) -> None:
        """Check whether the work may continue.

        :raises Cancelled: it uses the WAN outside of the time windows
        """
        if over_wan and self.can_wait and not self._may_run():
            raise exceptions.Cancelled('The time window of the fill closed.')

    def promote(self) -> None:
        """Lift rate and time windows: a request waits for this fill."""
        self._promoted.set()
        self.rate = None
        self.handle.promote()

    @property
    def promoted(self) -> bool:
        """Whether a request waits for this fill."""
        return self._promoted.is_set()

    @property
    def can_wait(self) -> bool:
        """Whether no client waits for the work."""
        return not self._promoted.is_set()

    def stop(self) -> None:
        """End permanently, keeping what has arrived."""
        self.handle.cancel()
