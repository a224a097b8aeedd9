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
"""Ends of threads when a service stops."""

import collections.abc
import logging
import threading

LOG = logging.getLogger(__name__)

# A thread that is asked to end notices within a second, unless it waits for
# an answer of another host, which may be down.
STOP_SECONDS = 5.0


def join(thread: threading.Thread) -> bool:
    """Wait :data:`STOP_SECONDS` at most for a daemon thread that is to end.

    What is left of it ends with the process; its work must survive that as it
    survives a crash.

    :returns: whether it ended
    """
    thread.join(STOP_SECONDS)
    if thread.is_alive():
        LOG.warning('Thread %s did not end within %g s, and is cut off: it'
                    ' waits for another host; its work resumes at the next'
                    ' start', thread.name, STOP_SECONDS)
        return False
    return True


def end(name: str, work: collections.abc.Callable[[], object]) -> bool:
    """Do what ends something, in a thread of a name that :func:`join` joins.

    A message broker that is away can hold the end of a server for as long as
    it is.

    :returns: whether it was done
    """
    thread = threading.Thread(target=work, daemon=True, name=name)
    thread.start()
    return join(thread)
