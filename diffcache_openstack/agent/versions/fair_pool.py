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
"""A thread pool that shares its threads fairly among keys."""

import collections
import collections.abc
import concurrent.futures
import threading

Work = collections.abc.Callable[[], None]


class FairPool:
    """Runs work in threads, in turn of the keys that it is submitted under.

    Work of one key waits while as much of that key runs as a share allows,
    and never work of others: however much a project submits, and however long
    it takes, the next project's first piece starts as soon as a thread is
    free.

    :param workers: threads
    :param share: threads that may work for one key at a time
    :param name: prefix of the threads' names
    """

    def __init__(self, workers: int, share: int, name: str) -> None:
        self._free = workers
        self._share = share
        self._lock = threading.Lock()
        # Keys whose turn comes next are first.
        self._waiting: dict[str, collections.deque[Work]] = {}
        self._running: collections.Counter[str] = collections.Counter()
        self._threads = concurrent.futures.ThreadPoolExecutor(
            workers, thread_name_prefix=name)
        self._closed = False

    def submit(self, key: str, work: Work) -> None:
        """Run work when it is its key's turn; errors are the work's own."""
        with self._lock:
            if self._closed:
                return
            self._waiting.setdefault(key, collections.deque()).append(work)
            self._start()

    def shutdown(self) -> None:
        """Drop what waits, and wait for what runs."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
        self._threads.shutdown()

    def _start(self):
        """Start what may be started; the lock is held."""
        while self._free and not self._closed:
            key = next((key for key in self._waiting
                        if self._running[key] < self._share), None)
            if key is None:
                return
            queue = self._waiting.pop(key)
            work = queue.popleft()
            if queue:
                # Behind the keys that wait already.
                self._waiting[key] = queue
            self._free -= 1
            self._running[key] += 1
            self._threads.submit(self._run, key, work)

    def _run(self, key, work):
        try:
            work()
        finally:
            with self._lock:
                self._free += 1
                self._running[key] -= 1
                if not self._running[key]:
                    del self._running[key]
                self._start()
