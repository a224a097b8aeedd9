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
"""Use of images by other services of the host, kept over restarts."""

import dataclasses
import logging
import pathlib
import threading
import time

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files

LOG = logging.getLogger(__name__)


@dataclasses.dataclass
class FileUse:
    """Of one image's file.

    :param hits: times it was served from here
    :param last_access: when it last was, seconds since 1970
    :param dismissed: whether an operator removed it from the cache, and
        no client has requested it since
    """

    hits: int = 0
    last_access: float = 0.0
    dismissed: bool = False


class FileUsage:
    """Counts, the queue, and fallbacks, in one small file.

    :param path: of the file; a power cut, or a full disk and a restart, may
        cost the last counts
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        kept = files.read_json(path) or {}
        self._uses = {image: FileUse(**use)
                      for image, use in kept.get('uses', {}).items()}
        self._queue: dict[str, float] = kept.get('queue', {})
        self._fallbacks: dict[str, dict[str, int]] = kept.get(
            'fallbacks', {})

    def of(self, image_id: str) -> FileUse:
        """Return how an image's file was used."""
        with self._lock:
            return dataclasses.replace(self._uses.get(image_id, FileUse()))

    def hit(self, image_id: str) -> None:
        """Count a request for an image's file."""
        with self._lock:
            use = self._uses.setdefault(image_id, FileUse())
            use.hits, use.last_access = use.hits + 1, time.time()
            use.dismissed = False
            self._save()

    def admit(self, image_id: str) -> None:
        """Note that an image was added to the cache."""
        with self._lock:
            use = self._uses.setdefault(image_id, FileUse())
            if use.dismissed:
                self._uses[image_id] = use = FileUse()
            use.last_access = time.time()
            self._queue.pop(image_id, None)
            self._save()

    def dismiss(self, image_id: str) -> None:
        """Note that an operator removed an image from the cache."""
        with self._lock:
            self._uses[image_id] = FileUse(dismissed=True)
            self._save()

    def forget(self, image_ids: set[str]) -> None:
        """Remove images that do not exist any more."""
        with self._lock:
            if not image_ids & (self._uses.keys() | self._queue.keys()):
                return
            for image_id in image_ids:
                self._uses.pop(image_id, None)
                self._queue.pop(image_id, None)
            self._save()

    def queue(self) -> list[str]:
        """List images that operators want cached, oldest first."""
        with self._lock:
            return sorted(self._queue, key=lambda name: self._queue[name])

    def enqueue(self, image_id: str) -> bool:
        """Queue an image; False if it was queued already."""
        with self._lock:
            if image_id in self._queue:
                return False
            self._queue[image_id] = time.time()
            self._save()
            return True

    def dequeue(self, image_id: str) -> bool:
        """Remove an image from the queue; return whether it was in it."""
        with self._lock:
            found = self._queue.pop(image_id, None) is not None
            if found:
                self._save()
            return found

    def fallback(self, service: str, reason: str, count: int) -> None:
        """Count requests that a service served without this agent."""
        with self._lock:
            reasons = self._fallbacks.setdefault(service, {})
            reasons[reason] = reasons.get(reason, 0) + count
            self._save()

    def fallbacks(self) -> dict[str, dict[str, int]]:
        """Return the number of fallbacks by service and reason."""
        with self._lock:
            return {service: dict(reasons)
                    for service, reasons in self._fallbacks.items()}

    def _save(self) -> None:
        """Write the file; what it lacks is no reason to refuse an image."""
        try:
            files.write_json(self._path, {
                'uses': {image: dataclasses.asdict(use)
                         for image, use in self._uses.items()},
                'queue': self._queue, 'fallbacks': self._fallbacks},
                durable=False)
        except (exceptions.NoSpace, OSError) as error:
            LOG.warning('Could not save the use of images, will retry at the'
                        ' next one: %s', error)
