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
"""Files of hooks, by which a save finds copies in a store of any size.

One name of a block in 32 is a *hook*: a file has the pack and slot of each.
A save adds a file of the hooks of its own packs, and merges small files into
it, so that there are few, and of a store of more than 128 GiB one for each of
these, with blocks of 4 KiB. A hook is searched in all of them. What is missing
or damaged of them costs nothing but space: blocks that have copies are stored
again. A prune writes such files anew.
"""

import logging
import pathlib
import secrets
from typing import Sequence

from diffcache_openstack import _native
from diffcache_openstack.blocks import native_errors
from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import checksums
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.access import store_reader
from diffcache_openstack.versions.store.catalogue import catalogue
from diffcache_openstack.versions.store.catalogue import entries

LOG = logging.getLogger(__name__)

Uploads = list[tuple[str, pathlib.Path]]

# Bytes of a hook, and blocks that have one on average.
_HOOK_BYTES = 16
_BLOCKS = 32
# A file is merged with one of this many times its size at most.
_RATIO = 4
# Files are not shorter for that.
_SECTION_BYTES = 16 << 10
# Longer files are not written: they would not fit in a save's memory.
_MOST_BYTES = 16 << 20
# Of the hooks that the blocks of a store have: files with more have those of
# packs that are gone.
_MOST_SHARE = 1.5
_LEAST_BYTES = 1024


def add(head: catalogue.Catalogue, opened: _native.BlockStore,
        indexes: Sequence[pathlib.Path], path: pathlib.Path, suffix: str,
        merges: bool = False) -> Uploads:
    """Write a file of the hooks of new indexes, which the catalogue names.

    :param path: of the new file
    :param merges: whether it takes the place of small ones
    :returns: blobs to upload; none if there is no hook
    """
    with native_errors.translated():
        if not _native.write_hooks(opened, path, [], [], list(indexes)):
            return []
    merged = _to_merge(head, path.stat().st_size) if merges else []
    try:
        if merged:
            with native_errors.translated():
                _native.write_hooks(opened, path, merged, [], list(indexes))
    except exceptions.ObjectMissing as exc:
        # Another save has merged it meanwhile, or a prune notices.
        LOG.info('Not merging hooks of the store: %s', exc)
        merged = []
    except exceptions.IntegrityError as exc:
        LOG.warning('Leaving damaged hooks of the store as they are, so that '
                    'some blocks are stored again; a prune writes them anew: '
                    '%s', exc)
        merged = []
    return [_replace(head, merged, path, suffix)]


def maintain(access: store_access.StoreAccess, head: catalogue.Catalogue,
             staging: pathlib.Path) -> None:
    """Merge files of hooks, or write all anew if some are damaged or wrong.

    In a full store, or if another writer was faster, nothing is done.
    """
    before = dict(head.hooks)
    old = head.blobs()
    uploads: Uploads = []
    try:
        with access.lenient(head) as opened:
            uploads = _maintained(head, opened, staging)
        if head.hooks == before:
            return
        for name, path in uploads:
            access.store.put_file(name, path)
        access.commit(head, [name for name, _ in uploads])
    except (exceptions.NoSpace, exceptions.Busy) as exc:
        LOG.warning('Could not write the hooks of the store anew, so that '
                    'more blocks may be stored again: %s', exc)
        head.hooks = before
        for name, _ in uploads:
            access.store.delete(name)
        return
    for name in old - head.blobs():
        access.store.delete(name)


def _maintained(head: catalogue.Catalogue, opened: _native.BlockStore,
                staging: pathlib.Path) -> Uploads:
    suffix = secrets.token_hex(4)
    if not _are_right(head, opened):
        return _rebuild(head, opened, staging, suffix)
    merged = _to_merge(head, 0)
    if len(merged) < 2:
        return []
    path = staging / 'hooks'
    with native_errors.translated():
        count = _native.write_hooks(opened, path, merged, [], [])
    if count:
        return [_replace(head, merged, path, suffix)]
    for number in merged:
        del head.hooks[number]
    return []


def _are_right(head: catalogue.Catalogue, opened: _native.BlockStore) -> bool:
    """Return whether all files can be read, and are not too long."""
    if not head.packs:
        return not head.hooks
    try:
        with native_errors.translated():
            for number in head.hooks:
                _native.verify_hooks(opened, number)
    except store_reader.DAMAGE as exc:
        LOG.warning('Writing the hooks of the store anew: %s', exc)
        return False
    size = sum(blob.bytes for blob in head.hooks.values())
    right = sum(pack.blocks for pack in head.packs.values()) \
        // _BLOCKS * _HOOK_BYTES
    return size <= right * _MOST_SHARE + _LEAST_BYTES


def _rebuild(head: catalogue.Catalogue, opened: _native.BlockStore,
             staging: pathlib.Path, suffix: str) -> Uploads:
    """Write the hooks of all packs, in files that are not too long."""
    parts: list[list[int]] = [[]]
    size = 0
    for number, pack in head.packs.items():
        size += pack.blocks // _BLOCKS * _HOOK_BYTES
        if size > _MOST_BYTES // 2:
            parts.append([])
            size = 0
        parts[-1].append(number)
    head.hooks.clear()
    uploads = []
    for part, packs in enumerate(parts):
        path = staging / f'hooks-{part}'
        with native_errors.translated():
            count = _native.write_hooks(opened, path, [], packs, [])
        if count:
            uploads.append(_replace(head, (), path, suffix))
    return uploads


def _to_merge(head: catalogue.Catalogue, size: int) -> list[int]:
    """Return the files to merge with a new one of a size in bytes."""
    merged = []
    for number, blob in sorted(head.hooks.items(),
                               key=lambda each: each[1].bytes):
        if (blob.bytes > _RATIO * max(size, _SECTION_BYTES)
                or size + blob.bytes > _MOST_BYTES):
            break
        merged.append(number)
        size += blob.bytes
    return merged


def _replace(head: catalogue.Catalogue, merged: Sequence[int],
             path: pathlib.Path, suffix: str) -> tuple[str, pathlib.Path]:
    """Have the catalogue name a new file in place of others."""
    number = max(head.hooks, default=0) + 1
    for gone in merged:
        del head.hooks[gone]
    blob = f'hooks-{number:08d}-{suffix}'
    head.hooks[number] = entries.Blob(blob, path.stat().st_size,
                                      checksums.of_file(path))
    return blob, path
