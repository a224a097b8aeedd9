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

import collections.abc
import contextlib
import logging
import threading

from diffcache_openstack.agent.ssdcache import cached_volumes
from diffcache_openstack.common import exceptions
from diffcache_openstack.ssdcache import departures

LOG = logging.getLogger(__name__)

_DECIDE = 'decide sizes in the SSD cache'


class EpochTimer:
    """A thread that ends an epoch regularly, or early.

    :param cached: volumes whose sizes are decided then
    """

    def __init__(self, cached: cached_volumes.CachedVolumes) -> None:
        self._cached = cached
        self._seconds = float(cached.rules.epoch)
        self._look = min(self._seconds,
                         cached.rules.shortest / departures.LOOKS)
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
        left = self._seconds
        while not self._stopped.wait(min(left, self._look)):
            left -= self._look
            with self._continuing('serve volumes by vhost-user again', left):
                self._cached.reopen_vhost()
            with self._continuing('give volumes back to write-back', left):
                self._cached.give_back_unused()
            if left <= 0:
                left = self._seconds
                with self._continuing(_DECIDE, left):
                    self._cached.end_epoch()
                continue
            with self._continuing(_DECIDE, left):
                if self._cached.end_epoch_early():
                    left = self._seconds

    @contextlib.contextmanager
    def _continuing(self, what: str, left: float
                    ) -> collections.abc.Iterator[None]:
        """Log an error of the block, and let the thread continue."""
        try:
            yield
        except exceptions.DiffCacheError as error:
            LOG.warning('Could not %s, will retry in %g s: %s', what,
                        min(left, self._look) if left > 0 else self._look,
                        error)
        except Exception:
            LOG.exception('Could not %s', what)
