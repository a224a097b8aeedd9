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
"""Space that is set aside, so that versions of a full store can be deleted."""

import contextlib
import logging
from typing import Callable
from typing import Iterator

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import base
from diffcache_openstack.versions.store.catalogue import catalogue

LOG = logging.getLogger(__name__)

# What directories and file names take, beside the reserve's contents: in all,
# and with a commit.
_RESERVE_MARGIN = 1 << 20
_COMMIT_MARGIN = 256 << 10


def _reserve_of(head: catalogue.Catalogue) -> int:
    """Return the bytes that deleting versions and pruning may need.

    That is two catalogues, and the largest pack, which a prune rewrites before
    it removes the old one.
    """
    return (2 * len(head.encode()) + _RESERVE_MARGIN
            + head.largest_pack())


def keep(store: base.BlobStore, head: catalogue.Catalogue) -> None:
    """Set aside what deleting versions of a catalogue and pruning need.

    :raises NoSpace: there is not so much
    """
    store.keep_reserve(_reserve_of(head))


@contextlib.contextmanager
def given_up(store: base.BlobStore,
             load: Callable[[], catalogue.Catalogue | None]
             ) -> Iterator[None]:
    """Give up what commits need of the reserve, for a ``with`` block.

    :param load: returns the last catalogue, or None in an empty store
    """
    # Other stores may share the reserve.
    before = store.reserved()
    store.spend_reserve(_commit_bytes(load))
    try:
        yield
    finally:
        _regain(store, load, before)


def _commit_bytes(load: Callable[[], catalogue.Catalogue | None]) -> int:
    """Return the bytes that commits of a changed catalogue may need."""
    try:
        head = load()
    except exceptions.DiffCacheError:
        return _COMMIT_MARGIN  # It is refused later.
    return _COMMIT_MARGIN + (2 * len(head.encode()) if head else 0)


def _regain(store: base.BlobStore,
            load: Callable[[], catalogue.Catalogue | None], before: int
            ) -> None:
    """Set aside again what was given up, as far as there is room."""
    try:
        try:
            head = load()
        except exceptions.DiffCacheError:
            store.regain_reserve(before)
            return
        if head is None:
            return
        wanted = max(before, _reserve_of(head))
        # Some filesystems give the space of what was deleted only then.
        store.flush()
        if (found := store.regain_reserve(wanted)) < wanted:
            LOG.warning('%d of %d bytes are set aside for deleting versions: '
                        'the filesystem of the store is full; free space, or '
                        'delete versions and prune', found, wanted)
    except exceptions.DiffCacheError as exc:
        LOG.warning('Could not set space aside for deleting versions from a '
                    'full store; the next save does: %s', exc)
