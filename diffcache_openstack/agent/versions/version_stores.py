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
"""The version store of each project, in the configured blob store."""

import collections
import dataclasses
import functools
import hashlib
import hmac
import logging
import math
import pathlib
import re
import typing
import urllib.parse

from oslo_config import cfg

from diffcache_openstack.agent.versions import arbiters
from diffcache_openstack.agent.versions import inbox_room
from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import base
from diffcache_openstack.versions.blobs import copied
from diffcache_openstack.versions.blobs import layered
from diffcache_openstack.versions.blobs import registry
from diffcache_openstack.versions.blobs import upload_ledger
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.access import store_reader
from diffcache_openstack.versions.store.catalogue import blob_names
from diffcache_openstack.versions.store.commits import arbitration
from diffcache_openstack.versions.store.commits import head_memory
from diffcache_openstack.versions.store.commits import heads
from diffcache_openstack.versions.store.copies import replication
from diffcache_openstack.versions.store.inbox import acceptance
from diffcache_openstack.versions.store.keys import key_files
from diffcache_openstack.versions.store.keys import key_ids
from diffcache_openstack.versions.store.upkeep import pruning
from diffcache_openstack.versions.store.upkeep import verification
from diffcache_openstack.versions import version_store

LOG = logging.getLogger(__name__)

Opener = typing.Callable[
    [str, list[str], str, upload_ledger.UploadLedger | None], base.BlobStore]

_PLAIN = re.compile(r'[a-z0-9]{1,64}')


class Stores:
    """Opens the version stores of projects in ``[versions] store``.

    :param manager: a key manager of castellan; the configured one if None
    :param memory: directory in which this host remembers the state of stores;
        None to remember nothing
    :param arbiter_of: creates what decides between writers that the store's
        lock does not exclude; None for none
    :raises InvalidInput: the options for keys contradict each other
    """

    def __init__(self, conf: cfg.ConfigOpts, manager: typing.Any = None,
                 memory: pathlib.Path | None = None,
                 arbiter_of: arbiters.ArbiterOf | None = None,
                 copy_reads: collections.Counter[str] | None = None) -> None:
        self._options = conf.versions
        self._memory = memory
        self._arbiter_of = arbiter_of
        self._copy_reads = (collections.Counter() if copy_reads is None
                            else copy_reads)
        # Names of damaged blobs, by the tags of projects.
        self._damaged: dict[str, set[str]] = collections.defaultdict(set)
        if self._options.key_file and self._options.key_manager:
            raise exceptions.InvalidInput(
                '[versions] key_file and [versions] key_manager exclude each'
                ' other: set one of them.')
        self._room = self._new_room()
        self._managed = _ManagedKeys(conf, manager)
        # The present key of ``key_file``, and former ones.
        self._keys: list[bytes] = []
        if self._options.key_file:
            self._keys = [
                key_files.read_key(pathlib.Path(path)) for path in (
                    self._options.key_file, *self._options.former_key_files)]

    def _new_room(self) -> inbox_room.InboxRoom:
        uri = urllib.parse.urlsplit(self._options.inbox or '')
        place = hashlib.sha256(uri.geturl().encode()).hexdigest()[:16]
        return inbox_room.InboxRoom(
            inbox_room.InboxLimits(self._options.inbox_limit or math.inf,
                                   self._options.inbox_host_limit or math.inf),
            pathlib.Path(uri.path) if uri.scheme == 'file' else None,
            self._memory and self._memory / f'inbox-{place}.json',
            # A tag is its own.
            lambda tag, name: self._inbox(tag).exists(name))

    @property
    def configured(self) -> bool:
        """Whether a store is configured."""
        return bool(self._options.store)

    def open(self, project_id: str, task_id: str | None = None
             ) -> version_store.VersionStore:
        """Open the store of a project.

        :param task_id: of the task that changes it; None to read it: from
            its copy if it cannot be read
        :raises InvalidInput: none is configured, its options are invalid, or
            its versions are not sealed though a key manager is set
        :raises PermanentError: its key cannot be read
        :raises ServiceUnavailable: the key manager does not answer
        """
        seen = self._seen(project_id)
        if task_id is None and not self._is_readable(project_id, seen):
            return self._open_copy(project_id)
        key = self._known_key(seen, project_id)
        store = seen if task_id is None else self._changed(project_id, seen)
        return self._engine(store, key, project_id, task_id,
                            self._reads(store, project_id))

    def is_readable(self, project_id: str) -> bool:
        """Return whether to read the store of a project, not its copy."""
        return self._is_readable(project_id, self._seen(project_id))

    def _is_readable(self, project_id: str, seen: base.BlobStore) -> bool:
        if not self._options.copy:
            return True
        try:
            if heads.load(seen) is not None:
                return True
            reason = 'it is empty'
        except exceptions.DiffCacheError as error:
            reason = str(error)
        try:
            if heads.load(self._copy(project_id)) is None:
                return True  # Nothing was saved yet.
        except exceptions.DiffCacheError as error:
            LOG.error('Could not read the copy of the store of project %s, nor'
                      ' the store: %s', project_id, error)
            return True
        LOG.warning('Reading versions of project %s from the copy of their'
                    ' store: %s', project_id, reason)
        self._copy_reads['stores'] += 1
        return False

    def _open_copy(self, project_id: str) -> version_store.VersionStore:
        """Open the copy of a store, which is only read."""
        copy = self._copy(project_id)
        return self._engine(
            layered.LayeredStore(copy, copy),
            self._known_key(copy, project_id), project_id, None,
            uri=self._options.copy)

    def _copy(self, project_id: str, opener: Opener = registry.open_to_read
              ) -> base.BlobStore:
        """Return the copy of a project's store.

        :raises InvalidInput: none is configured
        """
        if not self._options.copy:
            raise exceptions.InvalidInput(
                'No copy of the version store is configured on this host: set'
                ' [versions] copy.')
        return self._part(project_id, self._options.copy,
                          self._options.copy_config, opener)

    def replicate(self, project_id: str, job: version_store.Job
                  ) -> replication.Replicated:
        """Have the copy of a project's store follow it.

        :raises InvalidInput: none is configured
        """
        copy = self._copy(project_id, registry.open_store)
        store = self._main(project_id)
        return self._engine(store, self._known_key(store, project_id),
                            project_id, None).replicate(
            copy, dataclasses.replace(job, rate=self._options.copy_rate))

    def rebuild(self, project_id: str, job: version_store.Job
                ) -> replication.Replicated:
        """Create the store of a project, which was lost, of its copy.

        :raises InvalidInput: none is configured
        """
        return self._open_copy(project_id).rebuild(
            self._main(project_id),
            dataclasses.replace(job, rate=self._options.copy_rate))

    def verify(self, project_id: str, job: version_store.Job
               ) -> verification.Verified:
        """Verify the store of a project; repair it from its copy if it can be.

        What was repaired is not part of the result.
        """
        seen = self._seen(project_id)
        key = self._known_key(seen, project_id)
        damage = self._damaged[_tag(project_id)]
        found = self._engine(seen, key, project_id, None).verify(job)
        if (found.damage and self._options.copy
                and (self.accepts or not self._options.inbox)):
            repaired = self._engine(
                self._changed(project_id, seen), key, project_id, None).repair(
                self._copy(project_id), [each.object for each in found.damage])
            self._copy_reads['repaired'] += len(repaired)
            if repaired:
                found = self._engine(seen, key, project_id, None).verify(job)
        damage &= {each.object for each in found.damage}
        return found

    def _main(self, project_id: str) -> base.BlobStore:
        """Return the store of a project, without what waits in an inbox."""
        return self._part(project_id, self._options.store,
                          self._options.store_config, registry.open_store)

    def open_for_save(self, project_id: str, task_id: str | None = None
                      ) -> version_store.VersionStore:
        """Open the store of a project to save, with a new key if it needs one.

        Parameters and errors are those of :meth:`open`.

        :raises Busy: the inbox has no room until something is accepted
        """
        if self._options.inbox and not self.accepts:
            self._room.check()
        seen = self._seen(project_id)
        store = self._changed(project_id, seen)
        key = self._known_key(seen, project_id)
        if key is None and self._options.key_manager:
            key = self._managed.create(store, project_id)
        return self._engine(store, key, project_id, task_id)

    @property
    def accepts(self) -> bool:
        """Whether this host accepts what others add to the store."""
        return bool(self._options.inbox and self._options.maintains_store)

    def accept(self, project_id: str, base_image: acceptance.BaseImage,
               job: version_store.Job, task_id: str) -> acceptance.Accepted:
        """Accept what hosts that may only add to a project's store have added.

        Raises what :meth:`open` does, and Busy while a host is writing.
        """
        seen, decided = self._seen(project_id), None
        if self._arbiter_of is not None and not seen.exclusive:
            decided = self._arbiter_of(task_id, self._place()).read()
            # A host may have been killed between decision and publication.
            arbitration.publish_decided(seen, decided)
        main = self._changed(project_id, seen)
        store = self._engine(main, self._known_key(seen, project_id),
                             project_id, None)
        found = store.accept(
            self._inbox(project_id),
            acceptance.Rules(base_image, self._options.inbox_limit
                             or math.inf), job)
        if found.reasons and decided is not None:
            head = heads.load(main)
            if (head.number if head else 0) < decided.number:
                found.void = decided.number, decided.digest
        return found

    @property
    def keeps_manifests(self) -> bool:
        """Whether saves keep manifests, from which servers boot lazily."""
        return self._options.manifests

    @property
    def rewrite_limit(self) -> int:
        """Bytes that one task seals with another key at most."""
        return self._options.prune_limit

    @property
    def prune_rule(self) -> pruning.PruneRule:
        """Which packs a prune rewrites."""
        return pruning.PruneRule(level=self._options.prune_level,
                                 most_bytes=self._options.prune_limit)

    def _engine(self, store: base.BlobStore, key: bytes | None,
                project_id: str, task_id: str | None,
                reads: copied.CopiedStore | None = None,
                uri: str | None = None) -> version_store.VersionStore:
        """Return what reads and changes a store.

        :param reads: what its blobs are read from, if it has a copy
        :param uri: of the copy, if it is that
        """
        place = self._place(uri)
        memory = arbiter = None
        if self._memory is not None:
            memory = head_memory.HeadMemory(
                self._memory / f'{_tag(project_id)}-{place}.json')
        if self._arbiter_of is not None and task_id is not None:
            arbiter = self._arbiter_of(task_id, place)
        return version_store.VersionStore(store_access.StoreAccess(
            store, key, level=self._options.level, memory=memory,
            arbiter=arbiter, reads=reads))

    def _reads(self, store: base.BlobStore, project_id: str
               ) -> copied.CopiedStore | None:
        """Return what blobs of a store are read from, if it has a copy."""
        if not self._options.copy:
            return None

        def note(_name: str) -> None:
            self._copy_reads['blobs'] += 1

        return copied.CopiedStore(
            store, functools.partial(self._copy, project_id),
            self._damaged[_tag(project_id)], note)

    def _place(self, uri: str | None = None) -> str:
        """Return a hash of the URI of the store, or of its copy.

        Another store, which an operator has configured, is no change.
        """
        return hashlib.sha256(
            (uri or self._options.store).encode()).hexdigest()[:16]

    def _seen(self, project_id: str) -> base.BlobStore:
        """Return the store of a project as this host reads it."""
        if not self._options.inbox:
            return self._part(project_id, self._options.store,
                              self._options.store_config, registry.open_store)
        return layered.LayeredStore(
            self._part(project_id, self._options.store,
                       self._options.store_config, registry.open_to_read),
            self._inbox(project_id),
            inbox_room.ProjectRoom(self._room, _tag(project_id)))

    def _changed(self, project_id: str, seen: base.BlobStore
                 ) -> base.BlobStore:
        """Return the store of a project as this host changes it.

        :param seen: as it reads it
        """
        if not self.accepts:
            return seen
        return self._main(project_id)

    def _inbox(self, project_id: str) -> base.BlobStore:
        return self._part(project_id, self._options.inbox,
                          self._options.inbox_config, registry.open_store)

    def _part(self, project_id: str, uri: str, config_files: list[str],
              opener: Opener) -> base.BlobStore:
        """Return the part of a store that a project has."""
        if not self.configured:
            raise exceptions.InvalidInput(
                'No version store is configured on this host: set [versions]'
                ' store.')
        tag = _tag(project_id)
        ledger = None
        if self._memory is not None:
            ledger = upload_ledger.UploadLedger(
                self._memory / f'{tag}-{self._place(uri)}.blobs.json',
                blob_names.is_bookkeeping)
        return opener(uri, list(config_files), tag, ledger)

    def _known_key(self, store: base.BlobStore, project_id: str
                   ) -> bytes | None:
        """Return the key of a project; None if it has none yet."""
        if self._keys:
            return self._key_of_files(store, project_id)
        key = self._managed.find(store, project_id)
        if (key is None and self._options.key_manager
                and heads.load(store) is not None):
            # Never store anything unsealed because a key is missing.
            raise exceptions.InvalidInput(
                f'Versions of project {project_id} are not sealed, but'
                f' [versions] key_manager is set: choose another [versions]'
                f' store, or unset key_manager to continue with these.')
        return key

    def _key_of_files(self, store: base.BlobStore, project_id: str) -> bytes:
        """Return the key of a project that its store has, if one is known."""
        keys = [_derived(key, project_id) for key in self._keys]
        if len(keys) > 1 and (head := heads.load(store)) is not None:
            for key in keys:
                if head.key_check == store_reader.key_check(key):
                    return key
        return keys[0]

    def key_to_rotate_to(self, project_id: str, key_id: str | None
                         ) -> tuple[bytes, str | None]:
        """Return the key that the store of a project is to have next.

        :param key_id: as :meth:`create_key` returned it
        :returns: the key, and its id in the key manager
        """
        if key_id is not None:
            return self._managed.get(key_id, project_id), key_id
        if not self._keys:
            raise exceptions.InvalidInput(
                'Neither [versions] key_file nor key_manager is set, so that'
                ' there is no other key for the store.')
        return _derived(self._keys[0], project_id), None

    def create_key(self, project_id: str) -> str | None:
        """Create a key for a store that has one, if a key manager keeps keys.

        :returns: its id; None if keys are in files
        """
        if self._keys or not self._options.key_manager:
            return None
        return self._managed.create_next(project_id)


def _derived(key: bytes, project_id: str) -> bytes:
    """Return the key of a project, of the key in a file."""
    return hmac.digest(key, b'versions of ' + project_id.encode(), 'sha256')


class _ManagedKeys:
    """Keys in a key manager, one for each project."""

    def __init__(self, conf: cfg.ConfigOpts, manager: typing.Any) -> None:
        self._conf = conf
        self._manager = manager
        self._opened: typing.Any = None

    def find(self, store: base.BlobStore, project_id: str) -> bytes | None:
        """Return the key that a store is sealed with; None if it has none.

        :raises PermanentError: it cannot be read
        :raises ServiceUnavailable: the key manager does not answer
        """
        key_id = key_ids.read(store)
        if key_id is None:
            return None
        head = heads.load(store)
        if head is not None and head.key_id is not None:
            key_id = head.key_id
        return self.get(key_id, project_id)

    def create(self, store: base.BlobStore, project_id: str) -> bytes:
        """Create a key for a new store, and store its id there.

        Raises what :meth:`find` does.
        """
        with store.lock():
            key_id = key_ids.read(store)
            if key_id is None:
                key_id = self._create(store, project_id)
        return self.get(key_id, project_id)

    def create_next(self, project_id: str) -> str:
        """Create a key that replaces another one; return its id.

        Raises what :meth:`find` does.
        """
        keys, caller = self._keys()
        return keys.create(caller, f'versions of project {project_id}')

    def _create(self, store, project_id):
        keys, caller = self._keys()
        key_id = keys.create(caller, f'versions of project {project_id}')
        try:
            key_ids.write(store, key_id)
        except exceptions.Conflict:
            # Not all locks exclude writers of other hosts.
            kept = key_ids.read(store)
            if kept != key_id:
                keys.delete(caller, key_id)
            return kept
        LOG.info('Versions of project %s are sealed with the key %s',
                 project_id, key_id)
        return key_id

    def get(self, key_id: str, project_id: str) -> bytes:
        """Return a key.

        Raises what :meth:`find` does.
        """
        keys, caller = self._keys()
        try:
            return keys.get(caller, key_id)
        except exceptions.PermanentError as error:
            raise type(error)(
                f'Versions of project {project_id}: {error}') from error

    def _keys(self):
        if self._opened is None:
            # Imports castellan, which hosts without a key manager do not need.
            from diffcache_openstack.agent.versions import version_keys
            self._opened = (
                version_keys.VersionKeys(self._conf, self._manager),
                version_keys.Caller(self._conf))
        return self._opened


def _tag(project_id: str) -> str:
    """Return the prefix of the names of a project's blobs."""
    if _PLAIN.fullmatch(project_id):
        return project_id
    return hashlib.sha256(project_id.encode()).hexdigest()[:32]
