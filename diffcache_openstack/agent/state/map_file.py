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
"""The file of a site map, and that of the changes since it was written.

A map of very many images takes long to write, so changes are appended to a
file next to it, until they are larger than the map and than a megabyte.
"""

import json
import logging
import os
import pathlib
import typing

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.common import permissions
from diffcache_openstack import objects
from diffcache_openstack.sites import map_state

LOG = logging.getLogger(__name__)

_FORMAT = 1
# Bytes of changes that are not worth writing the whole map for.
_FEW = 1 << 20


class MapFile:
    """A site map on disk.

    :param path: of the map; that of the changes ends on ``.changes``
    """

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self._changes = path.with_name(f'{path.name}.changes')

    def load(self, trusted: map_state.Trust) -> map_state.MapState | None:
        """Return the map with all changes that can be read.

        What a crash left of the last change is dropped.

        :raises FormatError: this release cannot read the map
        """
        document = files.read_json(self.path)
        if document is None:
            return None
        stored = self._map_of(document)
        state = map_state.MapState(objects.SiteMap.parse_kept(stored), trusted)
        before = state.generation
        if not self._apply_changes(state):
            # Not even the map that the good ones led to can be trusted.
            state = map_state.MapState(objects.SiteMap.parse_kept(stored),
                                       trusted)
            self._changes.unlink(missing_ok=True)
        elif state.generation != before:
            self.replace(state.to_map())
        return state

    def _map_of(self, document: typing.Any) -> typing.Any:
        """Return the map of a file's document.

        :raises FormatError: it has another format
        """
        found = document.get('format') if isinstance(document, dict) else None
        if found != _FORMAT or 'map' not in document:
            raise exceptions.FormatError(
                f'The site map {self.path} has format {found}; this release'
                f' reads format {_FORMAT}. Delete the file, and the agent'
                f' fetches the map again.')
        return document['map']

    def replace(self, site_map: objects.SiteMap) -> None:
        """Store a whole map.

        If it cannot be stored, a restart costs the conductor a larger answer.
        """
        try:
            files.write_json(self.path, {'format': _FORMAT,
                                         'map': site_map.obj_to_primitive()})
        except exceptions.NoSpace as error:
            LOG.error('Could not store the site map, generation %d: %s',
                      site_map.generation, error)
            return
        # Changes that a crash or a failure leaves are of generations that are
        # not those of the map: they are skipped.
        self._changes.unlink(missing_ok=True)

    def append(self, change: objects.MapChange,
               state: map_state.MapState) -> None:
        """Store a change.

        If it cannot be stored, a restart costs the conductor a larger answer.

        :param state: the map with it
        """
        try:
            self._append(change, state)
        except (OSError, exceptions.NoSpace) as error:
            LOG.warning('Could not store a change of the site map to'
                        ' generation %d: %s', change.generation, error)

    def _append(self, change: objects.MapChange,
                state: map_state.MapState) -> None:
        line = json.dumps(change.obj_to_primitive()).encode() + b'\n'
        fd = os.open(self._changes, os.O_WRONLY | os.O_CREAT | os.O_APPEND
                     | os.O_CLOEXEC, permissions.PRIVATE.file)
        try:
            size = os.fstat(fd).st_size + len(line)
            os.write(fd, line)
        finally:
            os.close(fd)
        if size > max(_FEW, self.path.stat().st_size):
            self.replace(state.to_map())

    def _apply_changes(self, state: map_state.MapState) -> bool:
        """Apply the stored changes; returns whether the result is right."""
        try:
            lines = self._changes.read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            return True
        for line in lines:
            try:
                change = objects.MapChange.parse_kept(json.loads(line))
            except (exceptions.FormatError, ValueError) as error:
                LOG.info('Dropping a change of the site map that was not'
                         ' written whole: %s', error)
                return True
            if change.previous == state.generation \
                    and not state.apply(change):
                return False
        return True
