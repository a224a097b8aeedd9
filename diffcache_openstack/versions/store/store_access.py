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
"""Access to a version store: its catalogue, its lock, its blocks."""

import contextlib
import copy
import dataclasses
import hashlib
import logging
import math
import pathlib
import re
import secrets
import threading
import time
from typing import Iterable
from typing import Iterator

from diffcache_openstack import _native
from diffcache_openstack.blocks import native_errors
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.versions.blobs import base
from diffcache_openstack.versions.blobs import copied
from diffcache_openstack.versions.store import arbitration
from diffcache_openstack.versions.store import blob_names
from diffcache_openstack.versions.store import blob_parts
from diffcache_openstack.versions.store import catalogue
from diffcache_openstack.versions.store import commits
from diffcache_openstack.versions.store import head_memory
from diffcache_openstack.versions.store import local_files
from diffcache_openstack.versions.store import orphans
from diffcache_openstack.versions.store import rebasing
from diffcache_openstack.versions.store import reservations
from diffcache_openstack.versions.store import shared_commits
from diffcache_openstack.versions.store import upload_journal

LOG = logging.getLogger(__name__)

BLOCK_SIZE = 4096
BLOCK_SIZES = tuple(2 ** power for power in range(9, 17))
# zstd level of packs.
LEVEL = 3
GRACE_SECONDS = base.GRACE_SECONDS
# Of indexes and maps that cannot be read, while others can.
DAMAGE = (exceptions.IntegrityError, exceptions.FormatError,
          exceptions.NotFound, exceptions.ObjectMissing, OSError)
# What directories and file names take, beside the reserve's contents: in all,
# and with a commit.
_RESERVE_MARGIN = 1 << 20
_COMMIT_MARGIN = 256 << 10
# What errors name: packs by their numbers, and other blobs.
_PACK = re.compile(r'\bpack (\d+)\b')
_BLOB = re.compile(r'\b(?:pack|index|map)-\d{8,}-[0-9a-z]+')


class Distrusted(exceptions.Busy):
    """Blobs are damaged, and are read from a copy when the call is repeated.

    No call can be repeated without end: each time they are others.
    """


class NothingSaved(exceptions.NotFound):
    """A store has no versions yet."""


@dataclasses.dataclass(frozen=True)
class Writing:
    """What a writer has.

    :ivar staging: a directory for new files
    :ivar head: the last catalogue, or None in an empty store. It is read
        anew by each writer, and may be changed
    """

    staging: pathlib.Path
    head: catalogue.Catalogue | None


def key_check(key: bytes | None) -> str | None:
    """Return the hash by which a catalogue identifies its key."""
    if key is None:
        return None
    return hashlib.sha256(b'diffcache version store key' + key).hexdigest()


def _reserve_of(head: catalogue.Catalogue) -> int:
    """Return the bytes that deleting versions and pruning may need.

    That is two catalogues, and the largest pack, which a prune rewrites before
    it removes the old one.
    """
    return (2 * len(head.encode()) + _RESERVE_MARGIN
            + head.largest_pack())


class StoreAccess:
    """Access to the blobs of a version store.

    :param store: holds the blobs
    :param key: 32 bytes that blocks are sealed with, the same for all of a
        store; None for a store in the clear
    :param block_size: bytes of a block, for a store that does not exist yet
    :param level: zstd level of new packs
    :param memory: what this host knows of the store; None for nothing
    :param arbiter: decides between writers that the store's lock does not
        exclude; None for none
    :param reads: what blobs of a store that has a copy are read from; None
        for the store
    """

    def __init__(self, store: base.BlobStore, key: bytes | None = None,
                 block_size: int = BLOCK_SIZE, level: int = LEVEL,
                 memory: head_memory.HeadMemory | None = None,
                 arbiter: arbitration.Arbiter | None = None,
                 reads: copied.CopiedStore | None = None) -> None:
        if key is not None and len(key) != 32:
            raise exceptions.InvalidInput(
                f'The key of a version store has 32 bytes, not {len(key)}.')
        self.store = store
        self._reads = reads or store
        self.key = key
        self.level = level
        self._block_size = block_size
        self._memory = memory
        # Where the lock excludes all writers, it decides.
        self.arbiter = None if store.exclusive else arbiter
        # Whether a thread holds the lock for more than one commit.
        self._held = threading.local()

    @property
    def is_shared(self) -> bool:
        """Whether several writers may work at a time."""
        return self.store.exclusive or self.arbiter is not None

    def with_key(self, key: bytes) -> 'StoreAccess':
        """Return access to the same store with another key."""
        other = copy.copy(self)
        other.key = key
        return other

    def without_arbiter(self) -> 'StoreAccess':
        """Return access for work that commits what others decided."""
        return StoreAccess(self.store, self.key, self._block_size, self.level,
                           self._memory)

    def head(self) -> catalogue.Catalogue:
        """Return the last committed catalogue.

        :raises NothingSaved: the store has no versions yet
        :raises InvalidInput: the store has another key
        :raises IntegrityError: it is not what this suite committed last
        """
        head = self._load()
        if head is None:
            raise NothingSaved('The store has no versions: save one first.')
        return head

    def head_or_new(self) -> catalogue.Catalogue:
        """Return the last catalogue, or a new one for an empty store."""
        return self._load() or self.new_head()

    def new_head(self) -> catalogue.Catalogue:
        """Return a new catalogue, for an empty store."""
        head = catalogue.Catalogue(
            number=0, store_id=secrets.token_hex(4),
            block_size=self._block_size, key_check=key_check(self.key))
        head.before = head.copy()
        return head

    def _load(self, decided: int | None = None) -> catalogue.Catalogue | None:
        # Before the store is read: another thread may commit meanwhile.
        known = self._memory.read() if self._memory else None
        head = commits.load(self.store, decided)
        if head is not None:
            self._check(head)
        if self._memory is not None:
            self._memory.check(known, head)
            self._memory.note(head)
        return head

    def _load_completed(self, tidies: bool) -> catalogue.Catalogue | None:
        """Return the head, after completing a commit that was interrupted.

        :param tidies: whether a catalogue that was published, but not removed
            from where it was decided about, is looked for, too
        """
        if self.arbiter is None:
            return self._load()
        # Before the store is read: another writer may commit meanwhile.
        decided = self.arbiter.read()
        number = decided.number if decided else None
        head = None if tidies else self._load(number)
        if tidies or decided and (not head or head.number < decided.number):
            arbitration.publish_decided(self.store, decided)
            head = self._load(number)
        arbitration.check(decided, head)
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

    def commit(self, head: catalogue.Catalogue, new: Iterable[str] = (),
               doubtful: Iterable[catalogue.Version] = ()) -> None:
        """Commit a changed catalogue: see :func:`.shared_commits.commit`."""
        with self._locked() if self.store.exclusive else \
                contextlib.nullcontext():
            shared_commits.commit(self, head, list(new), doubtful)
        if self._memory is not None:
            self._memory.note(head)

    def completed_head(self) -> catalogue.Catalogue:
        """Return the last catalogue that was decided, or a new one."""
        return self._load_completed(False) or self.new_head()

    def refuse_gone(self, names: list[str]) -> None:
        """Check that blobs are there that were put.

        :raises Busy: another writer removed one
        """
        if missing := [name for name in names if self._is_gone(name)]:
            raise exceptions.Busy(
                f'Another writer removed {missing[0]} and {len(missing) - 1} '
                f'more new blobs meanwhile: try again.')

    def _is_gone(self, name: str) -> bool:
        """Return whether another writer has removed a blob that was put.

        What was put within the grace period is removed by none, so that a
        store of objects is not asked.
        """
        begun = getattr(self._held, 'begun', -math.inf)
        if (self.store.local_path(name) is None
                and time.clock_gettime(time.CLOCK_BOOTTIME)
                < begun + GRACE_SECONDS / 4):
            return False
        return not self.store.exists(name)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock for commits, unless this thread does already."""
        if getattr(self._held, 'lock', False):
            yield
            return
        with self.store.lock():
            self._held.lock = True
            try:
                yield
            finally:
                self._held.lock = False

    @contextlib.contextmanager
    def writing(self, work: str | None = None) -> Iterator['Writing']:
        """Yield what a writer needs, for a ``with`` block.

        Others may write meanwhile, unless nothing decides between writers:
        then the lock is held.

        :param work: identifies the work, see :meth:`.BlobStore.staging`
        :raises InvalidInput: there are no versions, but files of others
        :raises Busy: another writer has the store, or does this work
        """
        self.refuse_foreign()
        with contextlib.nullcontext() if self.is_shared else self._locked():
            with self._prepared(work) as writing:
                yield writing

    @contextlib.contextmanager
    def writing_alone(self) -> Iterator['Writing']:
        """Hold the lock for commits, and that of maintenance, meanwhile."""
        self.refuse_foreign()
        with self.store.lock(base.MAINTENANCE), self._locked():
            with self._prepared(None) as writing:
                yield writing

    def take_numbers(self, writing: 'Writing', at: int, packs: int
                     ) -> reservations.Numbers:
        """Return the numbers of a version that no other writer uses.

        :param at: how many the work has taken before
        :param packs: of the version, at most
        """
        count = reservations.Numbers(packs, 1, 1)
        assert writing.head is not None
        if not self.is_shared:
            return reservations.free(writing.head)
        before = reservations.taken(writing.staging)
        if (at < len(before) and before[at][1] == count
                and reservations.are_free(writing.head, *before[at])):
            return before[at][0]
        if self.arbiter is not None:
            first = self.arbiter.take_numbers(
                reservations.free(writing.head), count)
            reservations.check(first.plus(count))
            reservations.note(writing.staging, first, count)
            return first
        with self._locked():
            last = writing.head if commits.is_last(
                self.store, writing.head) else self.completed_head()
            first = reservations.after_others(
                self.store, reservations.free(last))
            reservations.note(writing.staging, first, count)
        return first

    def refuse_foreign(self) -> None:
        """Refuse to create a store among files that are not its own.

        :raises InvalidInput: there are such files, and no versions
        """
        mark = self.store.local_path(commits.MARKER)
        if mark is not None and files.is_there(mark):
            return  # Without a look at each of many names.
        found = blob_names.foreign(self.store.names() or ())
        if found and commits.load(self.store) is None:
            raise exceptions.InvalidInput(
                f'The directory of the store has no versions, but files that '
                f'are not the store\'s, such as {found[0]}: choose an empty '
                f'directory, or one that does not exist yet.')

    @contextlib.contextmanager
    def _prepared(self, work: str | None, maintains: bool = False
                  ) -> Iterator['Writing']:
        """Remove what killed writers left, and yield what a writer needs."""
        with contextlib.ExitStack() as stack:
            with self._locked():
                staging = stack.enter_context(self.store.staging(work))
                alive = (set() if self.store.exclusive
                         else orphans.of_live(self.store))
                head = self._load_completed(maintains)
                if maintains and head is not None:
                    commits.mark(self.store, head.store_id)
                journal = upload_journal.UploadJournal(self.store, staging)
                listed = journal.listed()
                self._held.begun = (-math.inf if listed else
                                    time.clock_gettime(time.CLOCK_BOOTTIME))
                if listed:
                    journal.return_files(head.blobs() if head else set())
                orphans.remove(self.store, head, alive | listed, maintains)
            if head is not None:
                head.before = head.copy()
            yield Writing(staging, head)

    @contextlib.contextmanager
    def maintaining(self) -> Iterator['Writing']:
        """Exclude others that delete and prune; a full store permits it, too.

        What commits need of the store's reserve is given up meanwhile; see
        :meth:`keep_reserve`.
        """
        if self.store.append_only:
            raise exceptions.Forbidden(
                'This host may only add versions to the store: have a host '
                'delete and prune them that may change it ([versions] '
                'maintains_store).')
        self.refuse_foreign()
        with self.store.lock(base.MAINTENANCE), (
                contextlib.nullcontext() if self.is_shared
                else self._locked()):
            before = self.store.reserved()
            self.store.spend_reserve(self._commit_bytes())
            try:
                with self._prepared(None, maintains=True) as writing:
                    yield writing
            finally:
                self._regain_reserve(before)

    def _commit_bytes(self) -> int:
        """Return the bytes that commits of a changed catalogue may need."""
        try:
            head = self._load()
        except exceptions.DiffCacheError:
            return _COMMIT_MARGIN  # It is refused later.
        return _COMMIT_MARGIN + (2 * len(head.encode()) if head else 0)

    def keep_reserve(self, head: catalogue.Catalogue) -> None:
        """Set aside what deleting versions of a catalogue and pruning need.

        :raises NoSpace: there is not so much
        """
        self.store.keep_reserve(_reserve_of(head))

    def _regain_reserve(self, before: int) -> None:
        """Set aside again what was given up, as far as there is room.

        :param before: bytes of the reserve, which other stores may share
        """
        try:
            try:
                head = self._load()
            except exceptions.DiffCacheError:
                self.store.regain_reserve(before)
                return
            if head is None:
                return
            wanted = max(before, _reserve_of(head))
            # Some filesystems give the space of what was deleted only then.
            self.store.flush()
            if (found := self.store.regain_reserve(wanted)) < wanted:
                LOG.warning('%d of %d bytes are set aside for deleting '
                            'versions: the filesystem of the store is full; '
                            'free space, or delete versions and prune',
                            found, wanted)
        except exceptions.DiffCacheError as exc:
            LOG.warning('Could not set space aside for deleting versions from '
                        'a full store; the next save does: %s', exc)

    def orphans(self, head: catalogue.Catalogue | None) -> list[str]:
        """Return the blobs of killed writers: see :func:`.orphans.find`."""
        return orphans.find(self.store, head)

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
                from diffcache_openstack.versions.store import key_chain
                opened.set_keys(head.key_number,
                                key_chain.former_keys(head, self.key))
        return opened

    def _add_bases(self, head: catalogue.Catalogue,
                   opened: _native.BlockStore) -> None:
        """Add the indexes of base images that this host may use."""
        for name, blob in head.bases.items():
            if self.may_use_index(name, blob):
                opened.add_base(name, blob.blob, check_of(blob))

    def may_use_index(self, base_id: str, blob: catalogue.Blob) -> bool:
        """Return whether the index of a base image is that of the image.

        A process that remembers nothing trusts the writers of its store.
        """
        return self._memory is None \
            or self._memory.has_compared(base_id, blob.check)

    def note_index(self, base_id: str, blob: catalogue.Blob) -> None:
        """Use an index from now on, which is that of its base image."""
        if self._memory is not None:
            self._memory.note_compared(base_id, blob.check)

    def _pack_arguments(self, number: int, pack: catalogue.Pack) -> tuple:
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


def check_of(blob: catalogue.Blob | catalogue.Pack) -> bytes:
    """Return the checksum that a map, or the index of a pack, ends with."""
    return bytes.fromhex(blob.check)
