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
"""Blobs in a store that glance_store offers: S3, Swift, Ceph RBD and others.

Options of the group ``glance_store`` choose the driver, as in Glance's own
configuration file.
"""

import contextlib
import functools
import importlib.metadata
import io
import os
import pathlib
import shutil
import stat
import tempfile
import time
from typing import Any
from typing import Iterator

from glance_store import backend
from glance_store import capabilities
from glance_store import exceptions as store_exceptions
from glance_store import location as store_location
from oslo_config import cfg
from stevedore import driver as stevedore_driver
from stevedore import exception as stevedore_exceptions

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import base
from diffcache_openstack.versions.blobs import upload_ledger

_HASH = 'sha256'
_CHUNK = 1 << 20
_STAGING = 'diffcache-'
_GIVEN_UP_SECONDS = 7 * 24 * 3600.0
# What another writer may take at most from finding no blob to having put one:
# seconds, and as a multiple of what this one took.
_SETTLE_S = 0.2
_SETTLE_TIMES = 3.0


@contextlib.contextmanager
def _translated(name: str) -> Iterator[None]:
    try:
        yield
    except store_exceptions.NotFound as exc:
        raise exceptions.NotFound(f'There is no blob {name}.') from exc
    except store_exceptions.Duplicate as exc:
        raise exceptions.Conflict(f'There is a blob {name} already.') from exc
    except store_exceptions.StorageFull as exc:
        raise exceptions.NoSpace(
            f'No space for blob {name}: free some and try again.') from exc
    except (store_exceptions.BackendException,
            store_exceptions.RemoteServiceUnavailable, OSError) as exc:
        raise exceptions.ServiceUnavailable(
            f'Blob {name}: {exc}; try again when the store answers.') from exc
    except store_exceptions.GlanceStoreException as exc:
        raise exceptions.PermanentError(
            f'Blob {name}: {exc}; check the store\'s configuration.') from exc


def _drivers() -> list[str]:
    """List the names of glance_store's drivers."""
    found = importlib.metadata.entry_points(group='glance_store.drivers')
    # Older names of the same drivers have dots.
    return sorted({entry.name for entry in found if '.' not in entry.name})


def load_driver(conf: cfg.ConfigOpts, driver: str) -> Any:
    """Load the glance_store driver of a name, configured by ``conf``.

    :raises InvalidInput: there is no such driver, or its options are wrong
    """
    try:
        # Not through glance_store's own list of stores: it is the process's,
        # and one process may use several with different options.
        kind: Any = stevedore_driver.DriverManager(
            'glance_store.drivers', driver).driver
        _register_options(conf, kind)
        store = kind(conf)
        store.configure(re_raise_bsc=True)
    except stevedore_exceptions.NoMatches as exc:
        raise exceptions.InvalidInput(
            f'glance_store has no driver {driver!r}; choose from'
            f' {", ".join(_drivers())}.') from exc
    except (store_exceptions.GlanceStoreException, ImportError,
            RuntimeError) as exc:
        raise exceptions.InvalidInput(
            f'The store {driver} cannot be used: {exc}; check the options of '
            f'[glance_store].') from exc
    if not store.is_capable(capabilities.BitMasks.RW_ACCESS):
        raise exceptions.InvalidInput(
            f'The store {driver} cannot be written: check the options of '
            f'[glance_store].')
    _share_client(store)
    return store


def _register_options(conf: cfg.ConfigOpts, kind: Any) -> None:
    """Register the options of one driver's class.

    glance_store's own function loads every driver that there is for theirs,
    and logs an error for each whose libraries are not installed.
    """
    for options in (backend._STORE_OPTS, kind.OPTIONS or []):
        conf.register_opts(options, group='glance_store')


def _share_client(store: Any) -> None:
    """Make the driver of S3 create its client only once.

    It makes one for each request, which takes longer than most requests do.
    Several threads may use one client.
    """
    make = getattr(store, '_create_s3_client', None)
    if make is not None:
        store._create_s3_client = functools.cache(make)


def _prefix() -> str:
    """Return how the names of this user's directories begin."""
    return f'{_STAGING}{os.geteuid()}-'


def _kept(work: str) -> pathlib.Path:
    """Return a directory of this user, which may have existed before.

    :raises PermanentError: another user has created one of that name
    """
    prefix = _prefix()
    directory = pathlib.Path(tempfile.gettempdir()) / f'{prefix}{work}'
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise exceptions.PermanentError(
            f'{directory} belongs to another user: remove it and try again.')
    os.utime(directory)
    for other in directory.parent.glob(f'{prefix}*'):
        # Work that was abandoned this long ago is not resumed.
        with contextlib.suppress(FileNotFoundError):  # It has just ended.
            if time.time() - other.lstat().st_mtime > _GIVEN_UP_SECONDS:
                shutil.rmtree(other, ignore_errors=True)
    return directory


class GlanceStore(base.BlobStore):
    """Blobs through one driver of glance_store.

    The lock excludes no writer: glance_store has none. The caller has to start
    one writer for each store at a time. If there are several, all but one fail
    in :meth:`create`: a writer that finds no such blob, puts one, and still
    finds its own after a delay has won, provided that no other takes longer
    than the delay between looking and putting; the delay is at least three
    times what that took here. The names of blobs are unknown: glance_store
    cannot list them.

    :param driver: as :func:`load_driver` returns it
    :param prefix: what each blob's location starts with, up to its name, as
        the driver forms locations
    :param settle_s: minimum of that delay, in seconds
    :param part: of a store that several share: what the names of its blobs
        begin with in the store
    :param ledger: notes what this host puts
    """

    def __init__(self, driver: Any, scheme: str, prefix: str,
                 settle_s: float = _SETTLE_S, part: str = '',
                 ledger: upload_ledger.UploadLedger | None = None) -> None:
        self._driver = driver
        self._scheme = scheme
        self._prefix = prefix
        self._settle_s = settle_s
        self._part = f'{part}-' if part else ''
        self._ledger = ledger
        # Directories of writers of this object.
        self._own: set[pathlib.Path] = set()

    def _location(self, name: str) -> store_location.Location:
        uri = f'{self._prefix}/{self._full(name)}'
        return store_location.Location(
            self._scheme, self._driver.get_store_location_class(),
            self._driver.conf, uri=uri)

    def _full(self, name: str) -> str:
        return self._part + base.check_name(name)

    def _add(self, name: str, stream: Any, size: int) -> None:
        if self._ledger is not None:
            self._ledger.note(name)
        with _translated(name):
            self._driver.add(self._full(name), stream, size, _HASH)

    def create(self, name: str, data: bytes) -> None:
        started = time.monotonic()
        # Not every driver minds that there is such an object.
        if self.exists(name):
            raise exceptions.Conflict(f'There is a blob {name} already.')
        self._add(name, io.BytesIO(data), len(data))
        took = time.monotonic() - started
        time.sleep(max(self._settle_s, _SETTLE_TIMES * took))
        if not self._has(name, data):
            raise exceptions.Conflict(
                f'Another writer put a blob {name} at the same time.')

    def _has(self, name: str, data: bytes) -> bool:
        try:
            return self.read(name) == data
        except exceptions.NotFound:
            return False

    def replace(self, name: str, data: bytes) -> None:
        try:
            self._add(name, io.BytesIO(data), len(data))
        except exceptions.Conflict:
            # What another writer has put with the same bytes is never gone.
            if not self._has(name, data):
                self._remove(name)
                self._add(name, io.BytesIO(data), len(data))

    def put_file(self, name: str, path: pathlib.Path) -> None:
        if self.exists(name):
            raise exceptions.Conflict(f'There is a blob {name} already.')
        with open(path, 'rb') as stream:
            self._add(name, stream, path.stat().st_size)

    def flush(self) -> None:
        """Do nothing: durability is up to the store."""

    def read(self, name: str, offset: int = 0,
             length: int | None = None) -> bytes:
        if self.ranged and (offset or length is not None):
            # Drivers do not agree about a range that ends behind a blob.
            wanted = self.size(name) - offset
            if length is not None:
                wanted = min(wanted, length)
            if wanted <= 0:
                return b''
            return self._read(name, wanted, offset=offset, chunk_size=wanted)
        end = None if length is None else offset + length
        return self._read(name, end)[offset:]

    def _read(self, name: str, length: int | None, **where: int) -> bytes:
        """Read bytes of a blob in one request: at most a number of them."""
        data = bytearray()
        with _translated(name):
            chunks, _size = self._driver.get(self._location(name), **where)
            for chunk in chunks:
                data += chunk
                if length is not None and len(data) >= length:
                    break
        return bytes(data[:length])

    def size(self, name: str) -> int:
        with _translated(name):
            size = int(self._driver.get_size(self._location(name)))
            if size == 0:
                # Some drivers say so of what is not there.
                self._driver.get(self._location(name))
        return size

    def delete(self, name: str) -> None:
        self._remove(name)
        if self._ledger is not None:
            self._ledger.forget(name)

    def _remove(self, name: str) -> None:
        with contextlib.suppress(exceptions.NotFound), _translated(name):
            self._driver.delete(self._location(name))

    def names(self) -> list[str] | None:
        return None

    def traces(self) -> list[str]:
        return [] if self._ledger is None else self._ledger.names()

    def age(self, name: str) -> float:
        return (super().age(name) if self._ledger is None
                else self._ledger.age(name))

    def local_path(self, name: str) -> None:
        return None

    @contextlib.contextmanager
    def staging(self, work: str | None = None) -> Iterator[pathlib.Path]:
        directory = (pathlib.Path(tempfile.mkdtemp(prefix=_prefix()))
                     if work is None else _kept(base.check_name(work)))
        self._own.add(directory)
        try:
            with base.removed(directory, work is not None):
                yield directory
        finally:
            self._own.discard(directory)

    def works(self) -> list[pathlib.Path]:
        # Of saves of this host, which alone removes what it has put.
        return list(pathlib.Path(tempfile.gettempdir()).glob(f'{_prefix()}*'))

    def is_abandoned(self, work: pathlib.Path) -> bool:
        if work in self._own:
            return False  # However the clock was set meanwhile.
        try:
            idle = time.time() - base.last_change(work)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return idle > base.GRACE_SECONDS

    @contextlib.contextmanager
    def lock(self, purpose: str = '') -> Iterator[None]:
        yield

    @property
    def ranged(self) -> bool:
        return bool(self._driver.is_capable(
            capabilities.BitMasks.READ_OFFSET,
            capabilities.BitMasks.READ_CHUNK))

    @property
    def atomic(self) -> bool:
        # Object stores show whole objects; a filesystem driver writes in
        # place.
        return self._scheme not in ('file', 'filesystem')
