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
"""Content ids and manifests of images.

A content id is the hex BLAKE3 of an image's raw content; a manifest is the
list of subtree hashes that merges to it, against which any 64 KiB leaf can
be verified (``native/core/src/manifest/file.rs`` describes the file).
"""

from collections.abc import Callable
import dataclasses

from diffcache_openstack import _native
from diffcache_openstack.blocks import native_errors
from diffcache_openstack.blocks import operands


@dataclasses.dataclass(frozen=True)
class ManifestInfo:
    """What a manifest says of its image. Sizes in bytes."""

    content_id: str
    size: int
    #: Bytes in leaves that are not all zero.
    data_size: int
    #: Leaves of 64 KiB.
    leaves: int
    zero_leaves: int


def content_id(image: str) -> str:
    """Return the content id of a raw image: the BLAKE3 of the file.

    :raises NotFound: the image does not exist or cannot be read
    """
    operands.check_readable(image, 'image')
    with native_errors.translated():
        return _native.hash_file(image)


def guest_content_id(image: str) -> str:
    """Return the content id of what a guest reads from an image.

    The same for a raw image and for every qcow2 file with that content.

    :raises NotFound: the image does not exist or cannot be read
    :raises InvalidInput: it is a qcow2 image that is refused
    :raises FormatError: it is a damaged qcow2 image
    """
    operands.check_readable(image, 'image')
    with native_errors.translated(image):
        return _native.qcow2_content_id(image)


def create(image: str, manifest: str,
           progress: Callable[[int, int], object] | None = None
           ) -> ManifestInfo:
    """Write the manifest of what a guest reads from ``image``.

    :param progress: called with (bytes done, bytes in total)
    :raises: what :func:`guest_content_id` raises
    :raises NoSpace: the manifest does not fit
    """
    operands.check_readable(image, 'image')
    operands.check_output(manifest, image=image)
    with operands.translate_os_errors(manifest), \
            native_errors.translated(image):
        return ManifestInfo(**_native.qcow2_manifest_create(
            image, manifest, progress))


def read(manifest: str) -> ManifestInfo:
    """Return what a manifest says, having checked that it is whole.

    :raises NotFound: the manifest does not exist or cannot be read
    :raises FormatError: it is damaged or another file
    """
    operands.check_readable(manifest, 'manifest')
    with native_errors.translated(manifest):
        return ManifestInfo(**_native.manifest_info(manifest))
