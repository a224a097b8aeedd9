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
"""What a host remembers of a store of versions.

A store whose storage is put back to an earlier state looks like one in which
nothing was saved since. A host that saw a later catalogue notices.

An index of a base image that another host wrote may be that of other content.
A host uses those that it has compared with the image itself.
"""

import dataclasses
import pathlib

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.versions.store.catalogue import catalogue


@dataclasses.dataclass(frozen=True)
class Known:
    """The last catalogue that a host saw."""

    store_id: str
    number: int


class HeadMemory:
    """Remembers the last catalogue of one store in a file of this host.

    Several threads and processes may have one each of the same file.

    :param path: of the file; another one beside it has the indexes
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._indexes = path.with_suffix('.indexes.json')

    def read(self) -> Known | None:
        """Return the last catalogue seen; None if there was none yet."""
        fields = files.read_json(self._path)
        return None if fields is None else Known(**fields)

    def check(self, known: Known | None,
              head: catalogue.Catalogue | None) -> None:
        """Check that a catalogue is not older than one that was seen.

        :param known: what was remembered before the catalogue was read
        :param head: None for an empty store
        :raises IntegrityError: it is older, or of another store
        """
        if known is None:
            return
        if head is None:
            found = 'is empty'
        elif head.store_id != known.store_id:
            found = f'is another one ({head.store_id})'
        elif head.number < known.number:
            found = f'is back at catalogue {head.number}'
        else:
            return
        raise exceptions.IntegrityError(
            f'The store of versions {found}, but this host has seen catalogue '
            f'{known.number} of store {known.store_id}: it was put back to an '
            f'earlier state, or changed. If it was restored from a copy on '
            f'purpose, remove {self._path} on every host.')

    def has_compared(self, base_id: str, check: str) -> bool:
        """Return whether this host has compared an index with its image.

        :param check: the checksum that the index ends with
        """
        return self._compared().get(base_id) == check

    def note_compared(self, base_id: str, check: str) -> None:
        """Remember that an index is that of its image."""
        with files.locked(self._indexes):
            files.write_json(self._indexes,
                             self._compared() | {base_id: check})

    def _compared(self) -> dict[str, str]:
        found = files.read_json(self._indexes)
        return found if isinstance(found, dict) else {}

    def note(self, head: catalogue.Catalogue | None) -> None:
        """Remember a catalogue unless a later one was seen."""
        if head is None or self._has_seen(head):
            return
        with files.locked(self._path):
            # Another one may have seen a later one since.
            if not self._has_seen(head):
                files.write_json(self._path, dataclasses.asdict(
                    Known(head.store_id, head.number)))

    def _has_seen(self, head: catalogue.Catalogue) -> bool:
        known = self.read()
        return known is not None and known.number >= head.number
