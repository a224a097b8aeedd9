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
"""Changing a version store: its writers, their lock and their commits."""

import contextlib
import copy
import dataclasses
import math
import pathlib
import secrets
import threading
import time
from typing import Iterable
from typing import Iterator

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.versions.blobs import base
from diffcache_openstack.versions.blobs import copied
from diffcache_openstack.versions.blobs import upload_journal
from diffcache_openstack.versions.store.access import orphans
from diffcache_openstack.versions.store.access import reserve
from diffcache_openstack.versions.store.access import shared_commits
from diffcache_openstack.versions.store.access import store_reader
from diffcache_openstack.versions.store.catalogue import blob_names
from diffcache_openstack.versions.store.catalogue import catalogue
from diffcache_openstack.versions.store.catalogue import entries
from diffcache_openstack.versions.store.commits import arbitration
from diffcache_openstack.versions.store.commits import head_memory
from diffcache_openstack.versions.store.commits import heads
from diffcache_openstack.versions.store.commits import reservations

BLOCK_SIZE = 4096
BLOCK_SIZES = tuple(2 ** power for power in range(9, 17))
# zstd level of packs.
LEVEL = 3


@dataclasses.dataclass(frozen=True)
class Writing:
    """What a writer has.

    :ivar staging: a directory for new files
    :ivar head: the last catalogue, or None in an empty store. It is read
        anew by each writer, and may be changed
    """

    staging: pathlib.Path
    head: catalogue.Catalogue | None


class StoreAccess(store_reader.StoreReader):
    """Access to a version store, to read and to change it.

    The other parameters are those of :class:`.StoreReader`.

    :param block_size: bytes of a block, for a store that does not exist yet
    :param level: zstd level of new packs
    :param arbiter: decides between writers that the store's lock does not
        exclude; None for none
    """

    def __init__(self, store: base.BlobStore, key: bytes | None = None,
                 block_size: int = BLOCK_SIZE, level: int = LEVEL,
                 memory: head_memory.HeadMemory | None = None,
                 arbiter: arbitration.Arbiter | None = None,
                 reads: copied.CopiedStore | None = None) -> None:
        super().__init__(store, key, memory, reads)
        self.level = level
        self._block_size = block_size
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

    def head_or_new(self) -> catalogue.Catalogue:
        """Return the last catalogue, or a new one for an empty store."""
        return self._load() or self.new_head()

    def new_head(self) -> catalogue.Catalogue:
        """Return a new catalogue, for an empty store."""
        head = catalogue.Catalogue(
            number=0, store_id=secrets.token_hex(4),
            block_size=self._block_size,
            key_check=store_reader.key_check(self.key))
        head.before = head.copy()
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

    def commit(self, head: catalogue.Catalogue, new: Iterable[str] = (),
               doubtful: Iterable[entries.Version] = ()) -> None:
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
                < begun + base.GRACE_SECONDS / 4):
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
            last = writing.head if heads.is_last(
                self.store, writing.head) else self.completed_head()
            first = reservations.after_others(
                self.store, reservations.free(last))
            reservations.note(writing.staging, first, count)
        return first

    def take_following(self, writing: 'Writing', first: int, packs: int
                       ) -> bool:
        """Take more numbers of packs, which follow those of a version.

        :param first: the first of them
        :returns: whether no other writer has taken any of them
        """
        assert writing.head is not None and self.arbiter is not None
        count = reservations.Numbers(packs, 0, 0)
        taken = self.arbiter.take_numbers(
            reservations.free(writing.head), count)
        reservations.check(taken.plus(count))
        return taken.pack == first

    def refuse_foreign(self) -> None:
        """Refuse to create a store among files that are not its own.

        :raises InvalidInput: there are such files, and no versions
        """
        mark = self.store.local_path(blob_names.MARKER)
        if mark is not None and files.is_there(mark):
            return  # Without a look at each of many names.
        found = blob_names.foreign(self.store.names() or ())
        if found and heads.load(self.store) is None:
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
                    heads.mark(self.store, head.store_id)
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

        What commits need of the store's reserve is given up meanwhile.
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
            with (reserve.given_up(self.store, self._load),
                    self._prepared(None, maintains=True) as writing):
                yield writing
