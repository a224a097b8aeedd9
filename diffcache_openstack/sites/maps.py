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
"""Maps of sites, and the differences between their generations.

After a change every host of a site asks for what changed. A whole map, which
is not small, since it has the whole catalogue, is only sent to hosts that are
new or were away for long.
"""

import time

from oslo_config import cfg

from diffcache_openstack.common import threads
from diffcache_openstack.db import catalogue
from diffcache_openstack.db import engine
from diffcache_openstack.db.sites import generations
from diffcache_openstack.db.sites import held_rows
from diffcache_openstack.db.sites import map_changes
from diffcache_openstack import objects
from diffcache_openstack.sites import link_rates
from diffcache_openstack.sites import map_state
from diffcache_openstack.sites import site_map
from diffcache_openstack.sites import views


# Differences of the newest generation of a site that are kept: hosts that ask
# at the same time mostly have the same generation.
_KEPT_CHANGES = 4
# Whole maps are kept for this long after their last use: hosts of a site that
# start together ask for the same, and each is large.
_KEPT_SECONDS = 60.0


class Maps:
    """Builds maps and differences, and keeps the latest of each site."""

    def __init__(self, conf: cfg.ConfigOpts, database: engine.Database):
        self._conf = conf
        self._database = database
        # Assigned whole, so threads need no lock; at worst two of them make
        # the same map.
        self._latest: dict[str, objects.SiteMap] = {}
        self._used: dict[str, float] = {}
        # Differences are applied to states: one thread for each site at a
        # time.
        self._advancing = threads.KeyedLocks()
        self._states: dict[str, map_state.MapState] = {}
        self._changes: dict[str, dict[int, objects.MapChange]] = {}
        # The options that the maps of each site show.
        self._shown: dict[str, tuple] = {}

    def view(self, site: str) -> views.SiteView:
        """Return the view of a site's present generation.

        :raises NotFound: no host of the site was ever registered
        """
        with self._advancing.of(site):
            return self._advance(site).view()

    def update(self, site: str, known: int | None
               ) -> objects.MapChange | objects.SiteMap | None:
        """Return what changed of a map since a generation.

        :param known: the generation that the caller has
        :returns: None for the present generation, and the whole map if the
            difference is not known
        :raises NotFound: no host of the site was ever registered
        """
        with self._advancing.of(site):
            state = self._advance(site)
            generation, digest = state.generation, state.digest
            change = self._changes.get(site, {}).get(known or 0)
        if known == generation:
            return None
        if change is None and known is not None:
            change = self._database.read(map_changes.since, site, known)
        # One that has newer changes already has another digest.
        if change is None or change.generation != generation:
            return self.whole(site)
        self._keep(site, self._complete(change, digest))
        return change

    def whole(self, site: str) -> objects.SiteMap:
        """Return the whole map of a site.

        :raises NotFound: no host of the site was ever registered
        """
        generation = self._database.read(generations.map_generation, site)
        latest = self._latest.get(site)
        if latest is None or latest.generation != generation:
            latest = self._database.read(self._read, site)
            self._latest[site] = latest
        self._used[site] = time.monotonic()
        return latest

    def forget_whole(self) -> None:
        """Forget whole maps that no host asked for lately."""
        before = time.monotonic() - _KEPT_SECONDS
        for site in list(self._latest):
            if self._used.get(site, 0.0) < before:
                self._latest.pop(site, None)

    def _advance(self, site: str) -> map_state.MapState:
        """Return the state of a site, with all changes applied."""
        generation = self._database.read(generations.map_generation, site)
        state = self._states.get(site)
        if state is not None and state.generation == generation:
            return state
        change = None if state is None else self._database.read(
            map_changes.since, site, state.generation)
        if state is None or change is None \
                or not state.apply(self._complete(change, None)):
            state = map_state.MapState(self._database.read(self._read, site))
        self._states[site] = state
        self._changes.pop(site, None)
        self._latest.pop(site, None)
        if change is not None and change.generation == state.generation:
            self._changes[site] = {
                change.previous: self._complete(change, state.digest)}
        return state

    def _complete(self, change: objects.MapChange, digest: str | None
                  ) -> objects.MapChange:
        change.links = self._database.read(
            link_rates.read_links, change.site, self._conf.planner)
        change.hops = self._conf.planner.hops
        change.digest = digest
        return change

    def _keep(self, site: str, change: objects.MapChange) -> None:
        with self._advancing.of(site):
            kept = self._changes.setdefault(site, {})
            newest = max((each.generation for each in kept.values()),
                         default=0)
            if change.generation >= newest and len(kept) < _KEPT_CHANGES:
                kept[change.previous] = change

    def show_measured(self) -> bool:
        """Return whether maps show the rates that hosts measured."""
        return self._conf.planner.measured_bandwidths

    def note_options(self) -> set[str]:
        """Mark maps as changed if the options that they show changed.

        The options that hosts got before this conductor started are not
        known, so the first call marks all.

        :returns: the sites whose map changed
        """
        changed = {}
        for site in self._database.read(generations.list_sites):
            links = link_rates.links_of(site, self._conf.planner)
            options = (site_map.to_links(links),
                       self._conf.planner.hops, self.show_measured())
            if self._shown.get(site) != options:
                changed[site] = options
        if changed:
            self._database.write(generations.raise_generation, set(changed))
            # Only now: if the write failed, the next call marks them.
            self._shown |= changed
        return set(changed)

    def _read(self, session, site):
        # The generation comes first: if the engine shows changes that are
        # made meanwhile, the map is newer than its number, never older.
        generation = generations.map_generation(session, site)
        return objects.SiteMap(
            site=site, generation=generation,
            images=catalogue.known_images(session),
            patches=catalogue.list_patches(session),
            hosts=held_rows.map_hosts(session, site),
            links=link_rates.read_links(session, site, self._conf.planner),
            hops=self._conf.planner.hops)
