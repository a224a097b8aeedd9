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
"""State that all packages of one agent share."""

import collections
import threading

from diffcache_openstack.agent.state import current_map
from diffcache_openstack.agent.state import holdings
from diffcache_openstack.agent.state import withdrawal
from diffcache_openstack.sites import views

# Suspects that wait to be reported; one that is forgotten is found again by
# the next reader.
_MOST_SUSPECTS = 100


class HostState:
    """What one host holds, knows of its site, and has to report.

    :param name: of this host
    :param held: objects on this host's disk
    :param site_map: of this host's site
    :param withdrawn: drops objects of withdrawn images; None for a
        repository, which withdraws images itself
    :ivar report_due: set when this host should report to the conductor at
        once
    :ivar suspects: damaged objects and the hosts that sent them
    """

    def __init__(self, name: str, held: holdings.Holdings,
                 site_map: current_map.SiteMap,
                 withdrawn: withdrawal.Withdrawal | None = None) -> None:
        self.name = name
        self.held = held
        self.site_map = site_map
        self.report_due = threading.Event()
        self.suspects: collections.deque[tuple[str, views.Key]] = (
            collections.deque(maxlen=_MOST_SUSPECTS))
        self._withdrawn = withdrawn

    def object_added(self) -> None:
        """Report a new object, unless its image was withdrawn meanwhile."""
        self.drop_withdrawn()
        self.report_due.set()

    def drop_withdrawn(self) -> None:
        """Drop objects of images that the site map names as withdrawn."""
        if self._withdrawn is not None \
                and self._withdrawn.enforce(self.site_map.current()):
            self.report_due.set()

    def suspect(self, host: str, key: views.Key) -> None:
        """Ask a host to verify an object that arrived damaged from it."""
        self.suspects.append((host, key))
        self.report_due.set()
