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
"""Codec ``block``: copy and insert of 4 KiB blocks, the default.

The work is the native core's; the file format and the method are described
there (``native/core/src/patch/``). A target can also be read through base
and patch without being built: see :class:`diffcache_openstack._native
.PatchView`.
"""

import os
from typing import Any

from diffcache_openstack import _native
from diffcache_openstack.blocks.codecs import base as codec_base
from diffcache_openstack.blocks import files
from diffcache_openstack.blocks import native
from diffcache_openstack.common import exceptions

_MAGIC = b'DCBLOCK1'
DEFAULT_LEVEL = 3
LEVELS = range(1, 20)


def check_level(level: int | None) -> int:
    """Return a usable compression level.

    :raises InvalidInput: out of range
    """
    if level is None:
        return DEFAULT_LEVEL
    if level not in LEVELS:
        raise exceptions.InvalidInput(
            f'There is no level {level}; choose one from {LEVELS[0]} to '
            f'{LEVELS[-1]}.')
    return level


def to_info(described: dict[str, Any]) -> codec_base.PatchInfo:
    """Sort what the native core says of a patch into a PatchInfo."""
    details = dict(described)
    common = {field: details.pop(field) for field in (
        'codec', 'base_hash', 'target_hash', 'base_size', 'target_size',
        'patch_size', 'blocks_copied', 'blocks_inserted')}
    # How long making it took is the caller's to print, of all codecs alike.
    details.pop('seconds', None)
    return codec_base.PatchInfo(**common, details=details)


def journal_of(base: str) -> str:
    """Return where the journal of a change of ``base`` in place lies."""
    directory, name = os.path.split(os.path.realpath(base))
    return os.path.join(directory, f'.{name}.diffcache-journal')


class BlockCodec(codec_base.PatchCodec):
    """Patches of 4 KiB blocks with random access."""

    name = 'block'

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        return head.startswith(_MAGIC)

    def create(self, base: str, target: str, patch: str,
               level: int | None = None,
               progress: codec_base.Progress | None = None
               ) -> codec_base.PatchInfo:
        files.check_readable(base, 'base')
        files.check_readable(target, 'target')
        level = check_level(level)
        with files.translate_os_errors(patch), native.translated():
            return to_info(_native.patch_create(
                base, target, patch, level, progress))

    def apply(self, base: str, patch: str, output: str,
              progress: codec_base.Progress | None = None
              ) -> codec_base.PatchInfo:
        files.check_readable(base, 'base')
        info = self.info(patch)
        with files.translate_os_errors(output), native.translated():
            _native.patch_apply(base, patch, output, progress)
        return info

    def apply_in_place(self, base: str, patch: str,
                       progress: codec_base.Progress | None = None
                       ) -> codec_base.PatchInfo:
        files.check_readable(base, 'base')
        if not os.path.isfile(base):
            raise exceptions.InvalidInput(
                f'The base {base} is no regular file, and only those are '
                f'changed in place; name an output instead.')
        info = self.info(patch)
        with files.translate_os_errors(base), native.translated():
            _native.patch_apply_in_place(base, patch, journal_of(base),
                                         progress)
        return info

    def info(self, patch: str) -> codec_base.PatchInfo:
        files.check_readable(patch, 'patch')
        with native.translated():
            return to_info(_native.patch_info(patch))

    def verify(self, base: str, patch: str,
               progress: codec_base.Progress | None = None
               ) -> codec_base.PatchInfo:
        files.check_readable(base, 'base')
        info = self.info(patch)
        with native.translated():
            _native.patch_verify(base, patch, progress)
        return info
