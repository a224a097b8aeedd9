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
"""Small files of one save that are one blob.

In a store of objects each blob is a request when it is put, and one when it is
read. The files of a small save so become one blob, which has the name of the
first of them; the catalogue names the others as parts of it, by
``NAME@OFFSET+BYTES``.
"""

import pathlib
import re
from typing import NamedTuple
from typing import Sequence

from diffcache_openstack.common import files

# What parts of a blob may have together: a part is read with all of them.
MOST_BYTES = 128 << 10
_PART = re.compile(r'([a-z0-9][a-z0-9-]{0,127})@(\d{1,9})\+(\d{1,9})')


class Part(NamedTuple):
    """Some bytes of a blob."""

    blob: str
    offset: int
    bytes: int


def parse(name: str) -> Part | None:
    """Return the part of a blob that a name is; None for a blob's own name."""
    match = _PART.fullmatch(name)
    return Part(match[1], int(match[2]), int(match[3])) if match else None


def whole(name: str) -> str:
    """Return the name of the blob that has what a catalogue names."""
    return name.partition('@')[0]


def join(uploads: Sequence[tuple[str, pathlib.Path]], joined: pathlib.Path
         ) -> dict[str, str]:
    """Write small files one after the other.

    :param uploads: blobs' names, and the files
    :param joined: the new file, which becomes the blob of the first name
    :returns: the names of the parts that the others are, by their names; empty
        if there is nothing to join, or too much
    """
    sizes = [path.stat().st_size for _, path in uploads]
    if len(uploads) < 2 or sum(sizes) > MOST_BYTES:
        return {}
    with files.space_errors(joined):
        joined.write_bytes(b''.join(
            path.read_bytes() for _, path in uploads))
    first = uploads[0][0]
    return {name: f'{first}@{sum(sizes[:at])}+{sizes[at]}'
            for at, (name, _) in enumerate(uploads) if at}
