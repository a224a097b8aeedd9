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
"""What is known of sites, in the form that look-ups work on."""

from oslo_config import cfg

from diffcache_openstack.agent import site_map
from diffcache_openstack.agent import view as views
from diffcache_openstack.conductor import maps
from diffcache_openstack.db import engine


class SiteViews:
    """Makes views of sites, and keeps the latest one of each."""

    def __init__(self, conf: cfg.ConfigOpts, database: engine.Database):
        self._maps = maps.Maps(conf, database)
        # Assigned whole, so threads need no lock.
        self._views: dict[str, views.SiteView] = {}

    def get(self, site: str) -> views.SiteView:
        """The view of a site's present generation.

        :raises NotFound: no host of the site was ever registered
        """
        latest = self._maps.get(site, None)
        view = self._views.get(site)
        if view is None or view.generation != latest.generation:
            view = self._views[site] = site_map.to_view(latest)
        return view
