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
from diffcache_openstack.blocks import sketch as sketches


class NativeTools:
    """See :class:`diffcache_openstack.agent.repository.catalogue.Tools`."""

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

    def patch_ends(self, patch: pathlib.Path) -> tuple[str, str]:
        """The ids of a patch's base and target, without reading either."""
        with native.translated():
            info = _native.patch_info(str(patch))
        return info['base_hash'], info['target_hash']

    def make_form(self, content: pathlib.Path, image: pathlib.Path,
                  form: pathlib.Path) -> None:
        """Write what makes an image's file of its raw content."""
        with native.translated():
            _native.qcow2_patch_create(str(content), str(image), str(form))

    def apply_form(self, content: pathlib.Path, form: pathlib.Path,
                   output: pathlib.Path) -> None:
        """Write the verified file."""
        with native.translated():
            _native.qcow2_patch_apply(str(content), str(form), str(output))

    def check_form(self, content: pathlib.Path, form: pathlib.Path) -> None:
        """Make sure that a form makes its file.

        :raises DiffCacheError: it does not
        """
        with native.translated():
            _native.qcow2_patch_verify(str(content), str(form))

    def to_raw(self, image: pathlib.Path, output: pathlib.Path) -> str:
        """Write a qcow2 image's raw content; returns its content id.

        :raises InvalidInput: the image names other files, is encrypted or
            absurd; none of what it names was opened
        """
        with native.translated():
            return _native.qcow2_to_raw(str(image), str(output))[
                'content_id']

    def is_qcow2(self, image: pathlib.Path) -> bool:
        """Whether an image is qcow2, by its first bytes.

        :raises InvalidInput: it is, and none that may be used
        """
        with native.translated():
            return _native.qcow2_probe(str(image))[0]

    def content_id(self, image: pathlib.Path) -> str:
        """The content id of a raw image: the hash of its bytes."""
        return self.hash_file(image)

    def sketch(self, image: pathlib.Path, output: pathlib.Path) -> None:
        """Write an image's sketch."""
        sketches.Sketch.of(str(image)).save(str(output))

    def load_sketch(self, path: pathlib.Path) -> sketches.Sketch:
        """Read a sketch."""
        return sketches.Sketch.load(str(path))

    def estimate(self, base: sketches.Sketch, target: sketches.Sketch
                 ) -> int:
        """Bytes of the patch between two sketched images."""
        return target.patch_size_from(base)
