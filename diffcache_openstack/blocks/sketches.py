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
"""Sketches: estimate the size of a patch without creating it.

A sketch is a small sample of an image's content (half a megabyte), made by
reading the image once. From two sketches the size of the block patch
between their images is estimated in about a millisecond, so that the pairs
worth creating can be chosen among very many. The method is described in
``native/core/src/sketch.rs``.
"""

from typing import Sequence

from diffcache_openstack import _native
from diffcache_openstack.blocks.codecs import codec_base
from diffcache_openstack.blocks import native_errors
from diffcache_openstack.blocks import operands
from diffcache_openstack.common import files


# Raised whenever estimates become better.
VERSION = 1


class Sketch:
    """The sketch of an image's guest content. Immutable."""

    def __init__(self, sample: _native.Sketch) -> None:
        self._sample = sample

    @classmethod
    def of(cls, image: str,
           progress: codec_base.Progress | None = None) -> 'Sketch':
        """Sketch a raw or qcow2 image by reading it once.

        :raises NotFound: the image does not exist or cannot be read
        :raises InvalidInput: it is a qcow2 image that is refused
        :raises FormatError: it is a damaged qcow2 image
        """
        operands.check_readable(image, 'image')
        with native_errors.translated():
            return cls(_native.Sketch(image, progress))

    @classmethod
    def load(cls, path: str) -> 'Sketch':
        """Read a sketch that :meth:`save` wrote.

        :raises NotFound: there is no such file
        :raises FormatError: it is no sketch, or a damaged one
        """
        operands.check_readable(path, 'sketch')
        with open(path, 'rb') as stream, native_errors.translated():
            return cls(_native.Sketch.from_bytes(stream.read()))

    def save(self, path: str) -> None:
        """Write the sketch to a file.

        :raises NoSpace: it does not fit
        """
        with (operands.translate_os_errors(path),
              files.replacing(path, durable=False) as temporary):
            temporary.write_bytes(self._sample.to_bytes())

    @property
    def size(self) -> int:
        """Bytes of the image."""
        return self._sample.size

    @property
    def data_size(self) -> int:
        """Bytes in 4 KiB blocks that are not all zero."""
        return self._sample.data_size

    @property
    def signature(self) -> str:
        """What similar images are found by, for :mod:`.similarity`.

        Empty for an image that has too little content.
        """
        signature = self._sample.signature
        return signature.hex() if any(signature) else ''

    def patch_size_from(self, base: 'Sketch') -> int:
        """Estimate the bytes of the block patch from ``base`` to this."""
        return self._sample.patch_size_from(base._sample)


def matrix(sketches: Sequence[Sketch]) -> list[list[int]]:
    """Estimate the patch sizes of all ordered pairs, on all cores.

    :returns: for each base a list with the bytes for each target
    """
    return _native.sketch_matrix([sketch._sample for sketch in sketches])
