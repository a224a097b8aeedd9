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
"""Which file of an image each of its bytes belongs to.

Read from the partition table and the ext2, ext3 and ext4 filesystems of a raw
or qcow2 image; the contents of files are not read. The image is not
trusted: a filesystem that contradicts itself, was not unmounted cleanly or has
unknown features counts as unknown as a whole.
"""

import collections.abc
import dataclasses
import typing

from diffcache_openstack import _native
from diffcache_openstack.blocks import native_errors
from diffcache_openstack.blocks import operands

FILE = 'file'
DIRECTORY = 'directory'
_NAMELESS = ('free', 'unknown')


class Entry(typing.NamedTuple):
    """A file, or another use of bytes.

    :ivar kind: :data:`FILE`, :data:`DIRECTORY`, or what is in neither:
        inodes, journal, metadata, free, unpartitioned, unknown
    :ivar partition: the byte at which its partition starts; 0 for none
    :ivar path: within the filesystem, of several names the first; control
        characters are escaped. Empty for what is no file
    :ivar size: bytes of the content; of a sparse file more than is stored
    :ivar reason: why the use is unknown, else empty
    """

    kind: str
    partition: int
    path: str
    size: int
    reason: str

    @property
    def name(self) -> str:
        """The path, with a slash for a directory, or the kind in brackets."""
        if self.kind == FILE:
            return self.path
        if self.kind == DIRECTORY:
            return self.path.rstrip('/') + '/'
        return f'[{self.kind}]'


class Extent(typing.NamedTuple):
    """Bytes from start to end that hold an entry's content from a position.

    A file's last block counts as a whole. The position of what has no content
    is that in its partition, or in the image if it is in none.
    """

    start: int
    end: int
    entry: int
    position: int


@dataclasses.dataclass(frozen=True)
class FileMap:
    """The files of an image; each byte is in one extent, in order."""

    entries: list[Entry]
    extents: list[Extent]

    @property
    def size(self) -> int:
        """The bytes of the image as a guest reads it."""
        return self.extents[-1].end if self.extents else 0

    def known_names(self) -> list[str]:
        """Return the name of each entry; empty for what no other image has.

        What is read of free or unknown bytes says nothing of another image.
        """
        return ['' if entry.kind in _NAMELESS else entry.name
                for entry in self.entries]


def read(image: str) -> FileMap:
    """Return the files of an image.

    :raises NotFound: the image does not exist or cannot be read
    :raises InvalidInput: it is a qcow2 image that is refused
    :raises FormatError: it is a damaged qcow2 image
    """
    operands.check_readable(image, 'image')
    with native_errors.translated(image):
        return _map(_native.image_files(image))


def read_content(path: str, progress: collections.abc.Callable[
        [int, int], object] | None = None) -> FileMap:
    """Return the files of a content, which is raw whatever it begins with.

    :param progress: called with bytes read and in total; what it raises ends
        the reading
    :raises NotFound: the file does not exist or cannot be read
    """
    with native_errors.translated(path):
        return _map(_native.content_files(path, progress))


def _map(rows: tuple[list, list]) -> FileMap:
    entries, extents = rows
    return FileMap([Entry(*row) for row in entries],
                   [Extent(*row) for row in extents])
