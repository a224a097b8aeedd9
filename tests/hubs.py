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
"""Calls that wait, while eventlet's hub has to run.

Not measured by a clock: a process that gets no processor for a while stands
still, too. A call waits until the hub has had some turns, which it never has
if the call keeps the hub's own thread.
"""

import threading
import time

from eventlet import patcher

# Turns for which a call waits, and how long it waits for them at most.
_TURNS = 5
_SECONDS = 60.0
_STEP = 0.01


class Hub:
    """The hub of this process, which eventlet has patched.

    :ivar turns: that the hub has had
    :ivar waits: calls that have waited
    :ivar stopped: whether the hub had no turn while a call waited
    """

    def __init__(self) -> None:
        self.turns = 0
        self.waits = 0
        self.stopped = False
        self._ended = False
        self._clock = patcher.original('time')

    def start(self) -> None:
        """Count turns until :meth:`end`."""
        threading.Thread(target=self._run, daemon=True).start()

    def end(self) -> None:
        """Count no more."""
        self._ended = True

    def wait(self) -> None:
        """Keep the thread that calls it, whatever it runs, for some turns."""
        self.waits += 1
        last = self.turns + _TURNS
        end = self._clock.monotonic() + _SECONDS
        # One that has stopped once is not waited for again.
        while self.turns < last and not self.stopped:
            self.stopped = self._clock.monotonic() > end
            self._clock.sleep(_STEP)

    def _run(self) -> None:
        while not self._ended:
            time.sleep(_STEP)
            self.turns += 1
