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
"""What the conductor says of each host: costs of images, room for volumes.

The scheduler must not wait for a conductor that is slow or gone, so a thread
of our own asks, and answers are remembered for a while.
"""

import collections
import concurrent.futures
import logging
import threading
import time
import typing

from diffcache_openstack.common import exceptions

LOG = logging.getLogger(__name__)

# Answers that are remembered.
_KEPT = 256

# A number by host: of an image or a server, on some hosts; raises
# DiffCacheError.
Ask = typing.Callable[[str, list[str]], dict[str, float]]


class _Answer(typing.NamedTuple):
    when: float
    hosts: frozenset[str]
    numbers: dict[str, float]


class Costs:
    """Numbers by image or server, some seconds old at most.

    :param ask: asks the conductor; may block, in a thread of its own
    :param timeout: seconds that a caller waits for an answer
    :param lifetime: seconds that an answer is used again
    :param retry_interval: seconds without further calls after a failure
    :param subject: of the numbers, for the log
    :param clock: seconds, growing
    :ivar failures: calls without an answer in time
    """

    def __init__(self, ask: Ask, timeout: float, lifetime: float,
                 retry_interval: float, subject: str = 'costs of images',
                 clock: typing.Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._timeout = timeout
        self._lifetime = lifetime
        self._retry_interval = retry_interval
        self._subject = subject
        self._clock = clock
        self.failures = 0
        self._lock = threading.Lock()
        self._answers: collections.OrderedDict[str, _Answer] = (
            collections.OrderedDict())
        self._silent_until = -float('inf')
        self._pool: concurrent.futures.ThreadPoolExecutor | None = None
        self._running: concurrent.futures.Future | None = None

    def of(self, key: str, hosts: list[str]) -> dict[str, float]:
        """Return the numbers of an image or a server on some hosts.

        :param key: ID of the image or server
        :returns: nothing for hosts that run no agent, and for none of them if
            the key is unknown or the conductor does not answer in time
        """
        with self._lock:
            known = self._remembered(key, hosts)
            if known is not None:
                return known
            if self._clock() < self._silent_until or not self._idle():
                return {}
            if self._pool is None:
                self._pool = concurrent.futures.ThreadPoolExecutor(
                    1, thread_name_prefix='diffcache-costs')
            self._running = running = self._pool.submit(
                self._fetch, key, hosts)
        try:
            return running.result(self._timeout)
        except concurrent.futures.TimeoutError:
            self._failed(f'no answer within {self._timeout} s')
        except exceptions.DiffCacheError as error:
            self._failed(error)
        except Exception as error:
            # The edge to the scheduler, which has servers to place.
            LOG.exception('Could not read the %s', self._subject)
            self._failed(error)
        return {}

    def _idle(self):
        return self._running is None or self._running.done()

    def _remembered(self, key, hosts):
        answer = self._answers.get(key)
        if (answer is None or self._clock() - answer.when > self._lifetime
                or not answer.hosts.issuperset(hosts)):
            return None
        return answer.numbers

    def _fetch(self, key, hosts):
        numbers = self._ask(key, hosts)
        with self._lock:
            self._answers[key] = _Answer(self._clock(), frozenset(hosts),
                                         numbers)
            self._answers.move_to_end(key)
            while len(self._answers) > _KEPT:
                self._answers.popitem(last=False)
        return numbers

    def _failed(self, reason):
        with self._lock:
            self._silent_until = self._clock() + self._retry_interval
            self.failures += 1
            failures = self.failures
        # Not asked again before then, so this is logged once per interval.
        LOG.warning('Could not read the %s, weighing all hosts alike for %s'
                    ' s (%d times since the start): %s; check the DiffCache'
                    ' conductor and [diffcache] transport_url', self._subject,
                    self._retry_interval, failures, reason)
