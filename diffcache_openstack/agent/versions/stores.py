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
"""The part of the versions' store that is a project's."""

import contextlib
import hashlib
import hmac
import logging
import pathlib
import re
import typing
import urllib.parse

from oslo_config import cfg

from diffcache_openstack.common import exceptions
from diffcache_openstack.store import base
from diffcache_openstack.store import registry
from diffcache_openstack.versions import commits
from diffcache_openstack.versions import key_ids
from diffcache_openstack.versions import store_access
from diffcache_openstack.versions import upkeep
from diffcache_openstack.versions import version_store

LOG = logging.getLogger(__name__)

_PLAIN = re.compile(r'[a-z0-9]{1,64}')


class Stores:
    """Opens the stores that ``[versions] store`` has for projects.

    :param manager: a key manager of castellan; the configured one if None
    :raises InvalidInput: the options for keys contradict each other
    """

    def __init__(self, conf: cfg.ConfigOpts, manager: typing.Any = None
                 ) -> None:
        self._options = conf.versions
        if self._options.key_file and self._options.key_manager:
            raise exceptions.InvalidInput(
                'Keys of versions are those of [versions] key_file, or of'
                ' [versions] key_manager: set one of them.')
        self._managed = _Managed(conf, manager)
        self._key: bytes | None = None
        if self._options.key_file:
            self._key = version_store.read_key(
                pathlib.Path(self._options.key_file))

    @property
    def configured(self) -> bool:
        """Whether there is a store at all."""
        return bool(self._options.store)

    def open(self, project_id: str) -> version_store.VersionStore:
        """The store of a project.

        :raises InvalidInput: none is configured, or its options do not do,
            or versions lie there in the clear and should not
        :raises PermanentError: its key is not to be had
        :raises ServiceUnavailable: the key manager does not answer
        """
        store = self._part(project_id)
        return self._engine(store, self._known_key(store, project_id))

    def open_or_make(self, project_id: str) -> version_store.VersionStore:
        """The store of a project, to save something: with a key if need be.

        Raises what :meth:`open` does.
        """
        store = self._part(project_id)
        key = self._known_key(store, project_id)
        if key is None and self._options.key_manager:
            key = self._managed.make(store, project_id)
        return self._engine(store, key)

    @property
    def prune_rule(self) -> upkeep.PruneRule:
        """Which packs are written anew when space is given back."""
        return upkeep.PruneRule(level=self._options.prune_level,
                                most_bytes=self._options.prune_limit)

    def _engine(self, store: base.BlobStore, key: bytes | None
                ) -> version_store.VersionStore:
        return version_store.VersionStore(store_access.StoreAccess(
            store, key, level=self._options.level))

    def _part(self, project_id: str) -> base.BlobStore:
        if not self.configured:
            raise exceptions.InvalidInput(
                'This host has no store of versions; set [versions] store.')
        tag = _tag(project_id)
        uri = self._options.store
        if uri.startswith('file:'):
            directory = urllib.parse.urlsplit(uri).path.rstrip('/')
            return registry.open_store(f'file://{directory}/{tag}')
        return Part(registry.open_store(
            uri, list(self._options.store_config)), tag)

    def _known_key(self, store: base.BlobStore, project_id: str
                   ) -> bytes | None:
        """The key that a project has by now; None if it has none."""
        if self._key is not None:
            return hmac.digest(
                self._key, b'versions of ' + project_id.encode(), 'sha256')
        key = self._managed.find(store, project_id)
        if (key is None and self._options.key_manager
                and commits.load(store) is not None):
            # Not for want of a key is anything stored so that all can read.
            raise exceptions.InvalidInput(
                f'Versions of project {project_id} are stored in the clear,'
                f' and [versions] key_manager is set: give [versions] store'
                f' another place, or leave key_manager out to go on with'
                f' these.')
        return key


class _Managed:
    """Keys that a key manager keeps, one for each project."""

    def __init__(self, conf: cfg.ConfigOpts, manager: typing.Any) -> None:
        self._conf = conf
        self._manager = manager
        self._opened: typing.Any = None

    def find(self, store: base.BlobStore, project_id: str) -> bytes | None:
        """The key that a store is sealed with; None if there is none.

        :raises PermanentError: it is not to be had
        :raises ServiceUnavailable: the key manager does not answer
        """
        key_id = key_ids.read(store)
        return None if key_id is None else self._get(key_id, project_id)

    def make(self, store: base.BlobStore, project_id: str) -> bytes:
        """Have a key made for a new store, and remember there which it is.

        Raises what :meth:`find` does.
        """
        with store.lock():
            key_id = key_ids.read(store)
            if key_id is None:
                key_id = self._make(store, project_id)
        return self._get(key_id, project_id)

    def _make(self, store, project_id):
        keys, caller = self._keys()
        key_id = keys.create(caller, f'versions of project {project_id}')
        try:
            key_ids.write(store, key_id)
        except exceptions.Conflict:
            # Not all locks keep writers of other hosts away.
            kept = key_ids.read(store)
            if kept != key_id:
                keys.delete(caller, key_id)
            return kept
        LOG.info('Versions of project %s are sealed with the key %s',
                 project_id, key_id)
        return key_id

    def _get(self, key_id, project_id):
        keys, caller = self._keys()
        try:
            return keys.get(caller, key_id)
        except exceptions.PermanentError as error:
            raise type(error)(
                f'Versions of project {project_id}: {error}') from error

    def _keys(self):
        if self._opened is None:
            # Brings much that hosts without it can do without.
            from diffcache_openstack.agent.versions import keys as version_keys
            self._opened = (version_keys.Keys(self._conf, self._manager),
                            version_keys.Caller(self._conf))
        return self._opened


def _tag(project_id: str) -> str:
    """What the names of a project's blobs begin with."""
    if _PLAIN.fullmatch(project_id):
        return project_id
    return hashlib.sha256(project_id.encode()).hexdigest()[:32]


class Part(base.BlobStore):
    """The blobs of a store whose names begin in one way.

    See :class:`diffcache_openstack.store.base.BlobStore`.
    """

    def __init__(self, whole: base.BlobStore, tag: str) -> None:
        self._whole = whole
        self._prefix = f'{tag}-'

    def _name(self, name: str) -> str:
        return self._prefix + base.check_name(name)

    def create(self, name: str, data: bytes) -> None:
        """Make a small blob."""
        self._whole.create(self._name(name), data)

    def replace(self, name: str, data: bytes) -> None:
        """Make a small blob, or put another in its place."""
        self._whole.replace(self._name(name), data)

    def put_file(self, name: str, path: pathlib.Path) -> None:
        """Make a blob from a file."""
        self._whole.put_file(self._name(name), path)

    def flush(self) -> None:
        """Return when all that was made is durable."""
        self._whole.flush()

    def read(self, name: str, offset: int = 0,
             length: int | None = None) -> bytes:
        """Bytes of a blob."""
        return self._whole.read(self._name(name), offset, length)

    def size(self, name: str) -> int:
        """Bytes that a blob has."""
        return self._whole.size(self._name(name))

    def delete(self, name: str) -> None:
        """Remove a blob."""
        self._whole.delete(self._name(name))

    def names(self) -> list[str] | None:
        """The names of the part's blobs."""
        names = self._whole.names()
        if names is None:
            return None
        return [name.removeprefix(self._prefix) for name in names
                if name.startswith(self._prefix)]

    def local_path(self, name: str) -> pathlib.Path | None:
        """The file that a blob is."""
        return self._whole.local_path(self._name(name))

    def staging(self, work: str | None = None
                ) -> contextlib.AbstractContextManager[pathlib.Path]:
        """A directory, empty or with what the same work left."""
        return self._whole.staging(work)

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Exclude other writers, of other parts too."""
        return self._whole.lock()

    @property
    def atomic(self) -> bool:
        """Blobs appear whole or not at all."""
        return self._whole.atomic

    @property
    def ranged(self) -> bool:
        """A part of a blob costs what it is."""
        return self._whole.ranged
