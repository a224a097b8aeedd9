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
"""Projects that have servers on a host, as Nova says."""

import collections.abc
import threading
import time

from diffcache_openstack.cloud import servers
from diffcache_openstack.common import exceptions

# What Nova said counts for this long; where it named no server of the project,
# it is asked again earlier: it may have been created since.
_KNOWN_SECONDS = 300.0
_UNKNOWN_SECONDS = 10.0


class Residents:
    """Checks that a host runs servers of the projects it speaks of.

    :param nova: asked for the servers of hosts
    """

    def __init__(self, nova: servers.Servers) -> None:
        self._nova = nova
        self._lock = threading.Lock()
        # By host: its projects, and when Nova named them.
        self._found: dict[str, tuple[frozenset[str], float]] = {}

    def check(self, host: str, projects: collections.abc.Iterable[str]
              ) -> None:
        """Check that a host has a server of each of some projects.

        :raises Forbidden: Nova names none there
        :raises ServiceUnavailable: Nova does not answer
        """
        wanted = set(projects)
        found, when = self._found.get(host, (frozenset(), -_KNOWN_SECONDS))
        age = time.monotonic() - when
        if age > (_KNOWN_SECONDS if wanted <= found else _UNKNOWN_SECONDS):
            # Not under the lock, as Nova may take its time.
            found = frozenset(server.project_id
                              for server in self._nova.on(host))
            with self._lock:
                self._found[host] = found, time.monotonic()
        if missing := sorted(wanted - found):
            raise exceptions.Forbidden(
                f'Host {host} may not exchange profiles of project'
                f' {missing[0]}: Nova names no server of it there (or [nova]'
                f' is not configured).')
