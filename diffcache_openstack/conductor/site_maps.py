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
"""Maps of sites, built once per generation.

After a change every host of a site asks for the new map, which is the same
for all of them and not small: it has the whole catalogue.
"""

from oslo_config import cfg

from diffcache_openstack.conductor.planning import model
from diffcache_openstack.db import catalogue
from diffcache_openstack.db import engine
from diffcache_openstack.db import sites
from diffcache_openstack import objects
from diffcache_openstack.sites import site_map
from diffcache_openstack.sites import view as views


class Maps:
    """Builds maps, and keeps the latest one of each site."""

    def __init__(self, conf: cfg.ConfigOpts, database: engine.Database):
        self._conf = conf
        self._database = database
        # Assigned whole, so threads need no lock; at worst two of them make
        # the same map.
        self._latest: dict[str, objects.SiteMap] = {}
        # The options that the maps of each site show.
        self._shown: dict[str, tuple] = {}

    def get(self, site: str) -> objects.SiteMap:
        """Return the map of a site.

        :raises NotFound: no host of the site was ever registered
        """
        return self._of(site, self._database.read(sites.map_generation, site))

    def newer(self, site: str, known: int | None) -> objects.SiteMap | None:
        """Return the map of a site; None if its generation is the known one.

        :raises NotFound: no host of the site was ever registered
        """
        generation = self._database.read(sites.map_generation, site)
        return None if generation == known else self._of(site, generation)

    def _of(self, site: str, generation: int) -> objects.SiteMap:
        latest = self._latest.get(site)
        if latest is None or latest.generation != generation:
            latest = self._database.read(self._read, site)
            self._latest[site] = latest
        return latest

    def note_options(self) -> set[str]:
        """Mark maps as changed if the options that they show changed.

        The options that hosts got before this conductor started are not
        known, so the first call marks all.

        :returns: the sites whose map changed
        """
        changed = {}
        for site in self._database.read(sites.list_sites):
            links = model.links_of(site, self._conf.planner)
            options = (links.local, links.peer, links.repo,
                       self._conf.planner.max_patches)
            if self._shown.get(site) != options:
                changed[site] = options
        if changed:
            self._database.write(sites.raise_generation, set(changed))
            # Only now: if the write failed, the next call marks them.
            self._shown |= changed
        return set(changed)

    def _read(self, session, site):
        # The generation comes first: if the engine shows changes that are
        # made meanwhile, the map is newer than its number, never older.
        generation = sites.map_generation(session, site)
        return objects.SiteMap(
            site=site, generation=generation,
            templates=catalogue.known_templates(session),
            patches=catalogue.list_patches(session),
            hosts=sites.map_hosts(session, site),
            links=model.links_of(site, self._conf.planner),
            hops=self._conf.planner.max_patches)


class Views:
    """Maps of sites in the form that look-ups work on, the latest of each."""

    def __init__(self, site_maps: Maps) -> None:
        self._maps = site_maps
        # Assigned whole, as in Maps.
        self._views: dict[str, views.SiteView] = {}

    def get(self, site: str) -> views.SiteView:
        """Return the view of a site's present generation.

        :raises NotFound: no host of the site was ever registered
        """
        latest = self._maps.get(site)
        view = self._views.get(site)
        if view is None or view.generation != latest.generation:
            view = self._views[site] = site_map.to_view(latest)
        return view
