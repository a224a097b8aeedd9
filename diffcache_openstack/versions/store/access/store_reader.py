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
"""Reading a version store: its last catalogue, and the blocks of one."""

import contextlib
import hashlib
import pathlib
import re
from typing import Iterator

from diffcache_openstack import _native
from diffcache_openstack.blocks import native_errors
from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import base
from diffcache_openstack.versions.blobs import blob_parts
from diffcache_openstack.versions.blobs import copied
from diffcache_openstack.versions.blobs import local_files
from diffcache_openstack.versions.store.catalogue import catalogue
from diffcache_openstack.versions.store.catalogue import entries
from diffcache_openstack.versions.store.commits import head_memory
from diffcache_openstack.versions.store.commits import heads
from diffcache_openstack.versions.store.commits import rebasing

# Of indexes and maps that cannot be read, while others can.
DAMAGE = (exceptions.IntegrityError, exceptions.FormatError,
          exceptions.NotFound, exceptions.ObjectMissing, OSError)
# What errors name: packs by their numbers, and other blobs.
_PACK = re.compile(r'\bpack (\d+)\b')
_BLOB = re.compile(r'\b(?:pack|index|map)-\d{8,}-[0-9a-z]+')


class Distrusted(exceptions.Busy):
    """Blobs are damaged, and are read from a copy when the call is repeated.

    No call can be repeated without end: each time they are others.
    """


class NothingSaved(exceptions.NotFound):
    """A store has no versions yet."""


def key_check(key: bytes | None) -> str | None:
    """Return the hash by which a catalogue identifies its key."""
    if key is None:
        return None
    return hashlib.sha256(b'diffcache version store key' + key).hexdigest()


class StoreReader:
    """What a version store has, and nothing that changes it.

    :param store: holds the blobs
    :param key: 32 bytes that blocks are sealed with, the same for all of a
        store; None for a store in the clear
    :param memory: what this host knows of the store; None for nothing
    :param reads: what blobs of a store that has a copy are read from; None
        for the store
    """

    def __init__(self, store: base.BlobStore, key: bytes | None = None,
                 memory: head_memory.HeadMemory | None = None,
                 reads: copied.CopiedStore | None = None) -> None:
        if key is not None and len(key) != 32:
            raise exceptions.InvalidInput(
                f'The key of a version store has 32 bytes, not {len(key)}.')
        self.store = store
        self.key = key
        self._reads = reads or store
        self._memory = memory

    def head(self) -> catalogue.Catalogue:
        """Return the last committed catalogue.

        :raises NothingSaved: the store has no versions yet
        :raises InvalidInput: the store has another key
        :raises IntegrityError: it is not what this suite committed last
        """
        head = self._load()
        if head is None:
            raise NothingSaved('The store has no versions yet:'
                               ' check where it is, or save one first.')
        return head

    def _load(self, decided: int | None = None) -> catalogue.Catalogue | None:
        # Before the store is read: another thread may commit meanwhile.
        known = self._memory.read() if self._memory else None
        head = heads.load(self.store, decided)
        if head is not None:
            self._check(head)
        if self._memory is not None:
            self._memory.check(known, head)
            self._memory.note(head)
        return head

    def check_key(self, head: catalogue.Catalogue) -> None:
        """Check that a catalogue has the key, and is sealed with it.

        :raises InvalidInput: it has another key
        :raises IntegrityError: a writer without the key wrote it
        """
        self._check(head)

    def _check(self, head: catalogue.Catalogue) -> None:
        if head.key_check != key_check(self.key):
            raise exceptions.InvalidInput(
                'The key does not match: open the store with the key that it '
                'was created with, or without one if it has none.'
                if head.key_number == 1 else
                f'The key does not match: the key of the store was replaced, '
                f'and it has key {head.key_number} now. Open it with that.')
        head.check_seal(self.key)

    @contextlib.contextmanager
    def opened(self, head: catalogue.Catalogue, whole: bool = False
               ) -> Iterator[_native.BlockStore]:
        """Open the blocks of a catalogue.

        Indexes and maps are read when they are needed: what is damaged or
        missing of them concerns only versions that need it.

        :param whole: the records of all packs are read at once
        :raises IntegrityError: in the block: it needs what is damaged
        :raises Busy: in the block: another writer changed the store meanwhile,
            and removed what this catalogue needs
        :raises Distrusted: in the block: what is damaged is read from the copy
            from now on
        """
        number = head.number
        with self.lenient(head, whole) as opened:
            try:
                yield opened
            except (exceptions.IntegrityError, exceptions.ObjectMissing,
                    OSError) as exc:
                if isinstance(exc, OSError) and self._reads is self.store:
                    raise
                if head.number == number and rebasing.lost(head, self.head()):
                    raise exceptions.Busy(
                        'Another writer changed the store meanwhile, and '
                        'removed what was being read: try again.') from exc
                if self.distrust(head, opened, exc):
                    raise Distrusted(
                        f'{exc}; it is read from the copy of the store now: '
                        f'try again.') from exc
                if isinstance(exc, OSError) or not (
                        damage := opened.damage()):
                    raise
                found = '; '.join(f'{name}: {reason}' for name, reason
                                  in sorted(damage.items()))
                raise exceptions.IntegrityError(
                    f'{exc}. Damaged or missing: {found}. Restore that from '
                    f'a copy of the store, or delete the versions that '
                    f'"diffcache version verify" names, and prune.') from exc

    def distrust(self, head: catalogue.Catalogue, opened: _native.BlockStore,
                 error: Exception) -> bool:
        """Have blobs that an error names be read from the copy, if there is.

        :returns: whether they were not before
        """
        if not isinstance(self._reads, copied.CopiedStore):
            return False
        names = {*opened.damage(), *_BLOB.findall(str(error))}
        names |= {head.packs[int(number)].blob for number
                  in _PACK.findall(str(error)) if int(number) in head.packs}
        return self._reads.distrust(set(map(blob_parts.whole, names)))

    @contextlib.contextmanager
    def lenient(self, head: catalogue.Catalogue, whole: bool = True
                ) -> Iterator[_native.BlockStore]:
        """Open the blocks of a catalogue as :meth:`opened` does.

        Errors of the block are passed on as they are.

        :param whole: the records of all packs are read; otherwise those of a
            large store where they are needed
        """
        whole = whole or not head.is_large
        with self._local() as local:
            opened = self._new_blocks(head, local, whole)
            for number, pack in (head.packs if whole else
                                 head.packs.recent()).items():
                with native_errors.translated():
                    opened.add_pack(*self._pack_arguments(number, pack))
            for number, blob in (head.maps if whole else
                                 head.maps.recent()).items():
                opened.add_map(number, blob.blob, check_of(blob))
            self._add_bases(head, opened)
            for number, blob in head.hooks.items():
                _native.add_hooks(
                    opened, number,
                    self.local_path(blob.blob) or blob.blob,
                    blob.bytes, check_of(blob))
            try:
                yield opened
            finally:
                opened.close()

    @contextlib.contextmanager
    def empty(self, head: catalogue.Catalogue
              ) -> Iterator[_native.BlockStore]:
        """Open a catalogue as if it had no blocks: none can be shared."""
        with self._local() as local:
            opened = self._new_blocks(head, local)
            self._add_bases(head, opened)
            yield opened

    def _new_blocks(self, head: catalogue.Catalogue,
                    local: local_files.LocalFiles, whole: bool = True
                    ) -> _native.BlockStore:
        def pack(number: int) -> tuple | None:
            found = head.packs.get(number)
            return None if found is None else self._pack_arguments(
                number, found)

        def blob(number: int) -> tuple | None:
            found = head.maps.get(number)
            return None if found is None else (found.blob, check_of(found))

        with native_errors.translated():
            opened = _native.BlockStore(
                head.block_size, self.key,
                local_files.missing_as_native(
                    self.read_range if self._reads.ranged else local.read),
                local_files.missing_as_native(local),
                *([] if whole else [(
                    head.next_map, local_files.missing_as_native(pack),
                    local_files.missing_as_native(blob))]))
            if self.key is not None and head.key_number > 1:
                # Loads cryptography, which other stores do not need.
                from diffcache_openstack.versions.store.keys import key_chain
                opened.set_keys(head.key_number,
                                key_chain.former_keys(head, self.key))
        return opened

    def _add_bases(self, head: catalogue.Catalogue,
                   opened: _native.BlockStore) -> None:
        """Add the indexes of base images that this host may use."""
        for name, blob in head.bases.items():
            if self.may_use_index(name, blob):
                opened.add_base(name, blob.blob, check_of(blob))

    def may_use_index(self, base_id: str, blob: entries.Blob) -> bool:
        """Return whether the index of a base image is that of the image.

        A process that remembers nothing trusts the writers of its store.
        """
        return self._memory is None \
            or self._memory.has_compared(base_id, blob.check)

    def note_index(self, base_id: str, blob: entries.Blob) -> None:
        """Use an index from now on, which is that of its base image."""
        if self._memory is not None:
            self._memory.note_compared(base_id, blob.check)

    def _pack_arguments(self, number: int, pack: entries.Pack) -> tuple:
        return ((number, pack.origin, pack.key),
                (pack.blocks, pack.data_bytes),
                self.local_path(pack.blob) or pack.blob,
                pack.index, check_of(pack))

    def local_path(self, name: str) -> pathlib.Path | None:
        """Return the file that a catalogue names, if this host has it."""
        return None if blob_parts.parse(name) else self._reads.local_path(name)

    def read(self, name: str) -> bytes:
        """Read all of a blob, or of a part of one, that a catalogue names."""
        part = blob_parts.parse(name)
        if part is None:
            return self._reads.read(name)
        return self._reads.read(part.blob, part.offset, part.bytes)

    def read_range(self, name: str, offset: int, length: int) -> bytes:
        """Read bytes of a blob, or of a part of one."""
        part = blob_parts.parse(name)
        if part is None:
            return self._reads.read(name, offset, length)
        return self._reads.read(part.blob, part.offset + offset, max(0, min(
            length, part.bytes - offset)))

    @contextlib.contextmanager
    def _local(self) -> Iterator[local_files.LocalFiles]:
        """Yield what gives blobs as files of this host."""
        paths = local_files.LocalFiles(self._reads)
        try:
            yield paths
        finally:
            paths.close()


def check_of(blob: entries.Blob | entries.Pack) -> bytes:
    """Return the checksum that a map, or the index of a pack, ends with."""
    return bytes.fromhex(blob.check)
