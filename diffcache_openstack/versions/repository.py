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
"""A store of versions, opened: its head, and its native counterpart."""

import contextlib
import hashlib
import logging
import pathlib
import secrets
import shutil
import tempfile
import threading
from typing import Callable
from typing import Iterator

from diffcache_openstack import _native
from diffcache_openstack.blocks import native as native_errors
from diffcache_openstack.common import exceptions
from diffcache_openstack.store import base
from diffcache_openstack.versions import heads
from diffcache_openstack.versions import puts

LOG = logging.getLogger(__name__)

BLOCK_SIZE = 4096
# zstd level of packs.
LEVEL = 3


def _key_check(key: bytes | None) -> str | None:
    if key is None:
        return None
    return hashlib.sha256(b'diffcache version store key' + key).hexdigest()


class Repository:
    """A version store.

    :param store: where its blobs are
    :param key: 32 bytes; blocks are sealed with it, and one store has one
        key. None for a store in the clear
    :param block_size: bytes of a block, for a store that is yet to be made
    :param level: zstd level of new packs
    """

    def __init__(self, store: base.BlobStore, key: bytes | None = None,
                 block_size: int = BLOCK_SIZE, level: int = LEVEL) -> None:
        if key is not None and len(key) != 32:
            raise exceptions.InvalidInput(
                f'A store\'s key has 32 bytes, not {len(key)}.')
        self.store = store
        self.key = key
        self.level = level
        self._block_size = block_size

    def head(self) -> heads.Head:
        """The store's last head.

        :raises NotFound: it holds no versions yet
        :raises InvalidInput: the key is another one
        """
        head = heads.load(self.store)
        if head is None:
            raise exceptions.NotFound(
                'There are no versions in the store: save one first.')
        return self._checked(head)

    def head_or_new(self) -> heads.Head:
        """The store's last head, or the one that an empty store has."""
        head = heads.load(self.store)
        if head is not None:
            return self._checked(head)
        return heads.Head(
            number=0, store_id=secrets.token_hex(4),
            block_size=self._block_size, key_check=_key_check(self.key))

    def _checked(self, head: heads.Head) -> heads.Head:
        if head.key_check != _key_check(self.key):
            raise exceptions.InvalidInput(
                'The store was made with another key, or with none: give the '
                'one that it was made with.')
        return head

    def commit(self, head: heads.Head) -> None:
        """Make a changed head the store's last.

        :raises Busy: another writer was faster
        """
        head.number += 1
        try:
            heads.commit(self.store, head)
        except exceptions.Conflict as exc:
            raise exceptions.Busy(
                'Another writer changed the store meanwhile: try again.'
            ) from exc

    @contextlib.contextmanager
    def writing(self, work: str | None = None) -> Iterator[pathlib.Path]:
        """Hold the writer's lock; the block gets a staging directory.

        :param work: see :meth:`.BlobStore.staging`
        """
        with self.store.lock(), self.store.staging(work) as staging:
            head = heads.load(self.store)
            puts.Puts(self.store, staging).take_back(
                head.blobs() if head else set())
            self._remove_orphans(head)
            yield staging

    def orphans(self, head: heads.Head | None) -> list[str]:
        """Blobs that no head needs: of writers that were killed."""
        needed = head.blobs() if head else set()
        return sorted(
            name for name in self.store.names() or ()
            if name not in needed and not heads.is_bookkeeping(name))

    def _remove_orphans(self, head: heads.Head | None) -> None:
        """Remove what killed writers left; the lock must be held.

        Only where the lock keeps writers of all hosts apart: that is where
        blobs are files.
        """
        if self.store.names() is None:
            return
        for name in self.orphans(head):
            LOG.info('removing blob %s, which no version needs', name)
            self.store.delete(name)

    @contextlib.contextmanager
    def opened(self, head: heads.Head) -> Iterator[_native.VersionStore]:
        """The native store of a head, with all indexes and maps.

        :raises IntegrityError: one of them is damaged
        :raises Busy: another writer changed the store meanwhile, and what
            this head needs is gone
        """
        number = head.number
        with self.lenient(head) as (opened, damage):
            try:
                for reason in damage.values():
                    raise exceptions.IntegrityError(reason)
                yield opened
            except (exceptions.IntegrityError,
                    exceptions.ObjectMissing) as exc:
                if head.number != number or self.head().number == number:
                    raise
                raise exceptions.Busy(
                    'Another writer changed the store meanwhile, and what '
                    'was read of it is gone: try again.') from exc

    @contextlib.contextmanager
    def lenient(self, head: heads.Head) -> Iterator[
            tuple[_native.VersionStore, dict[str, str]]]:
        """Like :meth:`opened`, without what is damaged or missing.

        The second value says what that is: messages by the blobs' names.
        """
        with native_errors.translated():
            opened = _native.VersionStore(head.block_size, self.key)
        damage: dict[str, str] = {}
        with self._local() as path_of:
            opened.set_reader(_reader(self.store.read if self.store.ranged
                                      else path_of.read))
            self._add_packs(head, opened, path_of, damage)
            for number, blob in head.maps.items():
                with _noted(blob.blob, damage):
                    opened.add_map(number, path_of(blob.blob))
            for name, blob in head.bases.items():
                with _noted(blob.blob, damage):
                    opened.add_base(name, path_of(blob.blob))
            yield opened, damage

    def _add_packs(self, head: heads.Head, opened: _native.VersionStore,
                   path_of: '_PathOf', damage: dict[str, str]) -> None:
        for number, pack in head.packs.items():
            with _noted(pack.index, damage):
                opened.add_pack(
                    number, pack.origin, path_of(pack.index),
                    data=self.store.local_path(pack.blob), blob=pack.blob)

    @contextlib.contextmanager
    def _local(self) -> Iterator['_PathOf']:
        """A function that makes a blob a file of this host."""
        paths = _PathOf(self.store)
        try:
            yield paths
        finally:
            paths.close()


class _PathOf:
    """Gives blobs as files, fetching those that are none."""

    def __init__(self, store: base.BlobStore) -> None:
        self._store = store
        self._directory: pathlib.Path | None = None
        # Native code asks from several threads.
        self._lock = threading.Lock()

    def __call__(self, name: str) -> pathlib.Path:
        path = self._store.local_path(name)
        if path is not None:
            if not path.exists():
                raise exceptions.NotFound(f'There is no blob {name}.')
            return path
        if self._directory is None:
            self._directory = pathlib.Path(
                tempfile.mkdtemp(prefix='diffcache-'))
        path = self._directory / name
        if not path.exists():
            path.write_bytes(self._store.read(name))
        return path

    def read(self, name: str, offset: int, length: int) -> bytes:
        """A part of a blob, which is fetched whole the first time."""
        with self._lock:
            path = self(name)
        with open(path, 'rb') as stream:
            stream.seek(offset)
            return stream.read(length)

    def close(self) -> None:
        """Remove what was fetched."""
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)


def _reader(read: Callable[[str, int, int], bytes]
            ) -> Callable[[str, int, int], bytes]:
    """What native code reads blobs with: it has a name for missing ones."""
    def read_or_miss(name: str, offset: int, length: int) -> bytes:
        try:
            return read(name, offset, length)
        except exceptions.NotFound as exc:
            raise _native.ObjectMissing(name) from exc

    return read_or_miss


@contextlib.contextmanager
def _noted(name: str, damage: dict[str, str]) -> Iterator[None]:
    try:
        with native_errors.translated():
            yield
    except (exceptions.IntegrityError, exceptions.FormatError,
            exceptions.NotFound, OSError) as exc:
        damage[name] = f'{name}: {exc}'
