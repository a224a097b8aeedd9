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
"""Waiting for a service of this host that is restarted, as by an upgrade."""

import collections.abc
import logging
import time
import typing

from diffcache_openstack.agent_client import local_client
from diffcache_openstack.common import exceptions

LOG = logging.getLogger(__name__)

_PAUSE_SECONDS = 0.5

Answer = typing.TypeVar('Answer')


class Restarts:
    """Repeats what a service was asked until it runs again.

    One that does not come back costs the wait once: until it answers again,
    nothing else waits for it.

    :param longest: seconds without it after which it is not waited for
    :param clock: seconds, monotonic
    :param sleep: waits some seconds
    """

    def __init__(self, longest: float,
                 clock: collections.abc.Callable[[], float] = time.monotonic,
                 sleep: collections.abc.Callable[[float], object] = time.sleep
                 ) -> None:
        self._longest = longest
        self._clock = clock
        self._sleep = sleep
        self._gone_at: float | None = None

    def over(self, ask: collections.abc.Callable[[], Answer]) -> Answer:
        """Return the service's answer, asked again after a restart.

        :param ask: asks the service; may be called several times
        :raises ServiceUnavailable: the service is gone for too long
        """
        while True:
            try:
                answer = ask()
            except exceptions.DiffCacheError as error:
                if not local_client.is_gone(error):
                    self._gone_at = None
                    raise
                if not self._may_wait(error):
                    raise
            else:
                self._gone_at = None
                return answer
            self._sleep(_PAUSE_SECONDS)

    def _may_wait(self, error: Exception) -> bool:
        now = self._clock()
        if self._gone_at is None:
            self._gone_at = now
            if self._longest:
                LOG.info('Waiting up to %.0f s for a restart: %s',
                         self._longest, error)
        return now - self._gone_at < self._longest
