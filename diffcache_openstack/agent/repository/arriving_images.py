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
"""Images that are just being added, for hosts that need them already.

An image's content can be read once it is unpacked, signed and compressed. It
is registered later, when its recipe is made too, which takes most of the time.
A host that needs the image at once waits for the content, if the repository
will have it before the wait costs more than the host saves.
"""

import collections
import collections.abc
import statistics
import threading
import time
import typing

from diffcache_openstack import objects
from diffcache_openstack.rpc import agent_api

# Bytes of a file that are added in a second, until one was timed.
_FIRST_RATE = 25e6
# Bytes of a file that are unpacked in a second, until one was timed.
_FIRST_UNPACKED = 40e6
# The part of a file's bytes that its content does not take on the wire.
_SMALLER = 0.1
_BITS = 8e-6
# Images that the rates are the medians of.
_TIMED = 8
# Hosts that may wait at a time.
_MOST_WAITING = 16
# Images remembered whose content can be read.
_REMEMBERED = 64


class _Typical:
    """The median of the last figures of a kind.

    :param first: counts until there is a figure
    """

    def __init__(self, first: float) -> None:
        self._first = first
        self._found: collections.deque[float] = collections.deque(
            maxlen=_TIMED)

    def add(self, figure: float) -> None:
        """Add a figure."""
        self._found.append(figure)

    def value(self) -> float:
        """Return the median."""
        return statistics.median(self._found) if self._found else self._first


class ArrivingImages:
    """Knows which images are being added, and which of them can be read.

    Methods may be called from any thread.

    :param hurry: has an image added soon; False if it cannot be
    :param registered: returns an image that was added before
    :param clock: seconds, monotonic
    """

    def __init__(self, hurry: collections.abc.Callable[[str], bool],
                 registered: collections.abc.Callable[
                     [str], objects.Image | None],
                 clock: collections.abc.Callable[[], float] = time.monotonic
                 ) -> None:
        self._hurry = hurry
        self._registered = registered
        self._clock = clock
        self._changed = threading.Condition()
        self._closed = False
        self._started: dict[str, float] = {}
        self._readable: collections.OrderedDict[
            str, objects.Image] = collections.OrderedDict()
        self._waiting: collections.Counter[str] = collections.Counter()
        # Seconds per byte of the file.
        self._adding = _Typical(1 / _FIRST_RATE)
        self._unpacking = _Typical(1 / _FIRST_UNPACKED)

    def wait(self, image_id: str, size: int, mbps: float
             ) -> objects.Image | None:
        """Return an image once hosts can read its content.

        :param size: bytes of its file
        :param mbps: rate at which it will be read
        :returns: None if it cannot be added, or not soon enough
        """
        found = self._registered(image_id)
        if found is not None:
            return found
        if not self._hurry(image_id):
            # It may have been registered meanwhile.
            return self._registered(image_id)
        with self._changed:
            limit = self._longest_wait(size, mbps)
            if self._remaining(image_id, size) > limit \
                    or self._waiting.total() >= _MOST_WAITING:
                return self._readable.get(image_id)
            self._waiting[image_id] += 1
            try:
                self._changed.wait_for(
                    lambda: image_id in self._readable or self._closed,
                    limit)
            finally:
                self._waiting[image_id] -= 1
                self._waiting += collections.Counter()
            return self._readable.get(image_id)

    def close(self) -> None:
        """Let hosts wait no longer: images that are being added are not."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def is_awaited(self, image_id: str) -> bool:
        """Return whether a host waits for an image now."""
        with self._changed:
            return self._waiting[image_id] > 0

    def _remaining(self, image_id: str, size: int) -> float:
        """Return the seconds until an image can be read, by earlier ones."""
        if image_id in self._readable:
            return 0.0
        others = [name for name in self._started if name != image_id]
        if others and image_id not in self._started:
            # It has to wait for them, no telling how long.
            return float('inf')
        now = self._clock()
        return size * self._adding.value() - (
            now - self._started.get(image_id, now))

    def _longest_wait(self, size: int, mbps: float) -> float:
        """Return how many seconds a host waits at most.

        Without the image it would download the file, which takes more bytes
        than the content's compressed form, and unpack it.
        """
        saved = _SMALLER * size * _BITS / mbps + size * self._unpacking.value()
        return min(max(agent_api.LEAST_WAIT, saved), agent_api.MOST_IMAGE_WAIT)

    def begin(self, image_id: str) -> None:
        """Note that an image is being added from now on."""
        with self._changed:
            self._started[image_id] = self._clock()

    def note_unpacked(self, size: int, seconds: float) -> None:
        """Note what it took to unpack a file of some bytes."""
        if size:
            with self._changed:
                self._unpacking.add(seconds / size)

    def publish(self, image: objects.Image, spare: float = 0.0) -> None:
        """Note that hosts can read an image's content from now on.

        :param spare: seconds of it that a host would not have waited for
        """
        with self._changed:
            started = self._started.get(image.id)
            if started is not None and image.file_size:
                self._adding.add(
                    (self._clock() - started - spare) / image.file_size)
            self._readable[image.id] = image
            if len(self._readable) > _REMEMBERED:
                self._readable.popitem(last=False)
            self._changed.notify_all()

    def end(self, image_id: str) -> None:
        """Note that an image is registered, or could not be."""
        with self._changed:
            self._started.pop(image_id, None)

    def withdraw(self, image_id: str) -> None:
        """Note that an image's content cannot be read any more."""
        with self._changed:
            self._readable.pop(image_id, None)

    def report(self) -> list[dict[str, typing.Any]]:
        """List the images that are being added, for operators."""
        with self._changed:
            return [{'image': name, 'readable': name in self._readable}
                    for name in self._started]
