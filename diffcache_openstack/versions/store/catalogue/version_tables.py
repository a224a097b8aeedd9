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
"""Versions of a catalogue by their IDs, in a table by number."""

import collections.abc
from typing import Generic
from typing import Iterator
from typing import Protocol
from typing import TypeVar

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.store.catalogue import record_tables


class _Numbered(Protocol):
    """A version, of which only this matters here."""

    @property
    def id(self) -> str:
        """Return its ID."""

    @property
    def number(self) -> int:
        """Return its number."""


_Version = TypeVar('_Version', bound=_Numbered)


class VersionTable(collections.abc.MutableMapping[str, _Version],
                   Generic[_Version]):
    """Versions by their IDs.

    :param table: has them by number
    """

    def __init__(self, table: record_tables.RecordTable[_Version] | None = None
                 ) -> None:
        self.table: record_tables.RecordTable[_Version] = (
            record_tables.RecordTable() if table is None else table)
        self._numbers: dict[str, int] | None = None

    def _known(self) -> dict[str, int]:
        """Return the numbers of all versions.

        :raises FormatError: two have the same ID, or one another number
        """
        if self._numbers is None:
            found = {version.id: number for number, version
                     in self.table.items() if version.number == number}
            if len(found) != len(self.table):
                raise exceptions.FormatError(
                    'The catalogue of the store names a version twice: '
                    'restore it from a copy of the store.')
            self._numbers = found
        return self._numbers

    def __getitem__(self, name: str) -> _Version:
        return self.table[self._known()[name]]

    def __setitem__(self, name: str, version: _Version) -> None:
        """Add a version, or replace the one that has its ID.

        :raises Conflict: another one has its number
        """
        numbers = self._known()
        there = self.table.get(version.number)
        if there is not None and there.id != name:
            raise exceptions.Conflict(
                f'Another writer saved a version {version.number} meanwhile.')
        self.table[version.number] = version
        numbers[name] = version.number

    def __delitem__(self, name: str) -> None:
        del self.table[self._known()[name]]
        del self._known()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known())

    def __len__(self) -> int:
        return len(self._known())

    def copy(self) -> 'VersionTable[_Version]':
        """Return a table that is changed without changing this one."""
        copied = VersionTable(self.table.copy())
        copied._numbers = None if self._numbers is None else dict(
            self._numbers)
        return copied

    def differences(self, other: 'VersionTable[_Version]') -> set[str]:
        """Return the IDs of versions that another table has otherwise."""
        numbers = self.table.differences(other.table)
        return {version.id for table in (self.table, other.table)
                for version in map(table.get, numbers) if version is not None}
