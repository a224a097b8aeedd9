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
"""Files that are delivered to other services, in directories of theirs."""

import contextlib
import logging
import os
import pathlib
import stat
import typing

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.runtime import directories

LOG = logging.getLogger(__name__)

# Of a file that is handed over: programs of several users read it.
OUTPUT_MODE = 0o644


class Part(typing.Protocol):
    """A file that is being written, under a hidden name.

    :ivar fd: its descriptor
    """

    fd: int

    def publish(self, durable: bool) -> None:
        """Hand the file over, if it is for others, under its final name."""

    def discard(self) -> None:
        """Remove the file; nothing happens after it was published."""


class Output(typing.Protocol):
    """A file that an image is delivered to.

    :ivar path: its path
    """

    path: pathlib.Path

    def check(self) -> None:
        """Refuse an output that cannot be written, before any byte moves.

        :raises InvalidInput: the message says what is wrong
        """

    def create(self) -> Part:
        """Create the file under a hidden name.

        :raises OSError: as the kernel reports it
        """

    def can_take(self, source: pathlib.Path) -> bool:
        """Return whether a file can be renamed to be the output."""

    def take(self, source: pathlib.Path, durable: bool) -> None:
        """Make a file of this agent the output, by renaming it.

        :raises OSError: as the kernel reports it
        """

    def open(self) -> int:
        """Open the file for reading, if all users of this host may read it.

        :returns: its descriptor, which the caller closes
        :raises InvalidInput: it must not be read; the message says why
        :raises OSError: as the kernel reports it
        """

    def clean(self) -> None:
        """Remove what killed processes left of it."""


class LocalOutput:
    """An output that is written with the rights of this process.

    :param path: absolute
    :param roots: directories of others, one of which it has to be in: it is
        handed over to the owner of its directory. None: it can be anywhere,
        and stays this user's
    """

    def __init__(self, path: pathlib.Path,
                 roots: typing.Sequence[str] | None = None) -> None:
        self.path = path
        self._roots = roots

    def check(self) -> None:
        """Refuse an output that cannot be written, before any byte moves."""
        if not self.path.is_absolute() or self.path.name in ('', '..'):
            raise exceptions.InvalidInput(
                f'The output {self.path} is not an absolute path of a file.')
        with self.directory() as directory:
            with contextlib.suppress(FileNotFoundError):
                kind = directory.status(self.path.name).st_mode
                if not stat.S_ISREG(kind):
                    raise exceptions.InvalidInput(
                        f'The output {self.path} exists and is no regular'
                        f' file; name another one.')

    def directory(self) -> directories.Directory:
        """Open the directory that the output is in.

        :raises InvalidInput: it is in none of the roots, or does not exist
        """
        try:
            if self._roots is None:
                return directories.Directory.open(self.path.parent)
            return directories.Directory.below(self._roots, self.path.parent)
        except exceptions.InvalidInput as error:
            raise exceptions.InvalidInput(
                f'The output {self.path} is below none of [agent]'
                f' output_directories; add its directory there.') from error
        except directories.NotAFile as error:
            raise exceptions.InvalidInput(
                f'The path of the output {self.path} has a symbolic link'
                f' below [agent] output_directories, where none is'
                f' followed; name the directory itself.') from error
        except OSError as error:
            raise exceptions.InvalidInput(
                f'The directory of the output {self.path} cannot be used:'
                f' {error.strerror}; create it, or name another one.'
            ) from error

    def create(self) -> 'LocalPart':
        """Create the file under a hidden name."""
        with contextlib.ExitStack() as stack:
            directory = stack.enter_context(self.directory())
            handed_over = self._roots is not None
            # Until it is handed over its content is as private as elsewhere.
            name, fd = directory.create_temporary(
                self.path.name, 0o600 if handed_over else 0o666)
            stack.pop_all()
            return LocalPart(directory, (name, self.path.name), fd,
                             handed_over)

    def can_take(self, source: pathlib.Path) -> bool:
        """Return whether a file can be renamed to be the output."""
        with self.directory() as directory, \
                directories.Directory.open(source.parent) as staging:
            return directory.shares_mount(staging)

    def take(self, source: pathlib.Path, durable: bool) -> None:
        """Make a file of this agent the output, by renaming it."""
        part = self.create()
        try:
            with directories.Directory.open(source.parent) as staging:
                part.replace(staging, source.name)
            part.publish(durable)
        finally:
            part.discard()

    def open(self) -> int:
        """Open the file for reading, if all users of this host may read it."""
        with self.directory() as directory:
            fd = directory.open_file(self.path.name)
        mode = os.fstat(fd).st_mode
        if stat.S_ISREG(mode) and mode & stat.S_IROTH:
            return fd
        os.close(fd)
        raise exceptions.InvalidInput(
            f'{self.path} is not used: it is no regular file that all users'
            f' may read.')

    def clean(self) -> None:
        """Remove what killed processes left of it."""
        try:
            opened = self.directory()
        except exceptions.InvalidInput as error:
            LOG.debug('Nothing to remove of %s: %s', self.path, error)
            return
        with opened as directory:
            for name in directory.names():
                if directories.is_temporary(name, self.path.name):
                    LOG.info('Removing %s, left by an interrupted request',
                             directory.path / name)
                    directory.unlink(name)


class LocalPart:
    """An unfinished file, in a directory that is open.

    :param names: of the file, and the one that it gets
    :param handed_over: whether it is for the owner of its directory
    """

    def __init__(self, directory: directories.Directory,
                 names: tuple[str, str], fd: int, handed_over: bool) -> None:
        self._directory = directory
        self._name: str | None = names[0]
        self._final = names[1]
        self.fd = fd
        self._handed_over = handed_over

    def replace(self, source: directories.Directory, name: str) -> None:
        """Put a file of this process's user in the place of this one.

        :raises NotAFile: it is none, or has other names
        """
        assert self._name is not None
        os.rename(name, self._name, src_dir_fd=source.fd,
                  dst_dir_fd=self._directory.fd)
        fd = self._directory.open_file(self._name)
        os.close(self.fd)
        self.fd = fd
        found = os.fstat(fd)
        if found.st_uid != os.geteuid() or found.st_nlink != 1:
            raise directories.NotAFile(
                f'{source.path / name} belongs to another user, or has'
                f' another name.')

    def publish(self, durable: bool) -> None:
        """Hand the file over, if it is for others, under its final name."""
        assert self._name is not None
        if self._handed_over:
            self._hand_over()
        if durable:
            os.fsync(self.fd)
        self._directory.rename(self._name, self._final)
        self._name = None
        if durable:
            self._directory.sync()
        self._close()

    def _hand_over(self) -> None:
        os.fchmod(self.fd, OUTPUT_MODE)
        owner, found = self._directory.owner(), os.fstat(self.fd)
        if (owner.st_uid, owner.st_gid) != (found.st_uid, found.st_gid):
            try:
                os.fchown(self.fd, owner.st_uid, owner.st_gid)
            except PermissionError:
                # Every user can read it all the same.
                LOG.warning('Output %s stays with user %d, and not with %d as'
                            ' its directory: give the agent CAP_CHOWN',
                            self._final, found.st_uid, owner.st_uid)

    def discard(self) -> None:
        """Remove the file; nothing happens after it was published."""
        if self._name is not None:
            self._directory.unlink(self._name)
            self._name = None
            self._close()

    def _close(self) -> None:
        os.close(self.fd)
        self._directory.__exit__()


@contextlib.contextmanager
def unfinished(output: Output) -> typing.Iterator[Part]:
    """Create an output under a hidden name; remove it unless published."""
    part = output.create()
    try:
        yield part
    finally:
        part.discard()


def move(source: pathlib.Path, output: Output, durable: bool) -> None:
    """Make a file of this agent an output, by a rename where that is possible.

    :param durable: not even a power failure takes it
    :raises NoSpace: it had to be copied, and there is no space
    """
    if output.can_take(source):
        output.take(source, durable=durable)
        return
    with unfinished(output) as part:
        with files.space_errors(output.path):
            files.copy_to(source, part.fd)
        part.publish(durable=durable)


class Outputs:
    """Directories that clients may have images written to.

    :param roots: allowed, with their subdirectories
    """

    def __init__(self, roots: typing.Sequence[str]) -> None:
        self._roots = tuple(roots)

    def open(self, path: str) -> Output:
        """Return the output with a path.

        :raises InvalidInput: it must not be written; the message names the
            option
        """
        output = self.find(pathlib.Path(path))
        output.check()
        return output

    def find(self, path: pathlib.Path) -> Output:
        """Return the output with a path, unchecked."""
        return LocalOutput(path, self._roots)
