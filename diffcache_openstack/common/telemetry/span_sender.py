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
"""Sending of spans, which no traced work waits for.

A broker or a collector that is down must not delay the delivery of an image.
"""

import collections.abc
import datetime
import logging
import os
import queue
import threading

LOG = logging.getLogger(__name__)

# Starts and ends of spans that wait for the destination; more are dropped.
_MOST_WAITING = 4096

Notify = collections.abc.Callable[[dict], None]


def timestamp(seconds: float) -> str:
    """Return a time in seconds since 1970 as osprofiler writes it, in UTC."""
    time = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return time.strftime('%Y-%m-%dT%H:%M:%S.%f')


class SpanSender:
    """Sends what osprofiler notifies, from a thread of its own.

    The thread starts with the first span: processes fork, and drop their
    privileges, before it.

    :param host: this host's name, which all spans get
    :param connect: returns what sends; may wait for the destination
    """

    def __init__(self, host: str,
                 connect: collections.abc.Callable[[], Notify]) -> None:
        self._host = host
        self._connect = connect
        self._begin()
        # The thread may hold a lock at that moment, and stays behind.
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        """Begin with nothing to send, and without a thread."""
        self._waiting: queue.Queue[dict] = queue.Queue(_MOST_WAITING)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_dropping = False

    def put(self, payload: dict) -> None:
        """Send a start or an end of a span soon, or drop it."""
        self._ensure_started()
        # Not the kernel's, by which osprofiler calls it.
        payload['info']['host'] = self._host
        try:
            self._waiting.put_nowait(payload)
        except queue.Full:
            if not self._is_dropping:
                LOG.warning('Dropping spans, which cannot be sent as fast as'
                            ' they come; check [profiler] connection_string')
            self._is_dropping = True
        else:
            self._is_dropping = False

    def _ensure_started(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True,
                                                name='span-sender')
                self._thread.start()

    def _run(self) -> None:
        notify = self._connect()
        while True:
            payload = self._waiting.get()
            try:
                notify(payload)
            except Exception as error:
                # The thread's edge: the next one may be sent.
                LOG.warning('Could not send a span: %s', error)
