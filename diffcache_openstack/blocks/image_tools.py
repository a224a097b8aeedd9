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
"""Operations of the native core on image files: sign, patch, convert.

Patches between agents are those of codecs with random access, because images
are read through them without being built first. A *recipe* makes an image's
file, bit for bit, of its raw content.
"""

import pathlib
from typing import NamedTuple

from diffcache_openstack import _native
from diffcache_openstack.blocks.codecs import auto
from diffcache_openstack.blocks.codecs import block
from diffcache_openstack.blocks.codecs import codec_base
from diffcache_openstack.blocks.codecs import registry
from diffcache_openstack.blocks import native_errors
from diffcache_openstack.blocks import sketches
from diffcache_openstack.common import exceptions

Progress = codec_base.Progress | None


def _codec_of(patch: pathlib.Path) -> codec_base.PatchCodec:
    """Return the codec of a patch between agents.

    :raises FormatError: it is none that agents exchange
    """
    codec = registry.detect(str(patch))
    if not codec.random_access:
        raise exceptions.FormatError(
            f'{patch} is a patch of the codec {codec.name}, which has no '
            f'random access; between hosts, use one of '
            f'{", ".join(registry.random_access_names())}.')
    return codec


def _ends(info: codec_base.PatchInfo, patch: pathlib.Path
          ) -> tuple[str, str]:
    if info.base_hash is None or info.target_hash is None:
        raise exceptions.FormatError(
            f'The patch {patch} does not say which images it is between.')
    return info.base_hash, info.target_hash


class CommonBlocks(NamedTuple):
    """Blocks of 4 KiB, not zero, that two images have in common.

    :ivar sizes: (chunk of the base, its blocks)
    :ivar found: (chunk of the target, chunk of the base, blocks of the latter
        that the former has)
    """

    sizes: list[tuple[int, int]]
    found: list[tuple[int, int, int]]


class _RecipeTarget:
    """See :class:`.codecs.base.Reader`."""

    def __init__(self, opened: _native.RecipeTarget) -> None:
        self._opened = opened
        self.size = opened.size

    def read(self, offset: int, length: int) -> bytes:
        with native_errors.translated():
            return self._opened.read(offset, length)


class ImageTools:
    """Operations on image files; errors are DiffCacheErrors."""

    def sign(self, image: pathlib.Path, manifest: pathlib.Path,
             progress: Progress = None) -> dict:
        """Write an image's manifest; returns content_id, size, data_size."""
        with native_errors.translated():
            return _native.manifest_create(str(image), str(manifest),
                                           progress)

    def compress(self, content: pathlib.Path, manifest: pathlib.Path,
                 output: pathlib.Path, level: int,
                 progress: Progress = None) -> int:
        """Write the compressed form of raw content; returns its bytes.

        :raises IntegrityError: the content differs from its manifest
        """
        with native_errors.translated():
            return _native.compressed_create(
                str(content), str(manifest), str(output), level,
                progress)['bytes']

    def hash_file(self, path: pathlib.Path) -> str:
        """Return the BLAKE3 hash of a file: a raw image's content id."""
        with native_errors.translated():
            return _native.hash_file(str(path))

    def make_patch(self, base: pathlib.Path, target: pathlib.Path,
                   patch: pathlib.Path, level: int,
                   progress: Progress = None) -> tuple[str, str]:
        """Write a patch; returns the content ids of base and target."""
        info = auto.create(str(base), str(target), str(patch), level,
                           progress,
                           codecs=registry.random_access_names()).info
        return _ends(info, patch)

    def apply_patch(self, base: pathlib.Path, patch: pathlib.Path,
                    output: pathlib.Path, progress: Progress = None) -> None:
        """Write the verified target of a patch."""
        _codec_of(patch).apply(str(base), str(patch), str(output), progress)

    def patch_ends(self, patch: pathlib.Path) -> tuple[str, str]:
        """Return the content ids of a patch's base and target."""
        return _ends(_codec_of(patch).info(str(patch)), patch)

    def target_manifest(self, base_manifest: pathlib.Path,
                        patch: pathlib.Path, output: pathlib.Path) -> str:
        """Write the manifest of a patch's target; no image is read.

        :returns: the content ID of the target
        :raises FormatError: the patch does not say it
        :raises BaseMismatch: the manifest is not that of the patch's base
        """
        codec = _codec_of(patch)
        if not isinstance(codec, block.BlockCodec):
            raise exceptions.FormatError(
                f'{patch} is a patch of the codec {codec.name}, which does'
                f' not have the manifest of its target.')
        with native_errors.translated(str(patch)):
            return _native.patch_manifest(
                str(base_manifest), str(patch), str(output))['content_id']

    def open_view(self, base: pathlib.Path, patch: pathlib.Path,
                  manifest: pathlib.Path) -> codec_base.Reader:
        """Open a patch's target for reading, verified by its manifest."""
        return _codec_of(patch).open_view(str(base), str(patch),
                                          str(manifest))

    @property
    def methods(self) -> str:
        """The versions of patches, and of the estimates of their sizes."""
        return f'patch {_native.PATCH_FORMAT}, sketch {sketches.VERSION}'

    def make_recipe(self, content: pathlib.Path, image: pathlib.Path,
                    recipe: pathlib.Path, progress: Progress = None) -> None:
        """Write the recipe that makes an image's file of its raw content."""
        with native_errors.translated():
            _native.qcow2_patch_create(str(content), str(image), str(recipe),
                                       progress=progress)

    def apply_recipe(self, content: pathlib.Path, recipe: pathlib.Path,
                     output: pathlib.Path) -> None:
        """Write the verified file of an image."""
        with native_errors.translated():
            _native.qcow2_patch_apply(str(content), str(recipe), str(output))

    def open_recipe(self, recipe: pathlib.Path, content: pathlib.Path,
                    patch: pathlib.Path | None = None
                    ) -> codec_base.Reader | None:
        """Open the file of an image for reading, without building it.

        Each MiB is verified before it is returned. All of them are open when
        this returns.

        :param content: raw content, or the base of the patch to it
        :returns: None if the recipe does not say where each part is; then
            :meth:`apply_recipe` builds the file
        """
        with native_errors.translated():
            opened = _native.qcow2_open(
                str(recipe), str(content), None if patch is None
                else str(patch))
        return None if opened is None else _RecipeTarget(opened)

    def check_recipe(self, content: pathlib.Path, recipe: pathlib.Path,
                     progress: Progress = None) -> None:
        """Verify that a recipe reproduces its file.

        :raises DiffCacheError: it does not
        """
        with native_errors.translated():
            _native.qcow2_patch_verify(str(content), str(recipe), progress)

    def to_raw(self, image: pathlib.Path, output: pathlib.Path,
               progress: Progress = None) -> str:
        """Write a qcow2 image's raw content; returns its content id.

        :raises InvalidInput: the image names other files, is encrypted or
            absurd; no file that it names was opened
        """
        with native_errors.translated():
            return _native.qcow2_to_raw(str(image), str(output), progress)[
                'content_id']

    def is_qcow2(self, image: pathlib.Path) -> bool:
        """Return whether an image is qcow2, by its first bytes.

        :raises InvalidInput: it is, and must not be used
        """
        with native_errors.translated():
            return _native.qcow2_probe(str(image))[0]

    def disk_size(self, image: pathlib.Path) -> int:
        """Return the bytes of the guest's disk, by the image's header.

        :raises InvalidInput: the image must not be used
        """
        with native_errors.translated():
            return _native.qcow2_probe(str(image))[1]

    def data_size(self, image: pathlib.Path) -> int:
        """Return the bytes that :meth:`to_raw` writes at most.

        :raises InvalidInput: the image must not be used
        """
        with native_errors.translated():
            return _native.qcow2_data_size(str(image))

    def sketch(self, image: pathlib.Path, output: pathlib.Path,
               progress: Progress = None) -> None:
        """Write an image's sketch."""
        sketches.Sketch.of(str(image), progress).save(str(output))

    def load_sketch(self, path: pathlib.Path) -> sketches.Sketch:
        """Read a sketch.

        :raises FormatError: the file is damaged
        """
        return sketches.Sketch.load(str(path))

    def common_blocks(self, base: pathlib.Path, target: pathlib.Path,
                      chunks: list[int], chunk_bytes: int,
                      progress: Progress = None) -> CommonBlocks:
        """Look for blocks of some chunks of a raw image in another one.

        :param chunks: numbers of chunks of ``base``
        :param chunk_bytes: of a chunk of either image; a multiple of 4096
        """
        with native_errors.translated():
            return CommonBlocks(*_native.common_blocks_find(
                str(base), str(target), chunks, chunk_bytes, progress))

    def estimate(self, base: sketches.Sketch, target: sketches.Sketch
                 ) -> int:
        """Estimate the size in bytes of the patch between two images."""
        return target.patch_size_from(base)
