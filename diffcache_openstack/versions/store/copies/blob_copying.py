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
"""Copying blobs of one store to another, and verifying them before."""

import dataclasses
import functools
import pathlib
import time
from typing import Any
from typing import Callable
from typing import NamedTuple

from diffcache_openstack import _native
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import threads
from diffcache_openstack.versions.blobs import base
from diffcache_openstack.versions.blobs import blob_parts
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.blobs import local_files
from diffcache_openstack.versions.store.access import store_reader
from diffcache_openstack.versions.store.catalogue import catalogue
from diffcache_openstack.versions.store.catalogue import entries
from diffcache_openstack.versions.store.catalogue import record_tables
from diffcache_openstack.versions.store.indexes import manifests
from diffcache_openstack.versions.store.upkeep import verification

# Parts of blobs take space on this host until these are closed.
_OPENED_UNITS = 512
_Check = Callable[[store_reader.StoreReader, _native.BlockStore],
                  list[verification.Damage]]


@dataclasses.dataclass(frozen=True)
class Work:
    """How to replicate.

    :ivar report: gets the bytes done and in total; may raise to interrupt
    :ivar rate: bytes per second, on average; None for no limit
    """

    report: Callable[[int, int], object] = lambda done, total: None
    rate: float | None = None


@dataclasses.dataclass
class Unit:
    """Blobs that are verified together, such as a pack and its index."""

    blobs: set[str] = dataclasses.field(default_factory=set)
    checks: list[_Check] = dataclasses.field(default_factory=list)
    bytes: int = 0


def units(head: catalogue.Catalogue, names: set[str]) -> list[Unit]:
    """Return some blobs of a catalogue, and what verifies them."""
    found: dict[str, Unit] = {}

    def add(check: _Check, size: int, *blobs: str) -> None:
        whole = [blob_parts.whole(each) for each in blobs]
        if names.isdisjoint(whole):
            return
        unit = found.setdefault(whole[0], Unit())
        unit.blobs.update(whole)
        unit.checks.append(check)
        unit.bytes += size

    for number, pack in head.packs.items():
        add(functools.partial(_check_pack, number, pack),
            entries.bytes_of(pack), pack.blob, pack.index)
    checks: list[tuple[Any, Any]] = [
        (head.maps, verification.verify_map),
        (head.bases, verification.verify_base),
        (head.hooks, verification.verify_hooks)]
    for records, verify in checks:
        for key, blob in records.items():
            add(functools.partial(_check_blob, verify, key, blob), blob.bytes,
                blob.blob)
    for blob in head.manifests.values():
        add(functools.partial(_check_manifest, blob), blob.bytes, blob.blob)
    for table in head.tables():
        for segment in table.segments:
            for name in segment.blobs:
                add(functools.partial(_check_segment, segment, name), 0, name)
    return list(found.values())


def _check_pack(number: int, pack: entries.Pack,
                access: store_reader.StoreReader, opened: _native.BlockStore
                ) -> list[verification.Damage]:
    damage, _slots = verification.verify_pack(access, opened, number, pack)
    # Its files are not kept open.
    opened.remove_pack(number)
    return damage


def _check_blob(verify: Callable[..., list[verification.Damage]],
                key: int | str, blob: entries.Blob,
                access: store_reader.StoreReader, opened: _native.BlockStore
                ) -> list[verification.Damage]:
    return verify(opened, key, blob)


def _check_manifest(blob: entries.Blob, access: store_reader.StoreReader,
                    opened: _native.BlockStore) -> list[verification.Damage]:
    reason = manifests.damage(access, blob)
    return [verification.Damage(blob.blob, reason)] if reason else []


def _check_segment(segment: record_tables.Segment, name: str,
                   access: store_reader.StoreReader,
                   opened: _native.BlockStore) -> list[verification.Damage]:
    record_tables.decode(access.store.read(name), segment)
    return []


class Copying:
    """Copies blobs that a catalogue names, and verifies them before.

    :ivar copied: the names of those that were put
    :param access: to the store that they are read from
    """

    def __init__(self, head: catalogue.Catalogue,
                 access: store_reader.StoreReader, target: base.BlobStore,
                 work: Work) -> None:
        self._head = head
        self._access = access
        self._target = target
        self._work = work
        self.copied: list[str] = []
        self._damage: list[verification.Damage] = []
        self._started = time.monotonic()
        # Bytes: of the units that were seen, of all, and of those copied.
        self._done = self._total = self._paced = 0

    def copy(self, names: set[str], replaces: bool = False) -> None:
        """Copy blobs; those that an earlier attempt has put stay.

        :param replaces: whether those that are there are replaced
        :raises IntegrityError: some are damaged or missing, and are not copied
        """
        wanted = units(self._head, names)
        self._total = sum(unit.bytes for unit in wanted)
        for at in range(0, len(wanted), _OPENED_UNITS):
            with self._target.staging() as staging:
                local = store_reader.StoreReader(
                    file.FileStore.existing(staging), self._access.key)
                with local.lenient(self._head) as opened:
                    for unit in wanted[at:at + _OPENED_UNITS]:
                        self._copy(unit, names, replaces,
                                   _Local(local, opened, staging))
        if self._damage:
            raise exceptions.IntegrityError(
                f'{len(self._damage)} parts of the store are damaged or '
                f'missing, and are not copied: '
                f'{"; ".join(map(_shown, self._damage[:10]))}')

    def _report(self) -> None:
        self._work.report(self._done, self._total)

    def _copy(self, unit: Unit, names: set[str], replaces: bool,
              local: '_Local') -> None:
        self._report()
        self._done += unit.bytes
        wanted = unit.blobs & names
        there = {name for name in wanted if self._target.exists(name)}
        if there == wanted and self._target.atomic and not replaces:
            return
        if damage := self._fetch(unit, local):
            self._damage += damage
        else:
            for name in sorted(wanted):
                if name in there:
                    self._target.delete(name)
                self._target.put_file(name, local.staging / name)
                self.copied.append(name)
        for name in unit.blobs:
            (local.staging / name).unlink(missing_ok=True)
        self._paced += unit.bytes
        if self._work.rate:
            threads.pause(self._started + self._paced / self._work.rate,
                          self._report)

    def _fetch(self, unit: Unit, local: '_Local') -> list[verification.Damage]:
        """Read blobs into files; return what is wrong with them."""
        source, name = self._access.store, ''
        try:
            for name in sorted(unit.blobs):
                local_files.copy(source, name, local.staging / name,
                                 source.size(name))
            return [each for check in unit.checks
                    for each in check(local.access, local.opened)]
        except (exceptions.PermanentError, exceptions.IntegrityError) as exc:
            return [verification.Damage(name, str(exc))]


def _shown(damage: verification.Damage) -> str:
    return f'{damage.object}: {damage.reason}'


class _Local(NamedTuple):
    """Blobs in files of this host, and how they are read."""

    access: store_reader.StoreReader
    opened: _native.BlockStore
    staging: pathlib.Path
