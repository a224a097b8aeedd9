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
were compressed. The native code is in ``native/qcow2``.

The base may be given in another form than the patch was made from, raw for
qcow2 and the other way round, unless ``needs_base_file`` says otherwise.
Hashes are those of the files.
"""

from diffcache_openstack import _native
from diffcache_openstack.blocks.codecs import codec_base
from diffcache_openstack.blocks.codecs import native_codec
from diffcache_openstack.blocks import native_errors


class Qcow2Codec(native_codec.NativeCodec):
    """Patches of guest content that re-create a qcow2 file."""

    name = 'qcow2'
    magic = b'DCQCOW21'
    native_create = staticmethod(_native.qcow2_patch_create)
    native_apply = staticmethod(_native.qcow2_patch_apply)
    native_info = staticmethod(_native.qcow2_patch_info)
    native_verify = staticmethod(_native.qcow2_patch_verify)
    native_content_id = staticmethod(_native.qcow2_content_id)

    def check_image(self, image: str, role: str) -> None:
        super().check_image(image, role)
        with native_errors.translated(image):
            _native.qcow2_probe(image)

    def wanted_base(self, info: codec_base.PatchInfo) -> str:
        return info.details['base_content_id']
