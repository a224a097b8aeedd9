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
"""The site map this agent works from, kept over restarts."""

import collections.abc
import dataclasses
import logging
import pathlib
import threading
import time

from diffcache_openstack.agent.state import map_file
from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common.signing import image_records
from diffcache_openstack import objects
from diffcache_openstack.rpc import conductor_api
from diffcache_openstack.sites import map_state
from diffcache_openstack.sites import site_map as maps
from diffcache_openstack.sites import views

LOG = logging.getLogger(__name__)

# For this long an image is used that the conductor does not know.
_EARLY_SECONDS = 600.0


class SiteMap:
    """The newest site map, in memory and in a file.

    :param path: of the file; its map is used until a newer one arrives
    :param conductor: RPC client
    :param context: of the calls
    :param site: name of this host's site
    :param records: verifies records of images
    :ivar reachable: whether the conductor answered the last call
    """

    def __init__(self, path: pathlib.Path,
                 conductor: conductor_api.ConductorAPI,
                 context: contexts.RequestContext, site: str,
                 records: image_records.Verifier) -> None:
        self._file = map_file.MapFile(path)
        self._conductor = conductor
        self._context = context
        self._site = site
        self._records = records
        self._lock = threading.Lock()
        self._fetching = threading.Lock()
        self._listeners: list[collections.abc.Callable[[], object]] = []
        self._view = self._known = views.SiteView()
        # Images that the conductor does not know yet, until a time.
        self._early: dict[str, tuple[views.ImageRef, float]] = {}
        self.reachable = False
        # None before the first map, and after a change that went wrong: the
        # view stays in use.
        self._state: map_state.MapState | None = None
        self._load()

    def _load(self) -> None:
        try:
            self._state = self._file.load(self._is_trusted)
        except exceptions.FormatError as error:
            LOG.warning('Ignoring the stored site map %s until the conductor'
                        ' sends one: %s', self._file.path, error)
        if self._state is not None:
            self._show(self._state.view())
            LOG.info('Using the stored site map, generation %d',
                     self._view.generation)

    def _is_trusted(self, image: objects.Image) -> bool:
        try:
            self._records.check(image)
        except exceptions.Forbidden as error:
            LOG.warning('Ignoring an image of site map: %s', error)
            return False
        return True

    def current(self) -> views.SiteView:
        """Return the map, empty if there was never one."""
        return self._view

    @property
    def generation(self) -> int | None:
        """The generation that changes are fetched since; None for none."""
        state = self._state
        return None if state is None else state.generation

    def update(self, site_map: objects.SiteMap) -> None:
        """Use another map from now on.

        The conductor's map counts even if its generation is smaller: its
        database may have been restored from a backup.
        """
        with self._lock:
            self._file.replace(site_map)
            self._state = map_state.MapState(site_map, self._is_trusted)
            self._show(self._state.view())

    def _apply(self, change: objects.MapChange) -> bool:
        """Apply a difference to the map.

        :returns: whether it led to the conductor's map; if not, the map in use
            stays until the whole one arrives
        """
        with self._lock:
            state, self._state = self._state, None
            if state is None or not state.apply(change):
                LOG.warning('A change of the site map to generation %d does'
                            ' not lead to the map of the conductor; fetching'
                            ' the whole map', change.generation)
                return False
            self._file.append(change, state)
            self._state = state
            self._show(state.view())
            return True

    def review(self) -> None:
        """Leave out images whose record is not to be trusted any more."""
        with self._lock:
            # Their records would have to be verified again, too.
            self._early.clear()
            self._show(self._known)
            if self._state is None:
                self._load()
            else:
                self._state = map_state.MapState(self._state.to_map(),
                                                 self._is_trusted)
                self._show(self._state.view())
        for listener in self._listeners:
            listener()

    def add_early(self, image: objects.Image) -> bool:
        """Add an image that the conductor will know soon.

        It is part of the map until the conductor's map has it; of one that
        comes after some minutes it is not.

        :returns: False if no repository vouches for it
        """
        if image.status != views.ACTIVE or not self._is_trusted(image):
            return False
        ref = maps.to_image(image)
        with self._lock:
            self._early[ref.id] = ref, time.monotonic() + _EARLY_SECONDS
            self._show(self._known)
        return True

    def is_early(self, content_id: str) -> bool:
        """Return whether the conductor may not know content yet."""
        return any(ref.content_id == content_id
                   for ref, _until in list(self._early.values()))

    def _show(self, known: views.SiteView) -> None:
        """Use a view of the conductor's map, and the images not yet in it."""
        now = time.monotonic()
        self._early = {
            image_id: (ref, until)
            for image_id, (ref, until) in self._early.items()
            if not known.has(image_id) and now < until}
        self._known = known
        early = tuple(ref for ref, _until in self._early.values())
        self._view = known if not early else dataclasses.replace(
            known, images=(*known.images, *early))

    def subscribe(self, listener: collections.abc.Callable[[], object]
                  ) -> None:
        """Register a function to call after each new map."""
        self._listeners.append(listener)

    def refresh(self) -> None:
        """Fetch the map from the conductor, if it has a newer one.

        :raises RetryableError: the conductor does not answer
        """
        with self._fetching:
            found = self._conductor.update_site_map(
                self._context, self._site, self.generation)
            if isinstance(found, objects.MapChange) \
                    and not self._apply(found):
                found = self._conductor.update_site_map(
                    self._context, self._site, None)
            if isinstance(found, objects.SiteMap):
                self.update(found)
        if found is not None:
            for listener in self._listeners:
                listener()

    def find(self, image_id: str) -> views.ImageRef:
        """Return an image that may be served.

        :raises NotFound: the catalogue has none, or it was withdrawn
        """
        try:
            return self._view.image(image_id)
        except exceptions.NotFound:
            if not self.reachable:
                raise
            # It may have been registered a moment ago.
            try:
                self.refresh()
            except exceptions.DiffCacheError as error:
                LOG.warning('Could not fetch the site map to look up image'
                            ' %s (still using generation %d): %s',
                            image_id, self._view.generation, error)
        return self._view.image(image_id)
