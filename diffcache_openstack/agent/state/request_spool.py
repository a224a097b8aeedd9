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
"""Records of requests, kept on disk until the conductor has them."""

import collections
import itertools
import logging
import pathlib
import threading
import typing

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack import objects

LOG = logging.getLogger(__name__)

# Beyond this many, the oldest records are dropped: history fades anyway.
MOST_KEPT = 10000
BATCH = 100


class RequestSpool:
    """Records of requests in the order they were added, one file each."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._names = collections.deque(sorted(
            path.name for path in directory.glob('[0-9]*.json')))
        self._next = int(self._names[-1].split('.')[0]) + 1 \
            if self._names else 0

    def add(self, request: objects.Request) -> None:
        """Store a request's record until the conductor has it.

        A full filesystem costs the record, not the request.
        """
        try:
            self.put(request.obj_to_primitive())
        except exceptions.NoSpace as error:
            LOG.error('Could not store request %s for the conductor; it will'
                      ' be missing in the history: %s', request.id, error)

    def put(self, document: dict) -> None:
        """Store a record, as a document, until the conductor has it.

        :raises NoSpace: the filesystem is full
        """
        with self._lock:
            name = f'{self._next:012d}.json'
            self._next += 1
            # Under the lock, for the order. Losing the last requests to a
            # power cut costs the forecast nothing.
            files.write_json(self._directory / name, document, durable=False)
            self._names.append(name)
            too_many = [self._names.popleft()
                        for _ in range(len(self._names) - MOST_KEPT)]
        self._remove(too_many)

    def __len__(self) -> int:
        return len(self._names)

    def deliver(self, send: typing.Callable[[list[dict]], None]) -> int:
        """Send all records, oldest first, in batches.

        A record is deleted once ``send`` has returned, so it may be sent
        twice but is never lost. One that is refused permanently is logged
        and dropped, so that others can be delivered.

        :returns: how many were sent, or refused
        :raises Exception: any other error of ``send``; the rest stays
        """
        count = 0
        while names := self._oldest():
            try:
                self._send(send, names)
            except exceptions.PermanentError:
                for name in names:
                    self._send_alone(send, name)
            with self._lock:
                # Meanwhile the oldest may have been dropped.
                while self._names and self._names[0] <= names[-1]:
                    self._names.popleft()
            self._remove(names)
            count += len(names)
        return count

    def _send(self, send, names):
        documents = [files.read_json(self._directory / name)
                     for name in names]
        send([d for d in documents if d is not None])

    def _send_alone(self, send, name):
        try:
            self._send(send, [name])
        except exceptions.PermanentError as error:
            LOG.error('Dropping request record %s: %s', name, error)

    def _oldest(self) -> list[str]:
        with self._lock:
            return list(itertools.islice(self._names, BATCH))

    def _remove(self, names: list[str]) -> None:
        for name in names:
            (self._directory / name).unlink(missing_ok=True)
