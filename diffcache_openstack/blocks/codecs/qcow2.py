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
"""Codec ``qcow2``: between images of which at least one is qcow2.

Published images are compressed, and equal content then has unequal bytes.
The codec compares what guests read and carries what re-creating the target
file bit for bit takes: its tables, the order of its clusters and how they
were compressed. The work is the native core's (``native/core/src/qcow2/``).

The base may be given in another form than the patch was made from, raw for
qcow2 and the other way round, unless ``needs_base_file`` says otherwise.
Hashes are those of the files.
"""

from diffcache_openstack import _native
from diffcache_openstack.blocks.codecs import base as codec_base
from diffcache_openstack.blocks.codecs import block
from diffcache_openstack.blocks import files
from diffcache_openstack.blocks import native

_MAGIC = b'DCQCOW21'


class Qcow2Codec(codec_base.PatchCodec):
    """Patches of guest content that re-create a qcow2 file."""

    name = 'qcow2'

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        return head.startswith(_MAGIC)

    def create(self, base: str, target: str, patch: str,
               level: int | None = None,
               progress: codec_base.Progress | None = None
               ) -> codec_base.PatchInfo:
        files.check_readable(base, 'base')
        files.check_readable(target, 'target')
        level = block.check_level(level)
        with files.translate_os_errors(patch), native.translated():
            return block.to_info(_native.qcow2_patch_create(
                base, target, patch, level, progress))

    def apply(self, base: str, patch: str, output: str,
              progress: codec_base.Progress | None = None
              ) -> codec_base.PatchInfo:
        files.check_readable(base, 'base')
        info = self.info(patch)
        with files.translate_os_errors(output), native.translated():
            _native.qcow2_patch_apply(base, patch, output, progress)
        return info

    def info(self, patch: str) -> codec_base.PatchInfo:
        files.check_readable(patch, 'patch')
        with native.translated():
            return block.to_info(_native.qcow2_patch_info(patch))

    def verify(self, base: str, patch: str,
               progress: codec_base.Progress | None = None
               ) -> codec_base.PatchInfo:
        files.check_readable(base, 'base')
        info = self.info(patch)
        with native.translated():
            _native.qcow2_patch_verify(base, patch, progress)
        return info
