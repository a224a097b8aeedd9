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
from diffcache_openstack.common import permissions
from diffcache_openstack.sites import views


class Identified(typing.Protocol):
    """A dataclass with an id."""

    @property
    def id(self) -> str:
        """What names the record's file."""


Record = typing.TypeVar('Record', bound=Identified)


class Records(typing.Generic[Record]):
    """The records of a directory, found by their ids and by objects.

    :param directory: is created if it is missing
    :param kind: the dataclass that a document has the fields of
    :param objects: returns the ids of objects that a record is found by, too;
        there may be None
    """

    def __init__(
            self, directory: pathlib.Path,
            kind: collections.abc.Callable[..., Record],
            objects: collections.abc.Callable[[Record], tuple[str | None, ...]]
    ) -> None:
        directory.mkdir(mode=permissions.PRIVATE.directory, parents=True,
                        exist_ok=True)
        self._directory = directory
        self._lock = threading.Lock()
        documents = [files.read_json(path)
                     for path in sorted(directory.glob('*.json'))]
        records = [kind(**document) for document in documents
                   if document is not None]
        self._objects = objects
        self._records: dict[str, Record] = {}
        # Record ids by object id, in the order of their storing.
        self._by_object: dict[str, dict[str, None]] = {}
        for record in records:
            self._add(record)

    def get(self, record_id: str) -> Record | None:
        """Return the record with an id."""
        with self._lock:
            return self._records.get(record_id)

    def all(self) -> list[Record]:
        """Return all records."""
        with self._lock:
            return list(self._records.values())

    def of(self, object_id: str) -> list[Record]:
        """Return the records that are found by an object's id."""
        with self._lock:
            return [self._records[record_id]
                    for record_id in self._by_object.get(object_id, ())]

    def put(self, record: Record) -> None:
        """Store a record, in place of an older one with its id."""
        with self._lock:
            files.write_json(self._path(record.id),
                             dataclasses.asdict(typing.cast(typing.Any,
                                                            record)))
            self._discard(record.id)
            self._add(record)

    def remove(self, record_id: str) -> None:
        """Remove a record, if there is one."""
        with self._lock:
            self._discard(record_id)
            self._path(record_id).unlink(missing_ok=True)

    def _add(self, record: Record) -> None:
        self._records[record.id] = record
        for object_id in self._objects_of(record):
            self._by_object.setdefault(object_id, {})[record.id] = None

    def _discard(self, record_id: str) -> None:
        known = self._records.pop(record_id, None)
        if known is None:
            return
        for object_id in self._objects_of(known):
            named = self._by_object[object_id]
            del named[record_id]
            if not named:
                del self._by_object[object_id]

    def _objects_of(self, record: Record) -> set[str]:
        return {object_id for object_id in self._objects(record)
                if object_id is not None}

    def _path(self, record_id: str) -> pathlib.Path:
        # Ids are checked by the catalogue; here they must not leave the
        # directory.
        return self._directory / f'{record_id.replace("/", "_")}.json'


@dataclasses.dataclass(frozen=True)
class ImageRecord(views.ImageRef):
    """A registered image, as kept in its record file.

    :param members: projects that a shared image is shared with
    """

    members: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class PatchRecord:
    """A patch, as stored in its record file.

    :param size: bytes
    :param create_seconds: what making it took
    :param apply_seconds: what applying it took on this host
    """

    id: str
    base: str
    target: str
    size: int
    create_seconds: float
    apply_seconds: float
