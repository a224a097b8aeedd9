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

from diffcache_openstack import _native
from diffcache_openstack.blocks.codecs import codec_base
from diffcache_openstack.blocks.codecs import native_codec
from diffcache_openstack.blocks import manifest
from diffcache_openstack.blocks import native_errors
from diffcache_openstack.blocks import operands
from diffcache_openstack.common import exceptions


def journal_of(base: str) -> str:
    """Return the path of the journal of a change of ``base`` in place."""
    directory, name = os.path.split(os.path.realpath(base))
    return os.path.join(directory, f'.{name}.diffcache-journal')


class _TargetReader:
    """A target read through base and patch; each leaf is verified."""

    def __init__(self, base: str, patch: str, manifest: str) -> None:
        with native_errors.translated(patch):
            self._view = _native.PatchView(base, patch, manifest)
        self.size = self._view.size

    def read(self, offset: int, length: int) -> bytes:
        """See :class:`~.base.Reader`."""
        with native_errors.translated():
            return self._view.read(offset, length)


class BlockCodec(native_codec.NativeCodec):
    """Patches of 4 KiB blocks with random access."""

    name = 'block'
    random_access = True
    magic = b'DCBLOCK1'
    native_create = staticmethod(_native.patch_create)
    native_apply = staticmethod(_native.patch_apply)
    native_info = staticmethod(_native.patch_info)
    native_verify = staticmethod(_native.patch_verify)
    native_content_id = staticmethod(_native.hash_file)

    def wanted_base(self, info: codec_base.PatchInfo) -> str:
        return info.base_hash or ''

    def apply_verified(self, base: codec_base.VerifiedBase, patch: str,
                       output: str,
                       progress: codec_base.Progress | None = None
                       ) -> codec_base.PatchInfo:
        operands.check_readable(base.path, 'base')
        operands.check_output(output, patch=patch, manifest=base.manifest)
        info = self.info(patch)
        found = manifest.read(base.manifest).content_id
        if found != info.base_hash:
            raise codec_base.other_base(
                base.path, f'{found} (as {base.manifest} says)', patch,
                self.wanted_base(info))
        with operands.translate_os_errors(output), \
                native_errors.translated(patch):
            _native.patch_apply_verified(base.path, base.manifest, patch,
                                         output, progress)
        return info

    def open_view(self, base: str, patch: str, manifest: str
                  ) -> codec_base.Reader:
        return _TargetReader(base, patch, manifest)

    def apply_in_place(self, base: str, patch: str,
                       progress: codec_base.Progress | None = None
                       ) -> codec_base.PatchInfo:
        operands.check_readable(base, 'base')
        if not os.path.isfile(base):
            raise exceptions.InvalidInput(
                f'The base {base} is no regular file, and only those are '
                f'changed in place; name an output instead.')
        info = self.info(patch)
        with (operands.translate_os_errors(base),
              self.explaining(base, patch, progress)):
            _native.patch_apply_in_place(base, patch, journal_of(base),
                                         progress)
        return info
