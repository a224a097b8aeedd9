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
"""Threads that work in rounds, their ends, and locks of single objects."""

import collections.abc
import concurrent.futures
import contextlib
import logging
import threading
import time
import typing

from diffcache_openstack.common import exceptions

_Result = typing.TypeVar('_Result')

LOG = logging.getLogger(__name__)

# A thread that is asked to end notices within a second, unless it waits for
# an answer of another host, which may be down, or compresses a part of a
# patch, which can take some seconds at a high level.
STOP_SECONDS = 5.0
# Between two looks at whether a wait is to end.
_POLL_SECONDS = 0.2


def pause(until: float, look: collections.abc.Callable[[], object]) -> None:
    """Wait until a time of the monotonic clock, in seconds.

    :param look: called twice a second; ends the wait with an error
    """
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, 0.5))
        look()


class KeyedLocks:
    """A lock for each key, so that waiting for one object holds no other up.

    There is one while a thread holds it or waits for it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[typing.Hashable, tuple[threading.Lock, int]] = {}

    @contextlib.contextmanager
    def of(self, key: typing.Hashable) -> collections.abc.Iterator[None]:
        """Hold the lock of a key for a ``with`` block."""
        lock = self._count(key, 1)
        try:
            with lock:
                yield
        finally:
            self._count(key, -1)

    @contextlib.contextmanager
    def attempt(self, key: typing.Hashable
                ) -> collections.abc.Iterator[bool]:
        """Hold the lock of a key if no thread holds it now.

        :returns: whether it is held
        """
        lock = self._count(key, 1)
        is_held = lock.acquire(blocking=False)
        try:
            yield is_held
        finally:
            if is_held:
                lock.release()
            self._count(key, -1)

    def _count(self, key: typing.Hashable, change: int) -> threading.Lock:
        with self._lock:
            lock, users = self._held.get(key, (threading.Lock(), 0))
            if users + change:
                self._held[key] = lock, users + change
            else:
                del self._held[key]
            return lock


class Rounds:
    """Work that is done again and again by a thread, until it is stopped.

    A round that fails ends neither the thread nor the process: the next one
    may succeed.

    :param name: of the thread
    :param work: one round
    :param interval: seconds from a round to the next, unless it is woken
    :param failed: what to log of a round that fails
    :param expected: errors that are logged for debugging alone
    """

    def __init__(self, name: str, work: collections.abc.Callable[[], object],
                 interval: float, failed: str,
                 *expected: type[Exception]) -> None:
        self._work = work
        self._interval = interval
        self._failed = failed
        self._expected = expected
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True,
                                        name=name)

    def start(self) -> None:
        """Start the first round."""
        self._thread.start()

    def wake(self) -> None:
        """Start a round now, or after the one that is under way."""
        self._wake.set()

    def stop(self) -> None:
        """End after the round that is under way, if it ends soon."""
        self._stopped.set()
        self._wake.set()
        if self._thread.ident is not None:
            join(self._thread)

    def _run(self) -> None:
        while True:
            self._wake.clear()
            if self._stopped.is_set():
                return
            try:
                self._work()
            except self._expected as error:
                LOG.debug('%s, will retry in %g s: %s', self._failed,
                          self._interval, error)
            except Exception:
                LOG.exception('%s, will retry in %g s', self._failed,
                              self._interval)
            self._wake.wait(self._interval)


def join(thread: threading.Thread) -> bool:
    """Wait :data:`STOP_SECONDS` at most for a daemon thread that is to end.

    What is left of it ends with the process; its work must survive that as it
    survives a crash.

    :returns: whether it ended
    """
    thread.join(STOP_SECONDS)
    if thread.is_alive():
        LOG.warning('Thread %s did not end within %g s, and is cut off; its'
                    ' work resumes at the next start', thread.name,
                    STOP_SECONDS)
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


def call(work: collections.abc.Callable[[], _Result],
         stopping: threading.Event) -> _Result:
    """Return the result of a call of another host, unless a stop ends it.

    It runs in a daemon thread, which a stop cuts off: the other host may have
    done its part, as when a reply gets lost.

    :param stopping: set when this process stops
    :raises Interrupted: it was set before there was a result
    """
    found: concurrent.futures.Future[_Result] = concurrent.futures.Future()

    def run() -> None:
        try:
            found.set_result(work())
        except BaseException as error:
            # The thread's edge: raised again in the caller's.
            found.set_exception(error)

    if not stopping.is_set():
        threading.Thread(target=run, daemon=True, name='call').start()
    while not stopping.is_set():
        concurrent.futures.wait([found], _POLL_SECONDS)
        if found.done():
            return found.result()
    raise exceptions.Interrupted('This process is stopping.')
