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
"""Images of the same guest without its stale blocks.

What a guest deleted stays on its disk until something else is written there,
and a patch that makes the image again byte for byte has to carry it. A
trimmed image has zeroes in all blocks that the guest's filesystems (ext4,
xfs) mark free.
"""

import dataclasses
import os
from typing import Any, Callable

from diffcache_openstack import _native
from diffcache_openstack.blocks import native_errors
from diffcache_openstack.blocks import operands
from diffcache_openstack.blocks import qemu_img
from diffcache_openstack.common import files

RAW = 'raw'
QCOW2 = 'qcow2'
FORMATS = (RAW, QCOW2)

Progress = Callable[[int, int], None]


@dataclasses.dataclass(frozen=True)
class Trimmed:
    """The result of trimming; sizes in bytes."""

    output: str
    output_format: str
    #: Of the guest's disk.
    size: int
    #: What is not zero in it, before and after.
    data_before: int
    data_after: int
    #: Of the image's file and of the output.
    file_before: int
    file_after: int
    #: What was found: kind, offset, size, free (bytes, or None), reason.
    filesystems: list[dict[str, Any]]


def trim(image: str, output: str, output_format: str | None = None,
         progress: Progress | None = None) -> Trimmed:
    """Write the guest of ``image`` to ``output``, stale blocks zeroed.

    The output appears when it is complete. A qcow2 output is compressed.

    :param output_format: one of :data:`FORMATS`; None for that of the image
    :raises NotFound: the image does not exist or cannot be read
    :raises InvalidInput: the image is refused, or ``qemu-img`` is missing
    :raises FormatError: no filesystem records what is free, or the image is
        damaged
    :raises NoSpace: the output does not fit
    """
    operands.check_readable(image, 'image')
    operands.check_output(output, image=image)
    with native_errors.translated(image):
        is_qcow2, _ = _native.qcow2_probe(image)
    output_format = output_format or (QCOW2 if is_qcow2 else RAW)
    write = _write_raw if output_format == RAW else _write_qcow2
    with operands.translate_os_errors(output), native_errors.translated(image):
        found = write(image, output, progress)
    return Trimmed(
        output=output, output_format=output_format,
        file_before=_allocated(image), file_after=_allocated(output),
        **found)


def _allocated(path: str) -> int:
    """Return the bytes that a file takes: its length but for its holes."""
    status = os.stat(path)
    return min(status.st_size, status.st_blocks * 512)


def _write_raw(image: str, output: str,
               progress: Progress | None) -> dict[str, Any]:
    return _native.image_trim(image, output, progress)


def _write_qcow2(image: str, output: str,
                 progress: Progress | None) -> dict[str, Any]:
    with files.beside(output) as raw, files.beside(output) as packed:
        found = _native.image_trim(image, str(raw), progress)
        qemu_img.compress(str(raw), str(packed))
        os.rename(packed, output)
    return found
