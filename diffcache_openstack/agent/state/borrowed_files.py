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
"""Borrowed files: images that another service of this host keeps, as Nova.

A base image of Nova has the content of an image, and takes no space of the
cache. It is served to peers and is the base of patches for as long as Nova
keeps it. Its owner may change or remove it at any time, so nothing that is
read from it is used unverified, and this module never writes to it.

The identity of each file is recorded; see :mod:`.identities`. After a restart
a file that has it unchanged is used again; one that was changed is verified
first, and any other one is forgotten. A file that was read, and found right,
is copied without being read again as long as its identity stays.
"""

import collections
import contextlib
import dataclasses
import logging
import os
import pathlib
import threading
import time
import typing

from diffcache_openstack.agent.state import identities
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.runtime import directories
from diffcache_openstack.sites import views

if typing.TYPE_CHECKING:
    from diffcache_openstack.agent.data_plane import native_plane

LOG = logging.getLogger(__name__)

# Each takes two descriptors.
MOST_FILES = 128
# Files that were written here and that no service has offered yet.
_MOST_DELIVERED = 1000
# Nova changes the times of the files that it uses, every now and then.
REVERIFY_SECONDS = 3600.0
_BLOCK = 512


class Borrowed(typing.Protocol):
    """Files of other services that this host may read."""

    def keys(self) -> frozenset[views.Key]:
        """Return the images that they have the content of."""

    def lease(self, key: views.Key
              ) -> contextlib.AbstractContextManager[pathlib.Path]:
        """Use a file: it stays readable until the block ends.

        Its content is to be verified.

        :raises ObjectMissing: there is none (any more)
        """

    def drop(self, key: views.Key, reason: str) -> None:
        """Use a file no longer; it is left as it is."""

    def drop_removed(self) -> bool:
        """Close the files that their owner removed; return if there were."""

    def sizes(self) -> dict[views.Key, int]:
        """Return the images, with the bytes that the files take."""

    def paths(self) -> dict[views.Key, pathlib.Path]:
        """Return the images, with the paths of the files."""

    def note_delivered(self, key: views.Key, status: os.stat_result) -> None:
        """Note a file that was just written, verified, for another service.

        It may be borrowed without reading it again.
        """

    def is_sound(self, key: views.Key) -> bool:
        """Return whether a file is as it was when it was read and right."""


class NothingBorrowed:
    """A host that borrows no files; see :class:`Borrowed`."""

    def keys(self) -> frozenset[views.Key]:
        """Return no image."""
        return frozenset()

    def lease(self, key: views.Key
              ) -> contextlib.AbstractContextManager[pathlib.Path]:
        """Refuse.

        :raises ObjectMissing: always
        """
        raise _missing(key)

    def drop(self, key: views.Key, reason: str) -> None:
        """Do nothing."""

    def drop_removed(self) -> bool:
        """Return that there were none."""
        return False

    def sizes(self) -> dict[views.Key, int]:
        """Return no image."""
        return {}

    def paths(self) -> dict[views.Key, pathlib.Path]:
        """Return no image."""
        return {}

    def note_delivered(self, key: views.Key, status: os.stat_result) -> None:
        """Do nothing."""

    def is_sound(self, key: views.Key) -> bool:
        """Return that there is none."""
        return False


@dataclasses.dataclass
class _File:
    """A file that is borrowed.

    :param identity: when its content was last known to be right, or to be what
        this agent had written
    :param sound: identity of the last reading; None before the first one
    :param verified_at: monotonic time of the last verification after it was
        borrowed; None before the first one
    """

    path: pathlib.Path
    fd: int
    identity: identities.Identity
    sound: identities.Identity | None = None
    verified_at: float | None = None

    @property
    def is_removed(self) -> bool:
        """Whether it has no name any more."""
        return os.fstat(self.fd).st_nlink == 0


class BorrowedFiles:
    """The files that one host borrows; see :class:`Borrowed`.

    :param record: file that keeps the list over restarts
    :param manifests: directory of the manifests
    :param plane: serves the files
    :param open_file: opens a file of another service for reading, and returns
        its descriptor; raises InvalidInput or OSError if it may not be used
    :param verify: raises DiffCacheError if a file has other content
    """

    def __init__(self, record: pathlib.Path, manifests: pathlib.Path,
                 plane: 'native_plane.DataPlane',
                 open_file: typing.Callable[[pathlib.Path], int],
                 verify: typing.Callable[[views.Key, pathlib.Path], None]
                 ) -> None:
        self._record = record
        self._manifests = manifests
        self._plane = plane
        self._open_file = open_file
        self._verify = verify
        self._lock = threading.RLock()
        self._files: dict[views.Key, _File] = {}
        self._delivered: collections.OrderedDict[
            tuple[int, int], tuple[views.Key, int]] = collections.OrderedDict()

    # -- looking

    def keys(self) -> frozenset[views.Key]:
        """Return the images that the files have the content of."""
        with self._lock:
            return frozenset(self._files)

    def sizes(self) -> dict[views.Key, int]:
        with self._lock:
            return {key: os.fstat(file.fd).st_blocks * _BLOCK
                    for key, file in self._files.items()}

    def paths(self) -> dict[views.Key, pathlib.Path]:
        with self._lock:
            return {key: file.path for key, file in self._files.items()}

    @contextlib.contextmanager
    def lease(self, key: views.Key) -> typing.Iterator[pathlib.Path]:
        with self._lock:
            file = self._files.get(key)
            if file is None:
                raise _missing(key)
            fd = os.dup(file.fd)
        try:
            yield directories.descriptor_path(fd)
        finally:
            os.close(fd)

    # -- changing

    def load(self) -> dict[views.Key, pathlib.Path]:
        """Use the files of the last run again that have not changed since.

        :returns: those with other times, to be verified
        """
        doubtful = {}
        for key, path, identity in self._recorded():
            try:
                unchanged = self._resume(key, path, identity)
            except (exceptions.DiffCacheError, OSError) as error:
                LOG.info('No longer using %s as %s: %s', path, key, error)
                continue
            if not unchanged:
                doubtful[key] = path
        return doubtful

    def _recorded(self) -> list[tuple[views.Key, pathlib.Path,
                                      identities.Identity]]:
        """Return the files of the last run; none if the list is unreadable."""
        document = files.read_json(self._record)
        try:
            return [(views.Key(views.IMAGES, content_id),
                     pathlib.Path(path),
                     identities.Identity(*map(int, values)))
                    for content_id, path, *values
                    in (document or {}).get('files', ())]
        except (AttributeError, TypeError, ValueError) as error:
            LOG.warning('Ignoring the damaged list of borrowed files %s: %s',
                        self._record, error)
            return []

    def _resume(self, key: views.Key, path: pathlib.Path,
                identity: identities.Identity) -> bool:
        """Use a file of the last run; return whether it has not changed."""
        fd = self._open_file(path)
        with _closed_on_error(fd):
            found = identities.Identity.of(fd)
            if not found.is_same_file(identity):
                raise exceptions.IntegrityError('it is another file now')
            if found == identity:
                self._admit(key, _File(path, fd, identity))
                return True
        os.close(fd)
        return False

    def note_delivered(self, key: views.Key, status: os.stat_result) -> None:
        with self._lock:
            self._delivered[status.st_dev, status.st_ino] = (
                key, status.st_size)
            if len(self._delivered) > _MOST_DELIVERED:
                self._delivered.popitem(last=False)

    def is_sound(self, key: views.Key) -> bool:
        with self._lock:
            file = self._files.get(key)
            return file is not None and file.sound is not None \
                and file.sound == identities.Identity.of(file.fd)

    def add_delivered(self, key: views.Key, path: pathlib.Path) -> bool:
        """Borrow a file that was just delivered, unless it is already.

        :returns: False if it was not, or is another one by now
        :raises InvalidInput: it must not be used; the message says why
        :raises OSError: as the kernel reports it
        """
        fd = self._open_file(path)
        with _closed_on_error(fd):
            found = os.fstat(fd)
            with self._lock:
                known = self._files.get(key)
                noted = self._delivered.pop((found.st_dev, found.st_ino),
                                            None)
            if known is not None and known.path == path \
                    and known.identity.is_same_file(
                        identities.Identity.of(fd)):
                os.close(fd)
                return True
            if noted == (key, found.st_size):
                self._admit(key, _File(path, fd, identities.Identity.of(fd)))
                return True
        os.close(fd)
        return False

    def add(self, key: views.Key, path: pathlib.Path) -> None:
        """Borrow a file after verifying all of it.

        :raises DiffCacheError: it must not be used, or has other content
        :raises OSError: as the kernel reports it
        """
        fd = self._open_file(path)
        with _closed_on_error(fd):
            found, before = identities.Identity.of(fd), identities.settle(fd)
            self._verify(key, directories.descriptor_path(fd))
            self._admit(key, _File(path, fd, found, before, time.monotonic()))

    def _admit(self, key: views.Key, file: _File) -> None:
        with self._lock:
            if key not in self._files and len(self._files) >= MOST_FILES:
                raise exceptions.ServiceUnavailable(
                    f'This host uses {MOST_FILES} files of other services, as'
                    f' many as it may.')
            self._plane.borrow(key, directories.descriptor_path(file.fd),
                               self._manifests / key.id)
            former = self._files.get(key)
            self._files[key] = file
            if former is not None:
                os.close(former.fd)
            self._save()
        LOG.info('Using %s as %s', file.path, key)

    def drop(self, key: views.Key, reason: str) -> None:
        with self._lock:
            file = self._files.pop(key, None)
            if file is None:
                return
            LOG.info('No longer using %s as %s: %s', file.path, key, reason)
            self._plane.give_back(key)
            os.close(file.fd)
            self._save()

    def drop_removed(self) -> bool:
        with self._lock:
            removed = [key for key, file in self._files.items()
                       if file.is_removed]
            for key in removed:
                self.drop(key, 'its owner removed it')
            return bool(removed)

    def check(self) -> bool:
        """Drop the files that are gone or have changed.

        A file that was removed is kept while peers read it. One of which only
        the times changed is read again, at most once in ``REVERIFY_SECONDS``:
        what is read from it in the meantime is verified anyway.

        :returns: whether any was dropped
        """
        before = self.keys()
        for key in self._plane.take_changed():
            self.drop(key, 'its content has changed')
        for key in self.keys():
            reason = self._objection(key)
            if reason is not None:
                self.drop(key, reason)
        return self.keys() != before

    def _objection(self, key: views.Key) -> str | None:
        """Return why a file is not to be used any more; None if it is."""
        with self._lock:
            file = self._files.get(key)
            if file is None:
                return None
            if file.is_removed:
                return None if self._plane.readers(*key) \
                    else 'its owner removed it'
            found = identities.Identity.of(file.fd)
        if not found.is_same_file(file.identity):
            return 'its size has changed'
        if found == file.identity or (
                file.verified_at is not None
                and time.monotonic() - file.verified_at < REVERIFY_SECONDS):
            return None
        return self._reverify(key, file, found)

    def _reverify(self, key: views.Key, file: _File, found: identities.Identity
                  ) -> str | None:
        """Read a file whose times changed; return what is wrong with it."""
        try:
            with self.lease(key) as path:
                before = identities.settle(file.fd)
                self._verify(key, path)
        except (exceptions.DiffCacheError, OSError) as error:
            return f'its content has changed: {error}'
        with self._lock:
            file.identity, file.sound = found, before
            file.verified_at = time.monotonic()
            self._save()
        return None

    def close(self) -> None:
        """Close the files; the record stays for the next run."""
        with self._lock:
            for file in self._files.values():
                os.close(file.fd)
            self._files.clear()

    def _save(self) -> None:
        try:
            files.write_json(self._record, {'files': [
                [key.id, str(file.path), *file.identity]
                for key, file in sorted(self._files.items())]})
        except (OSError, exceptions.NoSpace) as error:
            LOG.warning('Could not store the list of borrowed files in %s,'
                        ' they will not be used after a restart: %s',
                        self._record, error)


@contextlib.contextmanager
def _closed_on_error(fd: int) -> typing.Iterator[None]:
    try:
        yield
    except BaseException:
        os.close(fd)
        raise


def _missing(key: views.Key) -> exceptions.ObjectMissing:
    return exceptions.ObjectMissing(
        f'This host no longer holds {key}; use another source.')
