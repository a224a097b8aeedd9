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
"""The id of the key that a store is sealed with, as a key manager names it.

A store has it in two blobs, which are written before the first catalogue.
"""

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import base
from diffcache_openstack.versions.blobs import checksums
from diffcache_openstack.versions.store.catalogue import blob_names
from diffcache_openstack.versions.store.commits import heads


def read(store: base.BlobStore) -> str | None:
    """Return the id of the key that a store is sealed with.

    :returns: None if the store has no key, or none that a key manager keeps
    :raises IntegrityError: both copies are damaged
    """
    damaged = None
    for name in blob_names.KEY_BLOBS:
        try:
            return checksums.strip(store.read(name), name).decode()
        except exceptions.NotFound:
            continue
        except exceptions.IntegrityError as exc:
            damaged = exc
    # Without a catalogue nothing is sealed yet: the writer was killed early.
    if damaged is not None and heads.load(store) is not None:
        raise damaged
    return None


def write(store: base.BlobStore, key_id: str) -> None:
    """Store, twice, the id of the key that a new store is sealed with.

    The lock must be held.

    :raises Conflict: another writer was faster: read which id it wrote
    """
    data = checksums.append(key_id.encode())
    for name in blob_names.KEY_BLOBS:
        if not store.atomic and read(store) is None:
            # A killed writer may have left part of a blob, which is not valid.
            store.delete(name)
        store.create(name, data)
    store.flush()
