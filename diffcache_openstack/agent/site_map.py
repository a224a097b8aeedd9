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

import dataclasses
import logging
import pathlib
import threading

from oslo_versionedobjects import exception as ovo_exception

from diffcache_openstack.agent import files
from diffcache_openstack.agent import view as views
from diffcache_openstack import objects

LOG = logging.getLogger(__name__)


def _template(template: objects.Template) -> views.TemplateRef:
    return views.TemplateRef(**{
        field.name: getattr(template, field.name)
        for field in dataclasses.fields(views.TemplateRef)})


def to_view(site_map: objects.SiteMap) -> views.SiteView:
    """The map in the form that look-ups work on."""
    return views.SiteView(
        site_map.generation,
        tuple(_template(t) for t in site_map.templates),
        tuple(views.PatchRef(p.id, p.base, p.target, p.size, p.apply_seconds)
              for p in site_map.patches),
        tuple(views.HostRef(
            h.name, h.role, h.url or '', h.alive,
            frozenset(views.Key(held.kind, held.id) for held in h.holdings))
            for h in site_map.hosts),
        views.Links(site_map.links.local, site_map.links.peer,
                    site_map.links.repo),
        site_map.hops)


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
            self._view = to_view(objects.SiteMap.load(document))
        except (ovo_exception.VersionedObjectsException, KeyError,
                TypeError, ValueError) as error:
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
            self._view = to_view(site_map)
