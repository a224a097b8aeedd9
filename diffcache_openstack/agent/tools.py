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
"""What agents do with images in native code: sign, patch, compare.

Patches between agents are always those of the block codec, because the data
plane reads images through them without unpacking them first.
"""

import pathlib

from diffcache_openstack import _native
from diffcache_openstack.blocks import native


class NativeTools:
    """See :class:`diffcache_openstack.agent.repository.Tools`."""

    def sign(self, image: pathlib.Path, manifest: pathlib.Path) -> dict:
        """Write an image's manifest; returns content_id, size, data_size."""
        with native.translated():
            return _native.manifest_create(str(image), str(manifest))

    def hash_file(self, path: pathlib.Path) -> str:
        """The id of a file."""
        with native.translated():
            return _native.hash_file(str(path))

    def make_patch(self, base: pathlib.Path, target: pathlib.Path,
                   patch: pathlib.Path, level: int) -> tuple[str, str]:
        """Write a patch; returns the ids of base and target."""
        with native.translated():
            info = _native.patch_create(str(base), str(target), str(patch),
                                        level)
        return info['base_hash'], info['target_hash']

    def apply_patch(self, base: pathlib.Path, patch: pathlib.Path,
                    output: pathlib.Path) -> None:
        """Write the verified target."""
        with native.translated():
            _native.patch_apply(str(base), str(patch), str(output))

    def distance(self, base: pathlib.Path, target: pathlib.Path) -> float:
        """How much the two images' data differ in size.

        Cheap, and right often enough for an order of work: what was
        installed on top of an image makes it larger.
        """
        with native.translated():
            sizes = [_native.manifest_info(str(path))['data_size']
                     for path in (base, target)]
        return abs(sizes[0] - sizes[1])
