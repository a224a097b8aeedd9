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
"""Client of this host's agent, for Glance's cache driver.

Without the agent Glance works as it does without a cache. That is logged,
counted, and reported to the agent when it is back.
"""

import collections
import collections.abc
import contextlib
import logging
import threading
import time
import typing

from diffcache_openstack.agent_client import local_client
from diffcache_openstack.common import exceptions

LOG = logging.getLogger(__name__)

SERVICE = 'glance-api'
# One unanswered read in this many seconds is logged as a warning.
_LOG_SECONDS = 30.0
# Between two looks at whether a download still makes progress.
_WATCH_SECONDS = 5.0

Result = typing.TypeVar('Result')


class HostAgent:
    """Answers, or what is done without one.

    :param client: of the agent's socket
    :param stall_timeout: seconds to wait for bytes of an image
    :param clock: seconds, monotonic
    """

    def __init__(self, client: local_client.LocalClient,
                 stall_timeout: float,
                 clock: collections.abc.Callable[[], float] = time.monotonic
                 ) -> None:
        self.client = client
        self._clock = clock
        self._stall_timeout = stall_timeout
        self._lock = threading.Lock()
        self._unreported: collections.Counter = collections.Counter()
        self._warn_at = clock()

    def image(self, image_id: str) -> dict | None:
        """Return the agent's description of an image, or None."""
        return self._ask(lambda: self.client.image(image_id), None, image_id)

    def ask(self, question: collections.abc.Callable[
            [local_client.LocalClient], Result], otherwise: Result) -> Result:
        """Call the agent; return ``otherwise`` if it does not answer."""
        return self._ask(lambda: question(self.client), otherwise, None)

    def open(self, image_id: str, first: int = 0, last: int | None = None,
             site_only: bool = False
             ) -> typing.ContextManager[local_client.File]:
        """Open an image's file; see LocalClient.file."""
        return self.client.file(image_id, first, last, site_only,
                                self._stall_timeout)

    def prefetch(self, image_id: str) -> None:
        """Bring an image's file to the site; see LocalClient.prefetch."""
        self.client.prefetch(image_id, self._stall_timeout)

    @contextlib.contextmanager
    def expecting(self, image_id: str,
                  is_slow: collections.abc.Callable[[], bool]
                  ) -> collections.abc.Iterator[None]:
        """Announce that Glance reads an image's file over the WAN meanwhile.

        The agent makes fills of the site wait meanwhile, if it is reachable.

        :param is_slow: whether they are not to wait any longer; called now
            and then, in another thread, until the block ends
        """
        done = threading.Event()
        with contextlib.ExitStack() as stack:
            def watch() -> None:
                while not done.wait(_WATCH_SECONDS):
                    if is_slow():
                        LOG.info('The download of image %s is slow; fills of'
                                 ' the site no longer wait for it', image_id)
                        stack.close()
                        return

            thread = threading.Thread(target=watch, daemon=True)
            try:
                stack.enter_context(self.client.expecting(image_id))
                thread.start()
            except exceptions.DiffCacheError as error:
                LOG.info('Could not announce the download of image %s, its'
                         ' content may cross the WAN twice: %s', image_id,
                         error)
            try:
                yield
            finally:
                done.set()
                if thread.ident is not None:
                    thread.join()

    def fell_back(self, image_id: str, reason: str, why: object) -> None:
        """Count a read from Glance's store in place of the agent."""
        with self._lock:
            self._unreported[reason] += 1
            now = self._clock()
            due = now >= self._warn_at
            if due:
                self._warn_at = now + _LOG_SECONDS
        log = LOG.warning if due else LOG.debug
        log('Image %s is read from the store of Glance (%s): %s', image_id,
            reason, why)

    def fallbacks(self) -> int:
        """Return this process's fallbacks that are not reported yet."""
        with self._lock:
            return sum(self._unreported.values())

    def _ask(self, question, otherwise, image_id):
        try:
            answer = question()
        except exceptions.NotFound:
            return otherwise
        except exceptions.DiffCacheError as error:
            self.fell_back(image_id or '*', type(error).__name__, error)
            return otherwise
        self._report()
        return answer

    def _report(self):
        with self._lock:
            due, self._unreported = self._unreported, collections.Counter()
        for reason, count in due.items():
            try:
                self.client.fallback(SERVICE, reason, count)
            except exceptions.DiffCacheError as error:
                LOG.info('Agent unreachable, will report fallbacks later:'
                         ' %s', error)
                with self._lock:
                    self._unreported[reason] += count
