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
"""What building an image costs on each host, asked of the conductor.

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

# Images whose costs are remembered.
_KEPT = 256

# Seconds by host, of an image on some hosts; raises DiffCacheError.
Ask = typing.Callable[[str, list[str]], dict[str, float]]


class _Answer(typing.NamedTuple):
    when: float
    hosts: frozenset[str]
    seconds: dict[str, float]


class Costs:
    """Costs by image, some seconds old at most.

    :param ask: asks the conductor; may block, in a thread of its own
    :param timeout: seconds that a caller waits for an answer
    :param lifetime: seconds that an answer is used again
    :param retry_interval: seconds without further calls after a failure
    :param clock: seconds, growing
    """

    def __init__(self, ask: Ask, timeout: float, lifetime: float,
                 retry_interval: float,
                 clock: typing.Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._timeout = timeout
        self._lifetime = lifetime
        self._retry_interval = retry_interval
        self._clock = clock
        self._lock = threading.Lock()
        self._answers: collections.OrderedDict[str, _Answer] = (
            collections.OrderedDict())
        self._silent_until = -float('inf')
        self._pool: concurrent.futures.ThreadPoolExecutor | None = None
        self._running: concurrent.futures.Future | None = None

    def of(self, image_id: str, hosts: list[str]) -> dict[str, float]:
        """Return the seconds that each of some hosts takes to get an image.

        :returns: nothing for hosts that run no agent, and for none of them if
            the image is unknown or the conductor does not answer in time
        """
        with self._lock:
            known = self._remembered(image_id, hosts)
            if known is not None:
                return known
            if self._clock() < self._silent_until or not self._idle():
                return {}
            if self._pool is None:
                self._pool = concurrent.futures.ThreadPoolExecutor(
                    1, thread_name_prefix='diffcache-costs')
            self._running = running = self._pool.submit(
                self._fetch, image_id, hosts)
        try:
            return running.result(self._timeout)
        except concurrent.futures.TimeoutError:
            self._failed(f'no answer within {self._timeout} s')
        except exceptions.DiffCacheError as error:
            self._failed(error)
        except Exception as error:
            # The edge to the scheduler, which has servers to place.
            LOG.exception('Could not read the costs of images')
            self._failed(error)
        return {}

    def _idle(self):
        return self._running is None or self._running.done()

    def _remembered(self, image_id, hosts):
        answer = self._answers.get(image_id)
        if (answer is None or self._clock() - answer.when > self._lifetime
                or not answer.hosts.issuperset(hosts)):
            return None
        return answer.seconds

    def _fetch(self, image_id, hosts):
        seconds = self._ask(image_id, hosts)
        with self._lock:
            self._answers[image_id] = _Answer(self._clock(), frozenset(hosts),
                                              seconds)
            self._answers.move_to_end(image_id)
            while len(self._answers) > _KEPT:
                self._answers.popitem(last=False)
        return seconds

    def _failed(self, reason):
        with self._lock:
            self._silent_until = self._clock() + self._retry_interval
        # Not asked again before then, so this is logged once per interval.
        LOG.warning('Could not read the costs of images, weighing all hosts'
                    ' alike for %s s: %s; check the DiffCache conductor and'
                    ' [diffcache] transport_url', self._retry_interval,
                    reason)
