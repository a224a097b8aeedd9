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
"""Verification of objects of which peers say that they arrived damaged."""

import collections.abc
import logging
import os
import threading
import time

from diffcache_openstack.agent.state import holdings
from diffcache_openstack.sites import views

LOG = logging.getLogger(__name__)

# A sound object is not read again for this long, unless its file changed.
REPEAT_SECONDS = 3600.0

_State = tuple[int, int, int, int]


class Verifications:
    """Verifies objects in a thread of its own, one at a time.

    Any host may ask for it, so that more requests than one of an object are
    one, and one of an object that was just found sound is none. There are
    never more waiting than objects held.

    :param held: the objects
    :param on_damage: called, in that thread, after an object went out of
        service
    """

    def __init__(self, held: holdings.Holdings,
                 on_damage: collections.abc.Callable[[], object]) -> None:
        self._held = held
        self._on_damage = on_damage
        self._lock = threading.Lock()
        self._waiting: dict[views.Key, None] = {}
        self._is_running = False
        self._sound: dict[views.Key, tuple[_State | None, float]] = {}

    def request(self, key: views.Key) -> None:
        """Have an object verified soon, if it is held or borrowed."""
        if key not in self._held.readable():
            return
        with self._lock:
            self._waiting.setdefault(key)
            if self._is_running:
                return
            self._is_running = True
        threading.Thread(target=self._run, daemon=True,
                         name='verification').start()

    def _run(self) -> None:
        while (key := self._next()) is not None:
            try:
                self._verify(key)
            except Exception:
                LOG.exception('Could not verify %s', key)
            with self._lock:
                self._waiting.pop(key, None)

    def _next(self) -> views.Key | None:
        """Return what is next; it waits until it is done, for requests."""
        with self._lock:
            key = next(iter(self._waiting), None)
            self._is_running = key is not None
            return key

    def _verify(self, key: views.Key) -> None:
        state = _state(self._held, key)
        if self._is_sound(key, state):
            return
        if self._held.verify(key):
            self._sound[key] = state, time.monotonic() + REPEAT_SECONDS
        elif key not in self._held.readable():
            self._on_damage()

    def _is_sound(self, key: views.Key, state: _State | None) -> bool:
        """Return whether the same file was found sound a while ago."""
        now = time.monotonic()
        self._sound = {each: found for each, found in self._sound.items()
                       if found[1] > now}
        found = self._sound.get(key)
        return found is not None and found[0] == state


def _state(held: holdings.Holdings, key: views.Key) -> _State | None:
    """Return what changes with a held object's file; None if borrowed."""
    try:
        found = os.stat(held.path(key))
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns
