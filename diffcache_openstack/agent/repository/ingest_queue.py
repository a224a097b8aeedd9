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
"""Images of an image service that workers have to look at, in their order."""

import dataclasses
import threading
import time
import typing

# Waits after failures, seconds, doubled with each further one.
FIRST_RETRY = 5.0
LAST_RETRY = 900.0
# Longest pause while the image service itself does not answer.
LAST_SERVICE_RETRY = 60.0
# The entry for listing all images of the service.
LISTING = ''
# Images whose files have more bytes leave one worker to the others.
LARGE = 1 << 30


@dataclasses.dataclass(frozen=True)
class Entry:
    """An image to look at.

    :param size: of the file in bytes; None if it is not known yet
    """

    image_id: str
    size: int | None = None

    @property
    def is_large(self) -> bool:
        """Whether it leaves a worker to others."""
        return (self.size or 0) > LARGE


@dataclasses.dataclass
class _Delay:
    """Why an image is tried again later, and after how many seconds."""

    seconds: float
    attempts: int
    error: str
    for_space: bool


class IngestQueue:
    """Orders images by size, and delays those that failed.

    Smaller images come first. Of several workers one is left to images that
    are not large. No image is given to two workers at a time.

    :param workers: how many threads take entries
    """

    def __init__(self, workers: int) -> None:
        self._large_at_once = max(1, workers - 1)
        self._wake = threading.Condition()
        # By image: its entry, and when it is due.
        self._due: dict[str, tuple[Entry, float]] = {}
        self._active: dict[str, Entry] = {}
        self._delays: dict[str, _Delay] = {}
        self._closed = False

    def add(self, image_id: str, size: int | None = None) -> None:
        """Add an image, due now; its earlier failures no longer count."""
        with self._wake:
            self._delays.pop(image_id, None)
            self._due[image_id] = (Entry(image_id, size), 0.0)
            self._wake.notify_all()

    def add_later(self, image_id: str, seconds: float) -> None:
        """Add an image, due after a while, unless it is due sooner."""
        with self._wake:
            self._due.setdefault(
                image_id, (Entry(image_id), time.monotonic() + seconds))
            self._wake.notify_all()

    def hurry(self, image_id: str, size: int) -> bool:
        """Add an image unless it is here already.

        :returns: False if it failed before, and is tried again later
        """
        with self._wake:
            if image_id in self._active:
                return True
            if image_id in self._delays:
                return False
            if image_id not in self._due:
                self._due[image_id] = (Entry(image_id, size), 0.0)
                self._wake.notify_all()
            return True

    def take(self) -> Entry | None:
        """Wait for the next entry; None once the queue is closed."""
        with self._wake:
            while not self._closed:
                now = time.monotonic()
                entry = self._next(now)
                if entry is not None:
                    del self._due[entry.image_id]
                    self._active[entry.image_id] = entry
                    return entry
                later = [due for _, due in self._due.values() if due > now]
                self._wake.wait(min(later) - now if later else None)
            return None

    def _next(self, now: float) -> Entry | None:
        large = sum(entry.is_large for entry in self._active.values())
        ready = [entry for entry, due in self._due.values()
                 if due <= now and entry.image_id not in self._active
                 and (not entry.is_large or large < self._large_at_once)]
        # The listing comes first; sorting keeps the order of equal sizes.
        return min(ready, default=None, key=lambda entry: (
            entry.image_id != LISTING, entry.size or 0))

    def finish(self, entry: Entry) -> None:
        """Note that a worker has handled an entry."""
        with self._wake:
            self._active.pop(entry.image_id, None)
            if entry.image_id not in self._due:
                self._delays.pop(entry.image_id, None)
            self._wake.notify_all()

    def postpone(self, entry: Entry, error: str, for_space: bool = False
                 ) -> float:
        """Note that an entry failed, and is tried again later.

        :param for_space: whether it waits for free space
        :returns: seconds until then
        """
        name = entry.image_id
        longest = LAST_SERVICE_RETRY if name == LISTING else LAST_RETRY
        with self._wake:
            self._active.pop(name, None)
            last = self._delays.get(name)
            wait = min(2 * last.seconds if last else FIRST_RETRY, longest)
            self._delays[name] = _Delay(
                wait, last.attempts + 1 if last else 1, error, for_space)
            # A change that was reported meanwhile is due at once.
            self._due.setdefault(name, (entry, time.monotonic() + wait))
            self._wake.notify_all()
            return wait

    def close(self) -> None:
        """Give out no more entries."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()

    def report(self) -> list[dict[str, typing.Any]]:
        """List images being handled, and those that wait, for operators."""
        now = time.monotonic()
        with self._wake:
            active = [{'image': name, 'state': 'active'}
                      for name in self._active]
            return active + [
                {'image': name, 'state': 'waiting_for_space'
                 if delay and delay.for_space else 'waiting',
                 'retry_in_s': round(max(0.0, due - now)),
                 'attempts': delay.attempts if delay else 0,
                 'error': delay.error if delay else None}
                for name, (_, due) in self._due.items()
                for delay in (self._delays.get(name),)]
