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
"""Volumes that are held: not in write-back while Cinder reads them."""

import collections.abc
import logging
import pathlib
import threading
import time

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files

LOG = logging.getLogger(__name__)

# Of one volume at the same time; Cinder has few operations of a volume.
_MOST = 100
# In place of a volume: ends that may be repeated, and until when. Cinder
# repeats one for a lease, which is no longer.
_ENDED = ''
_ENDED_S = 600.0


class Holds:
    """Leases of operations that hold volumes, kept over restarts.

    A power cut may lose them: it ends the servers whose writes they concern.
    A volume is held while any lease of it lasts. A lease that lapsed stays
    until the volume has returned to its mode: :meth:`forget`.

    :param path: of the file
    :param clock: seconds since 1970; over restarts there is no other clock
    """

    def __init__(self, path: pathlib.Path,
                 clock: collections.abc.Callable[[], float] = time.time
                 ) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()

    def begin(self, name: str, hold_id: str, seconds: float) -> None:
        """Hold a volume for some time, or longer than until now.

        :raises Busy: too many operations hold it
        :raises OSError: it cannot be kept
        """
        with self._lock:
            found, now = self._read(), self._clock()
            leases = found[name] = {
                other: until for other, until in found.get(name, {}).items()
                if now < until}
            leases[hold_id] = now + seconds
            if len(leases) > _MOST:
                raise exceptions.Busy(
                    f'Volume {name} is held by {_MOST} operations of Cinder'
                    f' at the same time. Repeat this when one has ended.')
            self._write(found)

    def renew(self, name: str, hold_id: str, seconds: float) -> None:
        """Hold a volume for longer.

        :raises NotFound: the lease has lapsed
        """
        with self._lock:
            found = self._read()
            self._check(found, name, hold_id)
            found[name][hold_id] = self._clock() + seconds
            self._write(found)

    def end(self, name: str, hold_id: str) -> None:
        """End a lease; one whose answer was lost may be ended again.

        :raises NotFound: it has lapsed before
        """
        with self._lock:
            found = self._read()
            now, key = self._clock(), f'{name} {hold_id}'
            ended = {other: until for other, until
                     in found.get(_ENDED, {}).items() if now < until}
            if key in ended:
                return
            self._check(found, name, hold_id)
            found[name][hold_id] = 0.0
            found[_ENDED] = {**ended, key: now + _ENDED_S}
            self._write(found)

    def names(self) -> list[str]:
        """Return the volumes with a lease, lapsed ones included."""
        return [name for name in self._read() if name != _ENDED]

    def is_held(self, name: str) -> bool:
        """Return whether a lease of a volume lasts."""
        return self._lasts(self._read().get(name, {}))

    def forget(self, name: str) -> None:
        """Forget the leases of a volume, unless one lasts."""
        with self._lock:
            found = self._read()
            if name in found and not self._lasts(found[name]):
                del found[name]
                self._write(found)

    def _lasts(self, leases: dict[str, float]) -> bool:
        now = self._clock()
        return any(now < until for until in leases.values())

    def _check(self, found: dict[str, dict[str, float]], name: str,
               hold_id: str) -> None:
        if not self._clock() < found.get(name, {}).get(hold_id, 0.0):
            raise exceptions.NotFound(
                f'The hold {hold_id} of volume {name} has lapsed: the volume'
                f' may have been in write-back since. Repeat the operation.')

    def _write(self, found: dict[str, dict[str, float]]) -> None:
        files.write_json(self._path, found, durable=False)

    def _read(self) -> dict[str, dict[str, float]]:
        try:
            return files.read_json(self._path) or {}
        except OSError as error:
            LOG.error('Could not read %s, operations of Cinder that hold'
                      ' volumes fail: %s', self._path, error)
            return {}
