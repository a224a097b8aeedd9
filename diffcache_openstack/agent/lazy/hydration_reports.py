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
"""Reports to the conductor of how far images are that servers run from."""

import logging

from diffcache_openstack.agent.lazy import lazy_hydrations
from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack import objects
from diffcache_openstack.rpc import conductor_lazy_api

LOG = logging.getLogger(__name__)


class HydrationReports:
    """Reports the hydrations of this host while there are any.

    :param host: name of this host
    :param hydrations: of its images
    :param conductor: RPC client
    """

    def __init__(self, host: str, hydrations: lazy_hydrations.Hydrations,
                 conductor: conductor_lazy_api.LazyAPI) -> None:
        self._host = host
        self._hydrations = hydrations
        self._conductor = conductor
        self._reported: list[objects.Hydration] | None = None

    def report(self, ctxt: contexts.RequestContext) -> None:
        """Report the present state.

        :raises DiffCacheError: the conductor does not answer, or refuses
        """
        try:
            found = self._hydrations.collect()
        except exceptions.ServiceUnavailable as error:
            LOG.debug('Will report hydrations later: %s', error)
            return
        if found == self._reported == []:
            return
        self._conductor.report_hydrations(ctxt, self._host, found)
        self._reported = found

    def repeat(self) -> None:
        """Report again, also that there are none: it may be forgotten."""
        self._reported = None
