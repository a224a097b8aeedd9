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
"""Record files: one JSON document for each record, all kept in memory too.

Records are looked at far more often than they change, and a repository may
have a hundred thousand of them.
"""

import collections.abc
import dataclasses
import pathlib
import threading
import typing

from diffcache_openstack.common import files
from diffcache_openstack.common import modes


class Identified(typing.Protocol):
    """A dataclass with an id."""

    @property
    def id(self) -> str:
        """What names the record's file."""


Record = typing.TypeVar('Record', bound=Identified)


class Records(typing.Generic[Record]):
    """The records of a directory.

    :param directory: is created if it is missing
    :param kind: the dataclass that a document has the fields of
    """

    def __init__(self, directory: pathlib.Path,
                 kind: collections.abc.Callable[..., Record]) -> None:
        directory.mkdir(mode=modes.PRIVATE.directory, parents=True,
                        exist_ok=True)
        self._directory = directory
        self._lock = threading.Lock()
        documents = [files.read_json(path)
                     for path in sorted(directory.glob('*.json'))]
        records = [kind(**document) for document in documents
                   if document is not None]
        self._records: dict[str, Record] = {
            record.id: record for record in records}

    def get(self, record_id: str) -> Record | None:
        """Return the record with an id."""
        with self._lock:
            return self._records.get(record_id)

    def all(self) -> list[Record]:
        """Return all records."""
        with self._lock:
            return list(self._records.values())

    def put(self, record: Record) -> None:
        """Store a record, in place of an older one with its id."""
        with self._lock:
            files.write_json(self._path(record.id),
                             dataclasses.asdict(typing.cast(typing.Any,
                                                            record)))
            self._records[record.id] = record

    def remove(self, record_id: str) -> None:
        """Remove a record, if there is one."""
        with self._lock:
            self._records.pop(record_id, None)
            self._path(record_id).unlink(missing_ok=True)

    def _path(self, record_id: str) -> pathlib.Path:
        # Ids are checked by the catalogue; here they must not leave the
        # directory.
        return self._directory / f'{record_id.replace("/", "_")}.json'
