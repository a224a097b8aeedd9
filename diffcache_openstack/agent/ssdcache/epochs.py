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
"""Ends the epochs of the SSD cache."""

import logging
import threading

from diffcache_openstack.agent.ssdcache import volumes
from diffcache_openstack.common import exceptions

LOG = logging.getLogger(__name__)


class EpochTimer:
    """A thread that ends an epoch regularly.

    :param cached: volumes whose sizes are decided then
    :param seconds: length of an epoch
    """

    def __init__(self, cached: volumes.CachedVolumes, seconds: float) -> None:
        self._cached = cached
        self._seconds = seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True,
                                        name='ssd-cache-epochs')

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the decision that is under way."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._seconds):
            try:
                self._cached.end_epoch()
            except exceptions.DiffCacheError as error:
                LOG.warning('Could not decide sizes in the SSD cache, will'
                            ' retry in %g s: %s', self._seconds, error)
            except Exception:
                LOG.exception('Could not decide sizes in the SSD cache')
