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
"""Blobs as files of this host, for native code."""

import pathlib
import shutil
import tempfile
import threading
from typing import Callable
from typing import ParamSpec
from typing import TypeVar

from diffcache_openstack import _native
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.versions.blobs import base
from diffcache_openstack.versions.blobs import blob_parts
from diffcache_openstack.versions.blobs import copied

_COPY_BYTES = 8 << 20


class LocalFiles:
    """Gives blobs as files, and downloads those of remote stores."""

    def __init__(self, store: base.BlobStore | copied.CopiedStore) -> None:
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
        if part := blob_parts.parse(name):
            return self._part(name, part)
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

    def _part(self, name: str, part: blob_parts.Part) -> pathlib.Path:
        """Return a file that has a part of a blob, which is fetched whole."""
        whole = self._fetch(part.blob)
        if self._directory is None:
            self._directory = pathlib.Path(
                tempfile.mkdtemp(prefix='diffcache-'))
        path = self._directory / name
        if not files.is_there(path):
            with files.space_errors(path), open(whole, 'rb') as stream:
                stream.seek(part.offset)
                path.write_bytes(stream.read(part.bytes))
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


def _download(store: base.BlobStore | copied.CopiedStore, name: str,
              path: pathlib.Path) -> None:
    """Write a blob to a new file, or leave none.

    :raises NoSpace: the filesystem of the file is full
    """
    try:
        with files.space_errors(path):
            path.write_bytes(store.read(name))
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def copy(store: base.BlobStore, name: str, path: pathlib.Path, size: int
         ) -> None:
    """Write bytes of a blob to a file, a few at a time.

    :param size: how many; the blob may have more
    :raises IntegrityError: it has fewer
    :raises NoSpace: the filesystem of the file is full
    """
    step = _COPY_BYTES if store.ranged else size
    with files.space_errors(path), open(path, 'wb') as stream:
        while left := size - stream.tell():
            part = store.read(name, stream.tell(), min(step, left))
            if not part:
                raise exceptions.IntegrityError(f'{name} ends early.')
            stream.write(part)


_Result = TypeVar('_Result')
_Arguments = ParamSpec('_Arguments')


def missing_as_native(call: Callable[_Arguments, _Result]
                      ) -> Callable[_Arguments, _Result]:
    """Return a call for native code: it raises ObjectMissing for NotFound."""
    def call_or_miss(*arguments: _Arguments.args,
                     **options: _Arguments.kwargs) -> _Result:
        try:
            return call(*arguments, **options)
        except exceptions.NotFound as exc:
            raise _native.ObjectMissing(str(exc)) from exc

    return call_or_miss
