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
"""Other blocks for a store: sparse packs, and a version that has them.

Nothing can read the blocks, and the names in the indexes are holes, too: only
a block that has the name of a hook would lead to them. All else is what it is
in a store of that size: catalogue, hooks, maps, and what indexes say of packs.
"""

import os
import pathlib
import struct
import sys
import uuid

import numpy

from bench.versions import disks
from diffcache_openstack import _native
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.catalogue import catalogue
from diffcache_openstack.versions.store.catalogue import entries

PACK_BLOCKS = 16384
_FRAME_BLOCKS = 256
_SECTION_BLOCKS = 1024
_NAME_BYTES = 24
PACKS_IN_GIB = (1 << 30) // (PACK_BLOCKS * disks.BLOCK)
_LEAF_BLOCKS = 512
_CHILDREN = 256
# Names of which one is a hook, hooks of a section, and packs whose hooks are
# in one file, as long as files of hooks become.
_HOOK_IN = 32
_HOOK_SECTION = 1024
_PART = 2000
_ZSTD_BLOCK = 128 << 10


def hashed(data: bytes) -> bytes:
    """Return the BLAKE3 of some bytes."""
    # A file on a disk would be written there each time.
    with open(os.memfd_create('hashed'), 'wb') as stream:
        stream.write(data)
        stream.flush()
        return bytes.fromhex(_native.hash_file(
            pathlib.Path(f'/proc/self/fd/{stream.fileno()}')))


def _write_index(path: pathlib.Path, number: int) -> bytes:
    """Write the index of a pack whose blocks are not compressed.

    :returns: its checksum
    """
    frames = range(PACK_BLOCKS // _FRAME_BLOCKS)
    frame_bytes = _FRAME_BLOCKS * disks.BLOCK
    dense = 2
    head = b'DCVINDX1' + struct.pack(
        '<8IQ', 1, number, 0, disks.BLOCK, dense, PACK_BLOCKS, PACK_BLOCKS,
        len(frames), 32 + len(frames) * frame_bytes)
    head += b''.join(struct.pack(
        '<IIQII16x', frame * _FRAME_BLOCKS, _FRAME_BLOCKS,
        32 + frame * frame_bytes, frame_bytes, 1) for frame in frames)
    head += bytes(16 * (PACK_BLOCKS // _SECTION_BLOCKS))
    check = hashed(head)
    with open(path, 'wb') as stream:
        stream.write(head)
        stream.seek(PACK_BLOCKS * _NAME_BYTES, os.SEEK_CUR)
        stream.write(check)
    return check


def _hooks(packs: list[int], noise: numpy.random.Generator) -> bytes:
    """Return a file of the hooks of packs, of random names."""
    count = len(packs) * PACK_BLOCKS // _HOOK_IN
    hooks = numpy.empty(count, numpy.dtype(
        [('name', '<u8'), ('pack', '<u4'), ('slot', '<u4')]))
    hooks['name'] = numpy.sort(noise.integers(
        0, 1 << 64, count, numpy.uint64))
    hooks['pack'] = noise.choice(packs, count)
    hooks['slot'] = noise.integers(0, PACK_BLOCKS, count)
    head = b'DCVHOOK1' + struct.pack('<II', 1, count)
    for at in range(0, count, _HOOK_SECTION):
        section = hooks[at:at + _HOOK_SECTION].tobytes()
        head += section[:8] + hashed(section)[:16]
    return head + hooks.tobytes() + hashed(head)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes((*out, number))


def _node(level: int, *runs: tuple[int, ...]) -> bytes:
    return bytes([level]) + b''.join(
        _varint(number) for run in runs for number in run)


def _zstd(data: bytes) -> bytes:
    """Return a frame of zstd in which nothing is compressed."""
    parts = [data[at:at + _ZSTD_BLOCK]
             for at in range(0, len(data), _ZSTD_BLOCK)]
    return struct.pack('<IBQ', 0xfd2fb528, 0xe0, len(data)) + b''.join(
        (len(part) << 3 | (at + 1 == len(parts))).to_bytes(3, 'little') + part
        for at, part in enumerate(parts))


def map_of(number: int, packs: list[int]) -> tuple[bytes, int]:
    """Return a map with the tree of a disk of whole packs, and its root."""
    nodes = [_node(0, (_LEAF_BLOCKS, pack + 2, slot)) for pack in packs
             for slot in range(0, PACK_BLOCKS, _LEAF_BLOCKS)]
    first, count = 0, len(nodes)
    for level in (1, 2, 3):
        after = len(nodes)
        for at in range(0, count, _CHILDREN):
            here = min(_CHILDREN, count - at)
            empty = ((_CHILDREN - here, 0),) if here < _CHILDREN else ()
            nodes.append(_node(level, (here, number + 2, first + at), *empty))
        first, count = after, len(nodes) - after
    raw = b''.join(_varint(len(node)) for node in nodes) + b''.join(nodes)
    head = b'DCVMAP01' + struct.pack(
        '<4IQ', 1, number, 0, len(nodes), len(raw)) + _zstd(raw)
    return head + hashed(head), len(nodes) - 1


def grow(directory: pathlib.Path, packs: int) -> None:
    """Add a version with packs of other blocks to a store."""
    access = store_access.StoreAccess(file.FileStore(directory))
    noise = numpy.random.default_rng(1)
    with access.writing() as writing:
        head = writing.head or access.head()
        added = list(range(head.next_pack, head.next_pack + packs))
        head.next_pack += packs
        for number in added:
            _add_pack(directory, head, number)
        for at in range(0, packs, _PART):
            number = max(head.hooks, default=0) + 1
            name = f'hooks-{number:08d}-grown'
            data = _hooks(added[at:at + _PART], noise)
            (directory / name).write_bytes(data)
            head.hooks[number] = entries.Blob(name, len(data),
                                              data[-32:].hex())
        _add_version(directory, head, added)
        access.commit(head)


def _add_pack(directory: pathlib.Path, head: catalogue.Catalogue, number: int
              ) -> None:
    # Suffixes of real ones are as random.
    suffix = os.urandom(4).hex()
    name = f'index-{number:08d}-{suffix}'
    check = _write_index(directory / name, number)
    entry = entries.Pack(
        f'pack-{number:08d}-{suffix}', name, 0, head.next_version,
        PACK_BLOCKS, 32 + PACK_BLOCKS * disks.BLOCK,
        (directory / name).stat().st_size, 3, check.hex())
    with open(directory / entry.blob, 'wb') as stream:
        stream.truncate(entry.data_bytes)
    head.packs[number] = entry


def _add_version(directory: pathlib.Path, head: catalogue.Catalogue,
                 packs: list[int]) -> None:
    data, root = map_of(head.next_map, packs)
    name = f'map-{head.next_map:08d}-grown'
    (directory / name).write_bytes(data)
    head.maps[head.next_map] = entries.Blob(name, len(data),
                                            data[-32:].hex())
    version = entries.Version(
        str(uuid.uuid4()), 'grown', head.next_version, None,
        '2026-01-01T00:00:00+00:00', len(packs) * PACK_BLOCKS * disks.BLOCK,
        (2, head.next_map, root), None, '0', 0, 0, 0, 0, 0.0, 0.0)
    head.versions[version.id] = version
    head.next_map += 1
    head.next_version += 1


if __name__ == '__main__':
    grow(pathlib.Path(sys.argv[1]), int(sys.argv[2]))
