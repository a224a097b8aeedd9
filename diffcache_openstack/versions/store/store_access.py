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
import hashlib
import logging
import pathlib
import secrets
import shutil
import tempfile
import threading
from typing import Callable
from typing import Collection
from typing import Iterable
from typing import Iterator
from typing import ParamSpec
from typing import TypeVar

from diffcache_openstack import _native
from diffcache_openstack.blocks import native_errors
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.versions.blobs import base
from diffcache_openstack.versions.store import arbitration
from diffcache_openstack.versions.store import blob_names
from diffcache_openstack.versions.store import catalogue
from diffcache_openstack.versions.store import commits
from diffcache_openstack.versions.store import head_memory
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
    return 2 * len(head.encode()) + _RESERVE_MARGIN + max(
        (pack.data_bytes + pack.index_bytes for pack in head.packs.values()),
        default=0)


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
    """

    def __init__(self, store: base.BlobStore, key: bytes | None = None,
                 block_size: int = BLOCK_SIZE, level: int = LEVEL,
                 memory: head_memory.HeadMemory | None = None,
                 arbiter: arbitration.Arbiter | None = None) -> None:
        if key is not None and len(key) != 32:
            raise exceptions.InvalidInput(
                f'The key of a version store has 32 bytes, not {len(key)}.')
        self.store = store
        self.key = key
        self.level = level
        self._block_size = block_size
        self._memory = memory
        # Where the lock excludes all writers, it decides.
        self._arbiter = None if store.exclusive else arbiter

    def with_key(self, key: bytes) -> 'StoreAccess':
        """Return access to the same store with another key."""
        return StoreAccess(self.store, key, self._block_size, self.level,
                           self._memory, self._arbiter)

    def without_arbiter(self) -> 'StoreAccess':
        """Return access for work that commits what others decided."""
        return StoreAccess(self.store, self.key, self._block_size, self.level,
                           self._memory)

    def head(self) -> catalogue.Catalogue:
        """Return the last committed catalogue.

        :raises NotFound: the store has no versions yet
        :raises InvalidInput: the store has another key
        :raises IntegrityError: it is not what this suite committed last
        """
        head = self._load()
        if head is None:
            raise exceptions.NotFound(
                'The store has no versions: save one first.')
        return head

    def head_or_new(self) -> catalogue.Catalogue:
        """Return the last catalogue, or a new one for an empty store."""
        head = self._load()
        if head is not None:
            return head
        return catalogue.Catalogue(
            number=0, store_id=secrets.token_hex(4),
            block_size=self._block_size, key_check=key_check(self.key))

    def _load(self) -> catalogue.Catalogue | None:
        # Before the store is read: another thread may commit meanwhile.
        known = self._memory.read() if self._memory else None
        head = commits.load(self.store)
        if head is not None:
            self._check(head)
        if self._memory is not None:
            self._memory.check(known, head)
            self._memory.note(head)
        return head

    def _load_completed(self) -> catalogue.Catalogue | None:
        """Return the head, after completing a commit that was interrupted."""
        if self._arbiter is None:
            return self._load()
        # Before the store is read: another writer may commit meanwhile.
        decided = arbitration.publish_decided(self.store, self._arbiter)
        head = self._load()
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

    def commit(self, head: catalogue.Catalogue,
               new: Iterable[str] = ()) -> None:
        """Commit a changed catalogue.

        :param new: blobs in it that the last catalogue does not have
        :raises Busy: another writer was faster, or removed one of them
        """
        if missing := [name for name in new if not self.store.exists(name)]:
            raise exceptions.Busy(
                f'Another writer removed {missing[0]} and {len(missing) - 1} '
                f'more new blobs meanwhile: try again.')
        head.number += 1
        try:
            if self._arbiter is None:
                commits.commit(self.store, head, self.key)
            else:
                arbitration.commit(self.store, self._arbiter, head, self.key)
        except exceptions.Conflict as exc:
            raise exceptions.Busy(
                'Another writer changed the store meanwhile: try again.'
            ) from exc
        except exceptions.NoSpace:
            head.number -= 1  # The same commit may follow.
            raise
        if self._memory is not None:
            self._memory.note(head)

    @contextlib.contextmanager
    def writing(self, work: str | None = None) -> Iterator[pathlib.Path]:
        """Hold the writer's lock for a ``with`` block; yield a directory.

        :param work: identifies the work, see :meth:`.BlobStore.staging`
        :raises InvalidInput: there are no versions, but files of others
        """
        self._refuse_foreign()
        with self.store.lock(), self._prepared(work) as staging:
            yield staging

    def _refuse_foreign(self) -> None:
        """Refuse to create a store among files that are not its own.

        :raises InvalidInput: there are such files, and no versions
        """
        found = blob_names.foreign(self.store.names() or ())
        if found and commits.load(self.store) is None:
            raise exceptions.InvalidInput(
                f'The directory of the store has no versions, but files that '
                f'are not the store\'s, such as {found[0]}: choose an empty '
                f'directory, or one that does not exist yet.')

    @contextlib.contextmanager
    def _prepared(self, work: str | None) -> Iterator[pathlib.Path]:
        """Remove what killed writers left, and yield a staging directory."""
        with self.store.staging(work) as staging:
            head = self._load_completed()
            journal = upload_journal.UploadJournal(self.store, staging)
            journal.return_files(head.blobs() if head else set())
            self._remove_orphans(head, journal.listed())
            yield staging

    @contextlib.contextmanager
    def maintaining(self) -> Iterator[pathlib.Path]:
        """Hold the writer's lock for work that a full store permits, too.

        What commits need of the store's reserve is given up meanwhile; see
        :meth:`keep_reserve`.
        """
        if self.store.append_only:
            raise exceptions.Forbidden(
                'This host may only add versions to the store: have a host '
                'delete and prune them that may change it ([versions] '
                'maintains_store).')
        self._refuse_foreign()
        with self.store.lock():
            before = self.store.reserved()
            self.store.spend_reserve(self._commit_bytes())
            try:
                with self._prepared(None) as staging:
                    yield staging
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
        """Return the blobs of killed writers, which no catalogue needs.

        Names that no version store gives are not among them.
        """
        needed = head.blobs() if head else set()
        return sorted(
            name for name in self.store.traces()
            if name not in needed and not commits.is_bookkeeping(name)
            and blob_names.is_own(name))

    def _remove_orphans(self, head: catalogue.Catalogue | None,
                        kept: Collection[str]) -> None:
        """Remove blobs of killed writers; the lock must be held.

        Where a store cannot list its blobs, those that this host has put.
        Unless the lock excludes all writers, new blobs stay: one that is not
        killed may commit them.

        :param kept: what the work that begins has put before
        """
        if self.store.append_only:
            return
        for name in self.orphans(head):
            if (name in kept or arbitration.is_pending(name, head)
                    or not self._is_abandoned(name)):
                continue
            LOG.info('Removing blob %s, which no version needs', name)
            self.store.delete(name)

    def _is_abandoned(self, name: str) -> bool:
        try:
            return (self.store.exclusive
                    or self.store.age(name) > GRACE_SECONDS)
        except exceptions.NotFound:
            return False  # Another writer has removed it.

    @contextlib.contextmanager
    def opened(self, head: catalogue.Catalogue
               ) -> Iterator[_native.BlockStore]:
        """Open the blocks of a catalogue.

        Indexes and maps are read when they are needed: what is damaged or
        missing of them concerns only versions that need it.

        :raises IntegrityError: in the block: it needs what is damaged
        :raises Busy: in the block: another writer changed the store meanwhile,
            and removed what this catalogue needs
        """
        number = head.number
        with self.lenient(head) as opened:
            try:
                yield opened
            except (exceptions.IntegrityError,
                    exceptions.ObjectMissing) as exc:
                if head.number == number != self.head().number:
                    raise exceptions.Busy(
                        'Another writer changed the store meanwhile, and '
                        'removed what was being read: try again.') from exc
                if not (damage := opened.damage()):
                    raise
                found = '; '.join(f'{name}: {reason}' for name, reason
                                  in sorted(damage.items()))
                raise exceptions.IntegrityError(
                    f'{exc}. Damaged or missing: {found}. Restore that from '
                    f'a copy of the store, or delete the versions that '
                    f'"diffcache version verify" names, and prune.') from exc

    @contextlib.contextmanager
    def lenient(self, head: catalogue.Catalogue
                ) -> Iterator[_native.BlockStore]:
        """Open the blocks of a catalogue as :meth:`opened` does.

        Errors of the block are passed on as they are.
        """
        with self._local() as local:
            opened = self._new_blocks(head, local)
            self._add_packs(head, opened)
            for number, blob in head.maps.items():
                opened.add_map(number, blob.blob, check_of(blob))
            self._add_bases(head, opened)
            for number, blob in head.hooks.items():
                _native.add_hooks(
                    opened, number,
                    self.store.local_path(blob.blob) or blob.blob,
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

    def _new_blocks(self, head: catalogue.Catalogue, local: '_LocalFiles'
                    ) -> _native.BlockStore:
        with native_errors.translated():
            opened = _native.BlockStore(
                head.block_size, self.key,
                _missing_as_native(
                    self.store.read if self.store.ranged else local.read),
                _missing_as_native(local))
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

    def _add_packs(self, head: catalogue.Catalogue,
                   opened: _native.BlockStore) -> None:
        with native_errors.translated():
            for number, pack in head.packs.items():
                opened.add_pack(
                    (number, pack.origin, pack.key),
                    (pack.blocks, pack.data_bytes),
                    self.store.local_path(pack.blob) or pack.blob,
                    pack.index, check_of(pack))

    @contextlib.contextmanager
    def _local(self) -> Iterator['_LocalFiles']:
        """Yield what gives blobs as files of this host."""
        paths = _LocalFiles(self.store)
        try:
            yield paths
        finally:
            paths.close()


def is_usable(opened: _native.BlockStore, version: catalogue.Version) -> bool:
    """Return whether a store has all maps and packs that a version needs.

    Maps and the indexes of packs are read, packs themselves are not.
    """
    with native_errors.translated():
        return not opened.hits([version.root], {})[0]


def check_of(blob: catalogue.Blob | catalogue.Pack) -> bytes:
    """Return the checksum that a map, or the index of a pack, ends with."""
    return bytes.fromhex(blob.check)


class _LocalFiles:
    """Gives blobs as files, and downloads those of remote stores."""

    def __init__(self, store: base.BlobStore) -> None:
        self._store = store
        self._directory: pathlib.Path | None = None
        # Native code reads from several threads.
        self._lock = threading.Lock()

    def __call__(self, name: str) -> pathlib.Path:
        """Return a file that has all of a blob.

        :raises NotFound: the store does not have it
        """
        with self._lock:
            return self._fetch(name)

    def _fetch(self, name: str) -> pathlib.Path:
        path = self._store.local_path(name)
        if path is not None:
            if not files.is_there(path):
                raise exceptions.NotFound(f'Blob {name} does not exist.')
            return path
        if self._directory is None:
            self._directory = pathlib.Path(
                tempfile.mkdtemp(prefix='diffcache-'))
        path = self._directory / name
        if not files.is_there(path):
            _download(self._store, name, path)
        return path

    def read(self, name: str, offset: int, length: int) -> bytes:
        """Read a part of a blob, which is downloaded whole the first time."""
        with open(self(name), 'rb') as stream:
            stream.seek(offset)
            return stream.read(length)

    def close(self) -> None:
        """Remove the downloaded files."""
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)


def _download(store: base.BlobStore, name: str, path: pathlib.Path) -> None:
    """Write a blob to a new file, or leave none.

    :raises NoSpace: the filesystem of the file is full
    """
    try:
        with files.space_errors(path):
            path.write_bytes(store.read(name))
    except BaseException:
        path.unlink(missing_ok=True)
        raise


_Result = TypeVar('_Result')
_Arguments = ParamSpec('_Arguments')


def _missing_as_native(call: Callable[_Arguments, _Result]
                       ) -> Callable[_Arguments, _Result]:
    """Return a call for native code: it raises ObjectMissing for NotFound."""
    def call_or_miss(*arguments: _Arguments.args,
                     **options: _Arguments.kwargs) -> _Result:
        try:
            return call(*arguments, **options)
        except exceptions.NotFound as exc:
            raise _native.ObjectMissing(str(exc)) from exc

    return call_or_miss
