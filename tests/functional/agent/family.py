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
"""Small images that are to each other as members of a family are."""

import hashlib
import pathlib
import random

MIB = 1 << 20
SIZE = 32 * MIB


def contents() -> dict[str, bytes]:
    """Data of the images by name; zeroes follow up to SIZE."""
    chance = random.Random(20261121)
    system = chance.randbytes(8 * MIB)
    return {
        'system': system,
        # Something installed in the middle moves what follows.
        'database': system[:4 * MIB] + chance.randbytes(MIB)
        + system[4 * MIB:],
        'java': system + chance.randbytes(2 * MIB),
        'other': chance.randbytes(6 * MIB),
    }


def generations() -> dict[str, bytes]:
    """Images that share 5 MiB of 8 with the next, 2 with the one after."""
    stream = random.Random(3).randbytes(14 * MIB)
    return {name: stream[start * MIB:(start + 8) * MIB]
            for name, start in (('first', 0), ('second', 3), ('third', 6))}


def write(directory: pathlib.Path, images: dict[str, bytes] | None = None
          ) -> dict[str, pathlib.Path]:
    """Write images as sparse files; returns their paths by name.

    :param images: their data by name; those of contents() unless given
    """
    paths = {}
    for name, content in (images or contents()).items():
        paths[name] = directory / f'{name}.raw'
        with open(paths[name], 'wb') as stream:
            stream.write(content)
            stream.truncate(SIZE)
    return paths


def sha256(path: pathlib.Path) -> str:
    """The SHA-256 of a file."""
    with open(path, 'rb') as stream:
        return hashlib.file_digest(stream, 'sha256').hexdigest()


def damage(path: pathlib.Path, offset: int) -> None:
    """Flip the bits of one byte, as a bad disk does: no new time stamp.

    The file gets an inode of its own first, as other names of it are to
    stay whole.
    """
    content = bytearray(path.read_bytes())
    content[offset] ^= 0xff
    path.unlink()
    path.write_bytes(content)
