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
import pathlib
import re
import urllib.parse

from oslo_config import cfg

from diffcache_openstack.common import exceptions
from diffcache_openstack.store import base
from diffcache_openstack.store import registry
from diffcache_openstack.versions import engine
from diffcache_openstack.versions import repository

_PLAIN = re.compile(r'[a-z0-9]{1,64}')


class Stores:
    """Opens the stores that ``[versions] store`` has for projects."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._options = conf.versions
        self._key: bytes | None = None
        if self._options.key_file:
            self._key = engine.read_key(pathlib.Path(self._options.key_file))

    @property
    def configured(self) -> bool:
        """Whether there is a store at all."""
        return bool(self._options.store)

    def open(self, project_id: str) -> engine.Engine:
        """The store of a project.

        :raises InvalidInput: none is configured, or its options do not do
        """
        if not self.configured:
            raise exceptions.InvalidInput(
                'This host has no store of versions; set [versions] store.')
        tag = _tag(project_id)
        uri = self._options.store
        if uri.startswith('file:'):
            directory = urllib.parse.urlsplit(uri).path.rstrip('/')
            store = registry.open_store(f'file://{directory}/{tag}')
        else:
            store = Part(registry.open_store(
                uri, list(self._options.store_config)), tag)
        return engine.Engine(repository.Repository(
            store, self._project_key(project_id)))

    def _project_key(self, project_id: str) -> bytes | None:
        if self._key is None:
            return None
        return hmac.digest(self._key, b'versions of ' + project_id.encode(),
                           'sha256')


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

    def staging(self) -> contextlib.AbstractContextManager[pathlib.Path]:
        """An empty directory."""
        return self._whole.staging()

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
