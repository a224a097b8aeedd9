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

import logging
import pathlib
import threading

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack import objects
from diffcache_openstack.sites import site_map as maps
from diffcache_openstack.sites import view as views

LOG = logging.getLogger(__name__)


class SiteMapKeeper:
    """The last site map, in memory and in a file.

    :param path: where it is kept; what lies there is used until a newer one
        comes
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._view = views.SiteView()
        document = files.read_json(path)
        if document is not None:
            self._load(document)

    def _load(self, document: dict) -> None:
        try:
            self._view = maps.to_view(objects.SiteMap.parse_kept(document))
        except exceptions.FormatError as error:
            LOG.warning('The kept site map %s cannot be read; waiting for '
                        'the conductor\'s: %s', self._path, error)
            return
        LOG.info('Working from the kept site map, generation %d',
                 self._view.generation)

    def current(self) -> views.SiteView:
        """What is known now."""
        return self._view

    def update(self, site_map: objects.SiteMap) -> None:
        """Use another map from now on.

        The conductor's word counts even if its generation is smaller: its
        database may have been restored from a backup.
        """
        with self._lock:
            files.write_json(self._path, site_map.obj_to_primitive())
            self._view = maps.to_view(site_map)
