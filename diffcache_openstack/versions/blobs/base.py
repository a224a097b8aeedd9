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
"""Stores of blobs: the interface that every kind of store implements.

A blob has a name and bytes. Names are made of lower-case letters, digits and
hyphens, so that any object store takes them as they are. What is said in the
docstrings here is the contract; ``tests/unit/versions/blobs/conformance.py``
has one set of tests that every implementation passes.
"""

import abc
import contextlib
import pathlib
import re
import shutil
from typing import Iterator

from diffcache_openstack.common import exceptions

# Between a writer's last sign of life and the removal of what it left, where
# locks do not exclude writers.
GRACE_SECONDS = 3600.0
# The purpose of the lock of those that remove or rewrite what is stored.
MAINTENANCE = '-maintenance'
_NAME = re.compile(r'[a-z0-9][a-z0-9-]{0,127}')


def check_name(name: str) -> str:
    """Return the name if a blob may have it.

    :raises InvalidInput: it may not
    """
    if not _NAME.fullmatch(name):
        raise exceptions.InvalidInput(
            f'{name!r} cannot be the name of a blob: use lower-case letters, '
            f'digits and hyphens')
    return name


class BlobStore(abc.ABC):
    """A flat set of named blobs.

    What a method promises holds when it returns. Errors: ``NotFound`` for a
    blob that is not there, ``Conflict`` for one that is there already,
    ``InvalidInput`` for a name that no blob can have, ``NoSpace``,
    ``ServiceUnavailable`` where another try may succeed; another
    ``PermanentError`` where it will not.
    """

    @abc.abstractmethod
    def create(self, name: str, data: bytes) -> None:
        """Create a small blob that must not exist.

        Among writers that hold the lock it is atomic: when it fails with
        ``Conflict`` the old blob is as it was. A process that is killed may
        leave a blob with a part of the data, unless :attr:`atomic`.

        :raises Conflict: a blob of this name exists
        """

    @abc.abstractmethod
    def replace(self, name: str, data: bytes) -> None:
        """Create or replace a small blob.

        A process that is killed may leave no blob at all, unless
        :attr:`atomic`.
        """

    @abc.abstractmethod
    def put_file(self, name: str, path: pathlib.Path) -> None:
        """Create a blob, which must not exist, from a file.

        The file belongs to the store afterwards: it may have been moved.
        The blob may become durable only with :meth:`flush`.
        """

    @abc.abstractmethod
    def flush(self) -> None:
        """Return when all that was made is durable."""

    @abc.abstractmethod
    def read(self, name: str, offset: int = 0,
             length: int | None = None) -> bytes:
        """Read bytes of a blob; fewer than ``length`` only at its end."""

    @abc.abstractmethod
    def size(self, name: str) -> int:
        """Return the bytes of a blob."""

    @abc.abstractmethod
    def delete(self, name: str) -> None:
        """Remove a blob; nothing happens if there is none."""

    @abc.abstractmethod
    def names(self) -> list[str] | None:
        """Return the names of all blobs in any order; None if unknown."""

    def traces(self) -> list[str]:
        """Return the names of blobs that killed writers may have left.

        All names, or those that this host has put where names are unknown.
        """
        return self.names() or []

    @abc.abstractmethod
    def local_path(self, name: str) -> pathlib.Path | None:
        """Return a blob's file, for stores that keep files on this host."""

    @abc.abstractmethod
    def staging(self, work: str | None = None
                ) -> contextlib.AbstractContextManager[pathlib.Path]:
        """Create a directory for the input files of :meth:`put_file`.

        It is empty, and removed on exit; what a killed process left is one of
        :meth:`works`.

        :param work: identifies work that may be interrupted: the files that
            it left in the directory are there again when it resumes. They
            are kept if the process is killed, and after an error that
            :func:`.exceptions.is_resumable`
        :raises Busy: another process does this work
        """

    def works(self) -> list[pathlib.Path]:
        """Return the staging directories that exist, of all writers.

        Stores without files of their own have none.
        """
        return []

    def is_abandoned(self, work: pathlib.Path) -> bool:
        """Return whether a staging directory may be removed.

        That is once its process has ended, or :data:`GRACE_SECONDS` later if
        the work may be resumed, or the lock is not :attr:`exclusive`.
        The lock must be held.
        """
        return False

    @abc.abstractmethod
    def lock(self, purpose: str = ''
             ) -> contextlib.AbstractContextManager[None]:
        """Exclude other writers for the time of a ``with`` block.

        A class that cannot exclude writers of other hosts documents that;
        then only :meth:`create` detects them.

        :param purpose: of a lock that is not the one for commits; such a lock
            excludes only others of its purpose
        :raises Busy: another process holds the lock
        """

    @property
    def exclusive(self) -> bool:
        """Whether the lock excludes all writers, those of other hosts, too."""
        return False

    @property
    def append_only(self) -> bool:
        """Whether blobs are only added; what is deleted may stay."""
        return False

    def age(self, name: str) -> float:
        """Return the seconds since a blob was put, by the store's clock.

        Elsewhere than in stores that list their blobs it is known of those
        that this host has put, at most; others are new.

        :raises NotFound: there is no such blob
        """
        self.size(name)
        return 0.0

    @property
    @abc.abstractmethod
    def atomic(self) -> bool:
        """Whether blobs appear whole or not at all, even after SIGKILL."""

    @property
    @abc.abstractmethod
    def ranged(self) -> bool:
        """Whether reading a part of a blob reads no more than that part."""

    def keep_reserve(self, size: int) -> None:
        """Set space aside that :meth:`spend_reserve` gives up.

        Stores without a filesystem of their own do nothing: their space is
        another service's.

        :param size: bytes at least
        :raises NoSpace: there is not so much
        """

    def reserved(self) -> int:
        """Return the bytes that are set aside."""
        return 0

    def spend_reserve(self, size: int) -> None:
        """Give up this many bytes of the reserve, or all that it has.

        Deleting and pruning work in a full store then. The lock must be held.
        """

    def regain_reserve(self, size: int) -> int:
        """Set aside what there is room for, up to a size.

        The lock must be held.

        :returns: bytes that are set aside now
        """
        return size

    def exists(self, name: str) -> bool:
        """Return whether there is a blob of this name."""
        try:
            self.size(name)
        except exceptions.NotFound:
            return False
        return True


def last_change(work: pathlib.Path) -> float:
    """Return when a staging directory or a file in it was changed last.

    :raises OSError: it is gone, or no directory
    """
    return max(path.lstat().st_mtime for path in (work, *work.iterdir()))


@contextlib.contextmanager
def removed(directory: pathlib.Path, kept: bool) -> Iterator[None]:
    """Remove a staging directory on exit.

    :param kept: not after an error after which the same work resumes
    """
    try:
        yield
    except BaseException as error:
        if not kept or not exceptions.is_resumable(error):
            shutil.rmtree(directory, ignore_errors=True)
        raise
    shutil.rmtree(directory, ignore_errors=True)
