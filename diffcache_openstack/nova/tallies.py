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
"""Counts of where nova-compute's images came from, kept over restarts."""

import collections
import logging
import pathlib
import threading
import typing

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.objects import versioned

LOG = logging.getLogger(__name__)

DELIVERED = 'delivered'
PASSED = 'passed'
FALLBACKS = 'fallbacks'
UNSAVED = 'unsaved'
LAZY = 'lazy'
UNCACHED = 'uncached_volumes'
SNAPSHOTS = 'snapshots'


class Tally:
    """Counts in memory and in a file, which is replaced with each change.

    A file that cannot be written costs the counts their durability, never
    an image.
    """

    def __init__(self, path: pathlib.Path) -> None:
        """Continue with the counts of the file, if it exists."""
        self._path = path
        self._lock = threading.Lock()
        document = _read(path)
        self._since = str(document.get('since') or versioned.now().isoformat())
        self._last = document.get('last_fallback')
        self._counts = {name: _counter(document.get(name))
                        for name in (DELIVERED, PASSED, FALLBACKS, UNSAVED,
                                     LAZY, UNCACHED, SNAPSHOTS)}
        self._unreported = _counter(document.get('unreported'))

    def delivered(self, way: str, wan_bytes: int) -> None:
        """Count an image that the agent delivered.

        :param way: local, peer, build or repository
        :param wan_bytes: what crossed the WAN for it
        """
        with self._lock:
            self._counts[DELIVERED][way] += 1
            self._counts[DELIVERED]['wan_bytes'] += wan_bytes
            self._write()

    def passed(self, reason: str) -> None:
        """Count an image that is not the agent's to deliver."""
        self._count(PASSED, reason)

    def lazy(self, event: str) -> None:
        """Count what became of an image for a server that boots lazily.

        :param event: ``linked``, ``replaced`` (by a whole file), or ``full_``
            and the reason why it was delivered whole
        """
        self._count(LAZY, event)

    def uncached(self, reason: str) -> None:
        """Count a volume that is not in the SSD cache as its type says."""
        self._count(UNCACHED, reason)

    def snapshot(self, outcome: str) -> int:
        """Count an image of a server.

        :param outcome: ``stored``, or the class of the error for which Nova
            made it by itself
        :returns: how many were made by now, in all ways
        """
        return self._count(SNAPSHOTS, outcome)

    def unsaved(self, reason: str) -> int:
        """Count a deleted server that could not be saved as required.

        :param reason: the class of the error
        :returns: how often that happened by now, for any reason
        """
        return self._count(UNSAVED, reason)

    def fell_back(self, image_id: str, reason: str, message: str) -> int:
        """Count an image that the agent should have delivered and did not.

        :param reason: the class of the error
        :returns: how often that happened by now, for any reason
        """
        with self._lock:
            self._counts[FALLBACKS][reason] += 1
            self._unreported[reason] += 1
            self._last = {'at': versioned.now().isoformat(), 'image': image_id,
                          'reason': reason, 'message': message}
            self._write()
            return sum(self._counts[FALLBACKS].values())

    def _count(self, kind: str, key: str) -> int:
        """Count one more; return how many of the kind there are."""
        with self._lock:
            self._counts[kind][key] += 1
            self._write()
            return sum(self._counts[kind].values())

    def unreported(self) -> dict[str, int]:
        """Return fallbacks by reason that are not reported yet."""
        with self._lock:
            return {reason: count for reason, count
                    in self._unreported.items() if count}

    def reported(self, reason: str, count: int) -> None:
        """Mark this many fallbacks as reported to the agent."""
        with self._lock:
            self._unreported[reason] -= count
            self._write()

    def summary(self) -> dict[str, typing.Any]:
        """Return all counts, as the file has them."""
        with self._lock:
            return self._document()

    def _document(self):
        return {'since': self._since, 'last_fallback': self._last,
                'unreported': dict(+self._unreported),
                **{name: dict(counts)
                   for name, counts in self._counts.items()}}

    def _write(self):
        try:
            files.write_json(self._path, self._document(), durable=False)
        except (OSError, exceptions.NoSpace) as error:
            LOG.warning('Could not write the counts of images to %s'
                        ' ([diffcache] state_file): %s', self._path, error)


def _read(path):
    try:
        document = files.read_json(path)
    except OSError as error:
        LOG.warning('Could not read the counts of images in %s ([diffcache]'
                    ' state_file), starting from zero: %s', path, error)
        return {}
    return document if isinstance(document, dict) else {}


def _counter(values):
    counts: collections.Counter[str] = collections.Counter()
    if isinstance(values, dict):
        counts.update({str(key): value for key, value in values.items()
                       if isinstance(value, int) and value >= 0})
    return counts
