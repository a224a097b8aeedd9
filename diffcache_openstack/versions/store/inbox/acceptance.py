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
"""Accepting what hosts add to a store that they may not change.

Hosts put blobs and catalogues into an inbox. Their catalogues are *proposals*:
one is accepted if it leaves everything in the store as it is, and what it adds
is complete and intact. Then its blobs are copied, so that no host can change
them any more, and it becomes the head of the store.

The index of a base image decides which blocks later saves of all hosts leave
out, because the image has them. One that a host adds is compared with one that
is created of the image itself, which costs reading the image once for each
project. To compare some blocks would not do: one wrong name is enough to
exchange a block of a later version.
"""

import contextlib
import dataclasses
import logging
import math
import pathlib
from typing import Callable
from typing import ContextManager

from diffcache_openstack import _native
from diffcache_openstack.blocks import native_errors
from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.blobs import base
from diffcache_openstack.versions.blobs import checksums
from diffcache_openstack.versions.blobs import local_files
from diffcache_openstack.versions.store.access import orphans
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.catalogue import blob_names
from diffcache_openstack.versions.store.catalogue import catalogue
from diffcache_openstack.versions.store.catalogue import entries
from diffcache_openstack.versions.store.commits import arbitration
from diffcache_openstack.versions.store.commits import heads
from diffcache_openstack.versions.store.inbox import proposals
from diffcache_openstack.versions.store.indexes import manifests
from diffcache_openstack.versions.store.upkeep import pruning
from diffcache_openstack.versions.store.upkeep import verification

LOG = logging.getLogger(__name__)

# Gives a base image by its content id, as a file; None if there is none.
BaseImage = Callable[[str], ContextManager[pathlib.Path | None]]

# What is read into memory at most of what hosts put. The rest of a longer blob
# is left out, so that its checksum does not match.
_MOST_PROPOSAL_BYTES = catalogue.MOST_BYTES
_MOST_KEY_ID_BYTES = 4096


@dataclasses.dataclass
class Accepted:
    """What became of the proposals of hosts."""

    # Ids of versions that the store has now.
    versions: list[str] = dataclasses.field(default_factory=list)
    # Ids of versions that were not accepted, and why.
    refused: list[str] = dataclasses.field(default_factory=list)
    reasons: list[str] = dataclasses.field(default_factory=list)
    # Number and digest of a catalogue that an arbiter decided, if it was among
    # them: no writer continues behind it.
    void: tuple[int, str] | None = None
    # Indexes of base images: those that match the image, those that do not,
    # and those whose image is nowhere.
    indexes_checked: int = 0
    indexes_refused: int = 0
    indexes_unchecked: int = 0


@dataclasses.dataclass(frozen=True)
class Rules:
    """What is accepted.

    :ivar base_image: gives the images that indexes are checked by
    :ivar most_bytes: that one proposal adds, and that stay in an inbox for
        longer than an acceptance
    """

    base_image: BaseImage
    most_bytes: float = math.inf


def accept(access: store_access.StoreAccess, inbox: base.BlobStore,
           rules: Rules, progress: pruning.Progress = None) -> Accepted:
    """Accept the proposals in an inbox, and empty it.

    After an interruption the same call continues.

    :param access: to the store, which this process may change
    :raises Busy: a host is writing
    :raises ServiceUnavailable: a base image cannot be read at present
    """
    return _Acceptance(access, inbox, rules, progress).run()


class _Acceptance:
    """The work on one inbox."""

    def __init__(self, access: store_access.StoreAccess,
                 inbox: base.BlobStore, rules: Rules,
                 progress: pruning.Progress) -> None:
        # Hosts had the arbiter decide about what is in the inbox.
        self._access = access.without_arbiter()
        self._inbox = inbox
        self._rules = rules
        self._progress = progress
        self._result = Accepted()

    def run(self) -> Accepted:
        """Accept what can be, refuse the rest, and remove both."""
        with self._inbox.lock(), self._access.writing_alone() as writing:
            head, staging = writing.head, writing.staging
            head = head or self._access.new_head()
            self._copy_key_ids()
            while (data := self._proposal(head.number + 1)) is not None:
                try:
                    head = self._accept(head, data, staging)
                except (exceptions.IntegrityError, exceptions.FormatError,
                        exceptions.InvalidInput, exceptions.NotFound) as exc:
                    self._refuse(head, str(exc))
                    break
            self._tidy(head)
        return self._result

    def _proposal(self, number: int) -> bytes | None:
        try:
            return self._inbox.read(blob_names.of_head(number), 0,
                                    _MOST_PROPOSAL_BYTES)
        except exceptions.NotFound:
            return None

    def _copy_key_ids(self) -> None:
        """Copy the id of the key that a host has created for a new store."""
        for name in blob_names.KEY_BLOBS:
            with contextlib.suppress(exceptions.NotFound,
                                     exceptions.Conflict,
                                     exceptions.IntegrityError):
                data = self._inbox.read(name, 0, _MOST_KEY_ID_BYTES)
                checksums.strip(data, name)
                self._access.store.create(name, data)

    def _accept(self, head: catalogue.Catalogue, data: bytes,
                staging: pathlib.Path) -> catalogue.Catalogue:
        """Accept one proposal; return it as the new head.

        :raises IntegrityError: it changes what the store has, or is damaged
        """
        name = blob_names.of_head(head.number + 1)
        proposal = catalogue.Catalogue.decode(data, name,
                                              self._access.store.read)
        self._access.check_key(proposal)
        new = proposals.added(head, proposal)
        self._check_sizes(proposal, new)
        try:
            for blob, size in sorted(new.items()):
                self._copy(blob, size, staging)
            self._verify(head, proposal, staging)
        except exceptions.DiffCacheError:
            # Another host may have accepted it meanwhile.
            for blob in new.keys() - self._access.head_or_new().blobs():
                self._access.store.delete(blob)
            raise
        self._access.store.flush()
        if not self._access.store.exists(name):
            self._access.store.create(name, data)
        heads.complete(self._access.store, proposal)
        self._result.versions += sorted(
            proposal.versions.keys() - head.versions.keys())
        return self._access.head()

    def _check_sizes(self, proposal: catalogue.Catalogue,
                     new: dict[str, int]) -> None:
        """Check the bytes of what a proposal adds, before it is copied.

        :param new: blobs, and what the proposal says of their bytes
        :raises IntegrityError: it adds too much, or says what is not so
        """
        sizes = {name: self._inbox.size(name) for name in new}
        size = sum(sizes.values())
        if size > self._rules.most_bytes:
            raise exceptions.IntegrityError(
                f'Catalogue {proposal.number} cannot be accepted: it adds '
                f'{size} bytes, more than [versions] inbox_limit '
                f'({self._rules.most_bytes}). If the option is higher on '
                f'hosts, set it on the maintenance hosts, too.')
        for name in sorted(new):
            if sizes[name] != new[name]:
                raise exceptions.IntegrityError(
                    f'Catalogue {proposal.number} cannot be accepted: {name} '
                    f'has {sizes[name]} bytes and not {new[name]}.')

    def _copy(self, name: str, size: int, staging: pathlib.Path) -> None:
        """Copy a blob to the store, which the host cannot change there.

        :param size: bytes that are copied; the host may add others meanwhile
        :raises IntegrityError: it cannot be read
        """
        store, path = self._access.store, staging / name
        try:
            local_files.copy(self._inbox, name, path, size)
        except exceptions.PermanentError as exc:
            raise exceptions.IntegrityError(str(exc)) from exc
        # One of an attempt that was interrupted is not named by any catalogue.
        store.delete(name)
        store.put_file(name, path)

    def _verify(self, head: catalogue.Catalogue,
                proposal: catalogue.Catalogue, staging: pathlib.Path) -> None:
        """Read what a proposal adds.

        :raises IntegrityError: a part is damaged or missing
        """
        added = {number: pack for number, pack in proposal.packs.items()
                 if number not in head.packs}
        with self._access.lenient(proposal) as opened:
            reasons = self._damage(head, proposal, opened)
            for number, pack in added.items():
                damage, _bad = verification.verify_pack(
                    self._access, opened, number, pack, self._progress)
                reasons += [each.reason for each in damage]
            if not reasons:
                with native_errors.translated():
                    hits = opened.hits([
                        version.root for name, version in
                        proposal.versions.items()
                        if name not in head.versions], {})
                reasons += ['a version needs blocks that are missing'
                            for hit in hits if hit][:1]
            for base_id in () if reasons else sorted(
                    proposal.bases.keys() - head.bases.keys()):
                reasons += self._index_damage(
                    opened, base_id, proposal.bases[base_id], staging)
        for version_id in proposal.manifests.keys() - head.manifests.keys():
            if reason := manifests.damage(self._access,
                                          proposal.manifests[version_id]):
                reasons.append(reason)
        if reasons:
            raise exceptions.IntegrityError(
                f'Catalogue {proposal.number} cannot be accepted: '
                f'{reasons[0]}')

    def _damage(self, head: catalogue.Catalogue,
                proposal: catalogue.Catalogue, opened: _native.BlockStore
                ) -> list[str]:
        """Return what is wrong with maps and indexes that a proposal adds.

        What was damaged before does not concern it.
        """
        found = []
        for number in sorted(proposal.maps.keys() - head.maps.keys()):
            found += verification.verify_map(opened, number,
                                             proposal.maps[number])
        for base_id in sorted(proposal.bases.keys() - head.bases.keys()):
            found += verification.verify_base(opened, base_id,
                                              proposal.bases[base_id])
        for number in sorted(proposal.hooks.keys() - head.hooks.keys()):
            found += verification.verify_hooks(opened, number,
                                               proposal.hooks[number])
        return [each.reason for each in found]

    def _index_damage(self, opened: _native.BlockStore, base_id: str,
                      blob: entries.Blob, staging: pathlib.Path
                      ) -> list[str]:
        """Compare an index, which is intact, with its base image.

        :returns: what is wrong with it, if anything
        """
        found = staging / f'checked-{blob.blob}'
        with self._rules.base_image(base_id) as image:
            if image is None:
                # Hosts compare it before they use it (:class:`.BaseIndexes`):
                # one that is wrong costs space, and is never used.
                LOG.warning('Accepting the index of base image %s without'
                            ' comparing it with the image, which is not in'
                            ' the catalogue of images; hosts with the image'
                            ' compare it before they use it', base_id)
                self._result.indexes_unchecked += 1
                return []
            with native_errors.translated():
                opened.create_base(image, found, self._progress)
        # Each ends with a hash of all that is before it.
        if checksums.of_file(found) == blob.check:
            self._result.indexes_checked += 1
            self._access.note_index(base_id, blob)
            return []
        self._result.indexes_refused += 1
        return [f'the index {blob.blob} of base image {base_id} is not that '
                f'of the image: the host that saved it is compromised or '
                f'faulty']

    def _refuse(self, head: catalogue.Catalogue, reason: str) -> None:
        """Note the versions of a proposal, and of those that follow it."""
        LOG.error('Refusing what a host added to the store: %s', reason)
        self._result.reasons.append(reason)
        number = head.number + 1
        while (data := self._proposal(number)) is not None:
            with contextlib.suppress(exceptions.FormatError,
                                     exceptions.IntegrityError):
                found = catalogue.Catalogue.decode(
                    data, blob_names.of_head(number), self._access.store.read)
                self._result.refused += sorted(
                    found.versions.keys() - head.versions.keys()
                    - set(self._result.refused))
            # Before the next host continues it.
            self._inbox.delete(blob_names.of_head(number))
            number += 1

    def _tidy(self, head: catalogue.Catalogue) -> None:
        """Remove from the inbox what was accepted, and what was abandoned."""
        names = self._inbox.names()
        if names is None:
            names = [blob_names.of_head(head.number - back)
                     for back in range(heads.KEPT)
                     if head.number > back] + sorted(head.blobs())
        left = []
        claimed = orphans.claimed(self._inbox)
        for name in names:
            if name in claimed or arbitration.is_pending(name, head):
                continue
            try:
                if self._is_accepted(name, head) or self._is_abandoned(name):
                    self._inbox.delete(name)
                else:
                    left.append(name)
            except exceptions.PermanentError as exc:
                LOG.warning('Could not remove %s from an inbox, which no '
                            'version store has put there: %s', name, exc)
        self._drop_excess(left)

    def _drop_excess(self, names: list[str]) -> None:
        """Remove what no proposal names if it is more than an inbox may have.

        A save that is putting it now begins anew.
        """
        sizes = {}
        for name in names:
            with contextlib.suppress(exceptions.NotFound):
                sizes[name] = self._inbox.size(name)
        if sum(sizes.values()) <= self._rules.most_bytes:
            return
        LOG.warning('Removing %d blobs with %d bytes from an inbox, which no'
                    ' version needs: they exceed [versions] inbox_limit',
                    len(sizes), sum(sizes.values()))
        for name in sizes:
            self._inbox.delete(name)

    def _is_accepted(self, name: str, head: catalogue.Catalogue) -> bool:
        number = blob_names.head_number(name)
        if number is not None:
            return number <= head.number
        return name in head.blobs() or blob_names.is_bookkeeping(name)

    def _is_abandoned(self, name: str) -> bool:
        try:
            return (self._inbox.exclusive
                    or self._inbox.age(name) > base.GRACE_SECONDS)
        except exceptions.NotFound:
            return False
