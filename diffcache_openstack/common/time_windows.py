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
"""Time windows in which background work may run.

A window is written ``[DAYS ]HH:MM-HH:MM`` in local time, with DAYS a day or a
range of days (``mon``, ``mon-fri``, ``sat-sun``). A window whose end is not
after its start runs past midnight and belongs to the day it starts on.
"""

import dataclasses
import datetime
import re

from diffcache_openstack.common import exceptions

DAYS = ('mon', 'tue', 'wed', 'thu', 'fri', 'sat', 'sun')
MINUTES_PER_DAY = 24 * 60
_PATTERN = re.compile(
    r'^(?:(?P<first>[a-z]{3})(?:-(?P<last>[a-z]{3}))?\s+)?'
    r'(?P<start>\d{1,2}:\d{2})-(?P<end>\d{1,2}:\d{2})$')


@dataclasses.dataclass(frozen=True)
class Window:
    """One window: weekdays (0 is Monday) and minutes of the day."""

    days: frozenset[int]
    start: int
    end: int

    def contains(self, when: datetime.datetime) -> bool:
        """Return whether the window is open at a local time."""
        minute = when.hour * 60 + when.minute
        today = when.weekday()
        if self.start < self.end:
            return today in self.days and self.start <= minute < self.end
        if today in self.days and minute >= self.start:
            return True
        return (today - 1) % 7 in self.days and minute < self.end


def parse(text: str) -> Window:
    """Read one window.

    :raises InvalidInput: the text is not a window; the message quotes it
    """
    match = _PATTERN.match(text.strip().lower())
    if match is None:
        raise exceptions.InvalidInput(
            f'Time window "{text}" is not of the form "[mon-fri ]'
            f'22:00-06:00"; write it like that.')
    return Window(_days(match['first'], match['last'], text),
                  _minute(match['start'], text), _minute(match['end'], text))


def _days(first: str | None, last: str | None, text: str) -> frozenset[int]:
    if first is None:
        return frozenset(range(7))
    last = last or first
    for name in (first, last):
        if name not in DAYS:
            raise exceptions.InvalidInput(
                f'Time window "{text}" names the day "{name}"; use one of '
                f'{", ".join(DAYS)}.')
    start, span = DAYS.index(first), DAYS.index(last) - DAYS.index(first)
    return frozenset((start + i) % 7 for i in range(span % 7 + 1))


def _minute(text: str, window: str) -> int:
    hours, minutes = (int(part) for part in text.split(':'))
    if minutes > 59 or hours * 60 + minutes > MINUTES_PER_DAY:
        raise exceptions.InvalidInput(
            f'Time window "{window}" has the impossible time "{text}"; use '
            f'00:00 to 24:00.')
    return hours * 60 + minutes


class Windows:
    """A set of windows; none at all means always open."""

    def __init__(self, texts: list[str]) -> None:
        self._windows = [parse(text) for text in texts]

    def open_at(self, when: datetime.datetime) -> bool:
        """Return whether work may run at a local time."""
        return not self._windows or any(
            window.contains(when) for window in self._windows)

    def seconds_per_day(self) -> float:
        """Return the seconds of a day that are open, averaged over a week."""
        monday = datetime.datetime(2024, 1, 1)
        minutes = sum(
            self.open_at(monday + datetime.timedelta(minutes=minute))
            for minute in range(len(DAYS) * MINUTES_PER_DAY))
        return minutes * 60 / len(DAYS)

    def open_now(self) -> bool:
        """Return whether work may run now."""
        return self.open_at(datetime.datetime.now())
