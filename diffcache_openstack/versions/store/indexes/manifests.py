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
"""Manifests of versions: the hashes of their leaves of 64 KiB.

With a version's manifest each part of its content can be verified alone, from
any source. Creating one reads the whole version, unless the store keeps the
manifest of an ancestor: then only the leaves that changed since are read. A
save carries the manifest of its parent on in this way.
"""

import logging
import os
import pathlib
import tempfile
from typing import Any
from typing import Callable

from diffcache_openstack import _native
from diffcache_openstack.blocks import native_errors
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.versions.blobs import checksums
from diffcache_openstack.versions.blobs import upload_journal
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.access import store_reader
from diffcache_openstack.versions.store.catalogue import catalogue
from diffcache_openstack.versions.store.catalogue import entries
from diffcache_openstack.versions.store.indexes import base_images

LOG = logging.getLogger(__name__)

Progress = Callable[[int, int], object] | None


def create(access: store_reader.StoreReader, name: str, output: pathlib.Path,
           base: pathlib.Path | None = None, base_id: str | None = None,
           progress: Progress = None) -> dict[str, Any]:
    """Write the manifest of a version to a file.

    :param base: the version's base image, if it has one
    :param base_id: the base's content id, if it is known; otherwise it is
        computed
    :returns: ``content_id``, ``size`` and ``data_size`` in bytes, ``leaves``,
        ``zero_leaves``
    :raises NotFound: the version does not exist
    :raises BaseMismatch: the base is another image than the version's
    :raises IntegrityError: the store is damaged
    :raises Busy: the store was pruned meanwhile; the same call may succeed
    """
    head = access.head()
    version = head.find(name)
    if version.id in head.manifests and _load_intact(access, head, version,
                                                     output):
        with native_errors.translated():
            return _native.manifest_info(output)
    base_images.check(version, base, base_id)
    with access.opened(head) as opened:
        return compute(access, head, opened, version, output, base, progress)


def compute(access: store_reader.StoreReader, head: catalogue.Catalogue,
            opened: _native.BlockStore, version: entries.Version,
            output: pathlib.Path, base: pathlib.Path | None = None,
            progress: Progress = None) -> dict[str, Any]:
    """Write the manifest of a version in a catalogue that is opened.

    Parameters and errors are those of :func:`create`.

    :raises InvalidInput: a block of the base image is needed, and there is no
        base image
    """
    content = _native.Content(version.root, version.size, base)
    other = known(head, version)
    with tempfile.TemporaryDirectory(prefix='diffcache-') as directory:
        path = pathlib.Path(directory) / 'manifest'
        shared = None
        if other is not None and _load_intact(access, head, other, path):
            shared = other.root, path
        with native_errors.translated():
            return opened.create_manifest(content, output, shared, progress)


def _load_intact(access: store_reader.StoreReader, head: catalogue.Catalogue,
                 version: entries.Version, output: pathlib.Path) -> bool:
    """Load a manifest; return False if it is damaged or missing."""
    try:
        load(access, head, version, output)
    except (exceptions.IntegrityError, exceptions.NotFound) as exc:
        LOG.warning('Not using the manifest that the store keeps of version '
                    '%s: %s', version.id, exc)
        return False
    return True


def known(head: catalogue.Catalogue, version: entries.Version
          ) -> entries.Version | None:
    """Return the version from whose manifest most of another's follows.

    That is the nearest ancestor with a manifest; where ancestors were deleted,
    the newest version of the series with one.
    """
    ancestor = _parent(head, version)
    while ancestor is not None and ancestor.id not in head.manifests:
        ancestor = _parent(head, ancestor)
    found = [*head.of_series(version.series), ancestor]
    return next((each for each in reversed(found)
                 if each is not None and each.id in head.manifests
                 # Marks of another base image would mean other content.
                 and base_images.same(each.base, version.base)), None)


def _parent(head: catalogue.Catalogue, version: entries.Version
            ) -> entries.Version | None:
    """Return the parent of a version, if the store has it.

    A forged one may say that it was saved after its children.
    """
    found = head.versions.get(version.parent or '')
    return found if found and found.number < version.number else None


def load(access: store_reader.StoreReader, head: catalogue.Catalogue,
         version: entries.Version, output: pathlib.Path) -> None:
    """Write the manifest that a store keeps of a version to a file.

    :raises NotFound: it keeps none
    :raises IntegrityError: it is damaged
    """
    blob = head.manifests.get(version.id)
    if blob is None:
        raise exceptions.NotFound(
            f'The store keeps no manifest of version {version.id}: create it'
            f' with "diffcache version manifest --keep".')
    data = _read(access, blob)
    with files.replacing(output, durable=False) as part:
        part.write_bytes(data)


def damage(access: store_reader.StoreReader, blob: entries.Blob
           ) -> str | None:
    """Return what is wrong with a manifest that a store keeps, if anything."""
    try:
        _read(access, blob)
    except (exceptions.IntegrityError, exceptions.NotFound) as exc:
        return (f'{exc} Create it again with "diffcache version manifest '
                f'--keep".')
    return None


def _read(access: store_reader.StoreReader, blob: entries.Blob) -> bytes:
    data = access.read(blob.blob)
    body = checksums.strip(data, blob.blob)
    if data[len(body):].hex() != blob.check:
        raise exceptions.IntegrityError(
            f'{blob.blob} is not the one that the catalogue names.')
    return body


def add(head: catalogue.Catalogue, version: entries.Version,
        path: pathlib.Path, suffix: str) -> str:
    """Let a catalogue name a manifest; return the name of its blob.

    :param path: the manifest; becomes what the blob is to have
    :param suffix: of the blob's name, which no other blob has
    """
    path.write_bytes(checksums.append(path.read_bytes()))
    blob = entries.Blob(
        f'manifest-{version.number:08d}-{suffix}', path.stat().st_size,
        checksums.of_file(path))
    head.manifests[version.id] = blob
    return blob.blob


def keep(access: store_access.StoreAccess, version_id: str,
         path: pathlib.Path) -> None:
    """Keep a manifest of a version in the store, unless it keeps one.

    One that is damaged or missing is replaced.

    :param path: the manifest
    :raises NotFound: the version was deleted
    :raises Busy: another writer holds the store
    """
    with access.writing() as writing:
        head = writing.head or access.head()
        version = head.find(version_id)
        kept = head.manifests.get(version.id)
        if kept is not None and damage(access, kept) is None:
            return
        part = writing.staging / 'manifest'
        with files.space_errors(part):
            part.write_bytes(path.read_bytes())
            name = add(head, version, part, os.urandom(4).hex())
        upload_journal.UploadJournal(access.store, writing.staging).upload(
            [(name, part)])
        access.commit(head, [name])
