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
"""Reports that outlive a dead conductor: kept on disk until delivered."""

import logging
import pathlib
import threading
import typing

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files

LOG = logging.getLogger(__name__)

# Beyond this many, the oldest reports are dropped: history fades anyway.
MOST_KEPT = 10000
BATCH = 100


class Spool:
    """Small documents in the order they came, one file each."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        names = self._names()
        self._lock = threading.Lock()
        self._next = int(names[-1].split('.')[0]) + 1 if names else 0

    def put(self, document: dict) -> None:
        """Keep a document until it is delivered."""
        with self._lock:
            name = f'{self._next:012d}.json'
            self._next += 1
        # Losing the last requests to a power cut costs the forecast nothing.
        files.write_json(self._directory / name, document, durable=False)
        names = self._names()
        for old in names[:-MOST_KEPT]:
            (self._directory / old).unlink(missing_ok=True)

    def __len__(self) -> int:
        return len(self._names())

    def deliver(self, send: typing.Callable[[list[dict]], None]) -> int:
        """Send everything, oldest first, in batches.

        A document is forgotten once ``send`` has returned, so it may be
        sent twice but is never lost. One that is refused for good is logged,
        and not in the way of others.

        :returns: how many were sent, or refused
        :raises Exception: what else ``send`` raises; the rest stays
        """
        count = 0
        while names := self._names()[:BATCH]:
            try:
                self._send(send, names)
            except exceptions.PermanentError:
                for name in names:
                    self._send_alone(send, name)
            for name in names:
                (self._directory / name).unlink(missing_ok=True)
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
            LOG.error('Report %s is of no use and left out: %s', name, error)

    def _names(self) -> list[str]:
        return sorted(path.name
                      for path in self._directory.glob('[0-9]*.json'))
