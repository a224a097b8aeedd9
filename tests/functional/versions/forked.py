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
"""Work on version stores in processes that are killed."""

import contextlib
import os
import signal
import time
from typing import Callable


def start(work: Callable[[], object]) -> int:
    """Have a process of its own do some work; return its number."""
    child = os.fork()
    if child == 0:
        # With the programs that it starts: a host that fails takes all.
        os.setpgid(0, 0)
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    # Here too, or the child may do so after its group was killed.
    os.setpgid(child, child)
    return child


def wait(child: int, seconds: float) -> None:
    """Wait for a process, and no longer than that."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if os.waitid(os.P_PID, child,
                     os.WEXITED | os.WNOHANG | os.WNOWAIT):
            break
        time.sleep(0.001)


def kill(child: int) -> None:
    """Kill a process that was not waited for, and what it started."""
    for send in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError):
            send(child, signal.SIGKILL)
