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
"""Whether images that an image service does not return were deleted.

They were if the service reported that. Otherwise the service user may have
lost a role: it gets the same answers for images of other projects as for
deleted ones. A withdrawal is final, so many images that are missing at once
are withdrawn only after some days.
"""

import collections.abc
import logging
import threading
import time

LOG = logging.getLogger(__name__)

# Images that a list lacks are withdrawn soon if they are no more than this
# part of those that are known, or than one.
_PART = 0.1
# Others are after this many seconds: longer than a weekend.
_SECONDS = 3 * 86400.0
# Images with these are returned to their own projects, and to administrators.
_HIDDEN = ('private', 'shared')


class AbsentImages:
    """The images that are registered, and that the service does not return.

    :param clock: seconds, monotonic
    """

    def __init__(self, clock: collections.abc.Callable[[], float]
                 = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._deleted: set[str] = set()
        # By image, when a list lacked it first.
        self._since: dict[str, float] = {}
        self._gone: set[str] = set()

    def note_deleted(self, image_id: str) -> None:
        """Note that the service reported a deletion."""
        with self._lock:
            self._deleted.add(image_id)

    def update(self, missing: collections.abc.Set[str],
               known: collections.abc.Mapping[str, str]) -> set[str]:
        """Note the images that a list of all lacked.

        :param known: visibility by image, of all that it should have at least
        :returns: those that count as deleted
        """
        now = self._clock()
        hidden = {image_id for image_id, visibility in known.items()
                  if visibility in _HIDDEN}
        # Without its role the user has only those of its own project in its
        # list, which should have none.
        may_see = not hidden or not hidden <= missing
        with self._lock:
            self._since = {image_id: self._since.get(image_id, now)
                           for image_id in missing}
            few = may_see and len(missing) <= max(1, _PART * len(known))
            self._gone = {image_id for image_id, since in self._since.items()
                          if few or now - since >= _SECONDS}
            kept = len(missing) - len(self._gone)
        if kept:
            LOG.error('The image service no longer lists %d of %d known'
                      ' images; not withdrawing %d of them until they have'
                      ' been missing for %.0f hours. Check the role of the'
                      ' user of [glance]; if they were deleted, remove them'
                      ' with "diffcache-manage image delete".', len(missing),
                      len(known), kept, _SECONDS / 3600)
        return set(self._gone)

    def is_gone(self, image_id: str) -> bool:
        """Return whether an image is deleted if the service has it no more."""
        with self._lock:
            return image_id in self._deleted or image_id in self._gone

    def forget(self, image_id: str) -> None:
        """Note that an image was returned, or withdrawn."""
        with self._lock:
            self._deleted.discard(image_id)
            self._gone.discard(image_id)
            self._since.pop(image_id, None)

    def report(self) -> dict[str, str]:
        """Return why images are still served, by ID."""
        with self._lock:
            return {image_id: 'The image service no longer lists this image'
                              ' and many others, and reported no deletion;'
                              ' they are still served.'
                    for image_id in self._since.keys() - self._gone}
