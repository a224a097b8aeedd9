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
"""Whether work makes progress.

Local work ends by itself. A transfer may wait for a peer for ever, so it is
alive only while bytes arrive. A request that waits for the work of another
one is as alive as that.
"""

import collections.abc
import contextlib


class Pulse:
    """The signs of life of one request's work."""

    def __init__(self) -> None:
        self._transfers = 0
        self._beats = 0
        self._done: tuple[int, int] | None = None
        self._leader: Pulse | None = None

    @contextlib.contextmanager
    def transferring(self) -> collections.abc.Iterator[None]:
        """Require progress for as long as the block lasts."""
        self._transfers += 1
        try:
            yield
        finally:
            self._transfers -= 1
            self._beats += 1

    @contextlib.contextmanager
    def following(self, leader: 'Pulse') -> collections.abc.Iterator[None]:
        """Show the signs of life of other work during the block."""
        self._leader = leader
        try:
            yield
        finally:
            self._leader = None
            self._beats += 1

    def note(self, done: int, total: int) -> None:
        """Note the bytes done and the bytes in all of a transfer."""
        if (done, total) != self._done:
            self._done = done, total
            self._beats += 1

    def state(self) -> tuple[bool, int]:
        """Return whether the work is local, and a count of its progress."""
        if self._leader is not None:
            local, beats = self._leader.state()
            return local, beats + self._beats
        return not self._transfers, self._beats
