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
"""The interface of patch codecs.

A *patch* turns one file, the base, into another, the target. A codec makes,
describes and applies patches of one format. The rules below are the
contract; ``tests/unit/blocks/codec_conformance.py`` holds every codec to
them.

* Files in, files out. A codec knows no service and no configuration.
* Outputs are atomic: on success the output is complete, on any error (a
  crash of the process included) its path holds what it held before. Who
  needs an output to survive a power cut syncs it afterwards.
* The target an :meth:`~PatchCodec.apply` produces has been verified against
  what the patch recorded of it, before it takes its name.
* Memory is bounded whatever the files' sizes.
* A patch is hostile input: reading one neither crashes nor allocates by
  what it claims, and opens no path it names.
"""

import abc
import dataclasses
import os
import time
from typing import Any, Callable, ClassVar, Protocol

from diffcache_openstack.common import exceptions

#: Called with (bytes done, bytes in all), at most about five times a
#: second. May raise to cancel the operation.
Progress = Callable[[int, int], None]

_PROGRESS_INTERVAL_S = 0.2

#: Magic bytes a codec may ask for when it is shown the start of a patch.
HEAD_SIZE = 16


@dataclasses.dataclass(frozen=True)
class PatchInfo:
    """Properties of a patch.

    Hashes are hex BLAKE3 of the whole file, the *content id* where that
    file is a raw image; None where the format does not say. Sizes are bytes.
    """

    codec: str
    base_hash: str | None
    target_hash: str | None
    base_size: int | None
    target_size: int | None
    patch_size: int
    #: Blocks of the codec's own block size taken from the base.
    blocks_copied: int | None
    #: Blocks whose bytes the patch itself carries.
    blocks_inserted: int | None
    #: What only this codec can say; JSON types only.
    details: dict[str, Any] = dataclasses.field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the flat JSON form printed by ``diffcache patch show``."""
        plain = dataclasses.asdict(self)
        plain.update(plain.pop('details'))
        return plain


class Meter:
    """Calls a :data:`Progress` at a limited rate."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0
        self._next = 0.0

    def advance(self, count: int) -> None:
        """Report ``count`` more bytes done."""
        self._done += count
        if self._progress is None:
            return
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _PROGRESS_INTERVAL_S
            self._progress(self._done, self._total)


def other_base(base: str, found: str, patch: str, wanted: str
               ) -> exceptions.BaseMismatch:
    """Return the error for a base that a patch was not made from.

    :param found: the content id of ``base``
    :param wanted: that of the base that ``patch`` was made from
    """
    return exceptions.BaseMismatch(
        f'The base {base} has the content id {found}, but the patch {patch} '
        f'was made from the image {wanted}; give that one, or a patch that '
        f'was made from this one.')


@dataclasses.dataclass(frozen=True)
class VerifiedBase:
    """A base that was verified when its manifest was written.

    The caller trusts that the file did not change since. Signs of a change
    that cost little to check are checked when it is used.
    """

    path: str
    manifest: str


class Reader(Protocol):
    """Content that can be read at any offset."""

    #: Bytes of the content.
    size: int

    def read(self, offset: int, length: int) -> bytes:
        """Return this many bytes.

        :raises DiffCacheError: they cannot be read, or are damaged
        """


class PatchCodec(abc.ABC):
    """Creates and applies patches of one format. Stateless."""

    #: The name in the ``diffcache.patch.codecs`` namespace.
    name: str
    #: Whether any range of a target can be read through base and patch, at a
    #: cost that depends on the range alone. Agents exchange no others.
    random_access: ClassVar[bool] = False

    @classmethod
    @abc.abstractmethod
    def recognises(cls, head: bytes) -> bool:
        """Return whether a patch's first bytes are of this format.

        :param head: up to :data:`HEAD_SIZE` bytes, less for a shorter file
        """

    @abc.abstractmethod
    def create(self, base: str, target: str, patch: str,
               level: int | None = None,
               progress: Progress | None = None) -> PatchInfo:
        """Write to ``patch`` what turns ``base`` into ``target``.

        :param level: how hard to compress, higher is smaller and slower;
            None for the codec's default
        :raises NotFound: an input does not exist or cannot be read
        :raises InvalidInput: an input is of a kind this codec refuses, or
            the level is out of range
        :raises FormatError: an input is damaged
        :raises NoSpace: the patch does not fit
        """

    def create_below(self, base: str, target: str, patch: str, limit: int,
                     level: int | None = None,
                     progress: Progress | None = None) -> PatchInfo | None:
        """Do what :meth:`create` does, unless the patch is too large.

        A codec that knows sooner may stop there.

        :param limit: bytes that the patch must stay below
        :returns: None, and nothing is left, if it does not
        :raises: what :meth:`create` raises
        """
        info = self.create(base, target, patch, level, progress)
        if info.patch_size < limit:
            return info
        os.unlink(patch)
        return None

    @abc.abstractmethod
    def apply(self, base: str, patch: str, output: str,
              progress: Progress | None = None) -> PatchInfo:
        """Write the target of ``patch`` to ``output``, verified.

        :raises NotFound: an input does not exist or cannot be read
        :raises FormatError: the patch is truncated or not of this format
        :raises BaseMismatch: the patch is for another base
        :raises IntegrityError: base or patch are damaged
        :raises NoSpace: the output does not fit
        """

    def apply_verified(self, base: VerifiedBase, patch: str, output: str,
                       progress: Progress | None = None) -> PatchInfo:
        """Do what :meth:`apply` does, without reading all of the base.

        Where the output can share blocks with the base, only what differs
        from it is read and verified.

        :raises InvalidInput: this codec cannot
        :raises BaseMismatch: the base cannot be what was verified, or is
            another image; nothing was written
        :raises RetryableError: the base was changed meanwhile
        :raises: what :meth:`apply` raises
        """
        raise exceptions.InvalidInput(
            f'The codec {self.name} reads all of the base; apply its patches '
            f'without the manifest of the base.')

    def open_view(self, base: str, patch: str, manifest: str) -> Reader:
        """Open the target of ``patch`` for reading, without building it.

        :param manifest: path of the target's manifest: what is read is
            verified against it
        :raises InvalidInput: this codec has no random access
        :raises: what :meth:`apply` raises
        """
        raise exceptions.InvalidInput(
            f'The codec {self.name} has no random access: build the target '
            f'of {patch} instead.')

    def apply_in_place(self, base: str, patch: str,
                       progress: Progress | None = None) -> PatchInfo:
        """Turn ``base`` itself into the target of ``patch``, verified.

        Interrupted at any instant, the same call again makes the target of
        what is there.

        :raises InvalidInput: this codec cannot, or ``base`` is no regular
            file
        :raises RetryableError: another program changes ``base``, or the
            change was interrupted: call again
        :raises: what :meth:`apply` raises; ``base`` is as it was then
        """
        raise exceptions.InvalidInput(
            f'Patches of the codec {self.name} cannot be applied in place; '
            f'name an output instead.')

    @abc.abstractmethod
    def info(self, patch: str) -> PatchInfo:
        """Describe ``patch`` without reading any base.

        :raises NotFound: the patch does not exist or cannot be read
        :raises FormatError: it is truncated or not of this format
        """

    @abc.abstractmethod
    def verify(self, base: str, patch: str,
               progress: Progress | None = None) -> PatchInfo:
        """Check that ``patch`` would apply to ``base``, writing nothing.

        :raises: what :meth:`apply` raises, except NoSpace
        """
