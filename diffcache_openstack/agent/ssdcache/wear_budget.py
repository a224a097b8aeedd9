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
"""The wear budget of a host's SSD, over restarts of the agent."""

import collections.abc
import logging
import pathlib
import time
import typing

from diffcache_openstack.common import files
from diffcache_openstack.ssdcache import engines
from diffcache_openstack.ssdcache import wear

LOG = logging.getLogger(__name__)

_States = collections.abc.Mapping[str, engines.State]


class Wear:
    """Counts what is written to the SSD, and keeps it within a budget.

    :param per_day: bytes
    :param path: file where it is kept what is left of the budget
    :param clock: returns seconds
    """

    def __init__(self, per_day: int, path: pathlib.Path,
                 clock: collections.abc.Callable[[], float] = time.time
                 ) -> None:
        self._path = path
        self._clock = clock
        self._new: dict[str, int] = {}
        self._admissions: dict[str, int] = {}
        kept = self._read()
        self._at = kept.get('time')
        self._counted: dict[str, int] | None = kept.get('counted')
        self._budget = wear.Budget(per_day, kept.get('left'))

    def status(self) -> dict[str, typing.Any]:
        """Return ``per_day``, and how many bytes are ``left`` of it."""
        return {'per_day': self._budget.per_day,
                'left': round(self._budget.left)}

    def admission(self, name: str, own: int | None) -> int | None:
        """Return at which reference a volume's blocks are cached.

        :param own: what it has without a budget; none for the host's option
        """
        found = self._admissions.get(name)
        return own if found is None else max(found, own or 0)

    def note(self, states: _States) -> None:
        """Count what was written; a volume that is detached loses counts."""
        written = {name: state.traffic.ssd_bytes_written
                   for name, state in states.items()}
        # What was written before the first start with a budget is none of it.
        counted = written if self._counted is None else self._counted
        for name, count in written.items():
            # They begin anew with an attachment.
            known = counted.get(name, 0)
            more = count if count < known else count - known
            self._new[name] = self._new.get(name, 0) + more
        self._counted = written

    def end_epoch(self, states: _States,
                  saved_us: collections.abc.Mapping[str, float],
                  own: collections.abc.Mapping[str, int]) -> list[str]:
        """Decide how blocks are cached, and return why, in numbers.

        :param saved_us: microseconds that hits of volumes saved
        :param own: admission of all volumes without a budget
        """
        self.note(states)
        now = self._clock()
        seconds = 1.0 if self._at is None else max(1.0, now - self._at)
        found = self._budget.decide(seconds, {
            name: wear.VolumeWear(self._new.get(name, 0),
                                  saved_us.get(name, 0.0),
                                  own.get(name, 1))
            for name in {**self._new, **states}})
        self._at, self._new = now, {}
        self._admissions = found.admissions
        self._write()
        return found.explain

    def _read(self) -> dict[str, typing.Any]:
        try:
            found = files.read_json(self._path) or {}
            return {'left': float(found['left']),
                    'time': float(found['time']),
                    'counted': {str(name): int(count) for name, count
                                in found['counted'].items()}} if found else {}
        except (OSError, TypeError, ValueError, KeyError,
                AttributeError) as error:
            LOG.warning('Could not read %s, the wear budget of the SSD begins'
                        ' anew: %s', self._path, error)
            return {}

    def _write(self) -> None:
        files.write_json(self._path, {
            'left': self._budget.left, 'time': self._at,
            'counted': self._counted})
