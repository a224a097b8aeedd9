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
"""Limits on what unpacking an image may cost.

A qcow2 file of a megabyte may describe a disk of terabytes, and compressed
clusters may hold a thousand times their length.
"""

import dataclasses
import pathlib
import time
import typing

from diffcache_openstack.blocks import image_tools
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import units

# Content that any image may have, however small its file is.
_FREE_BYTES = 256 << 20


@dataclasses.dataclass(frozen=True)
class ImageLimits:
    """What unpacking one image may cost at most.

    :param disk_size: bytes of the guest's disk
    :param expansion: bytes of content for each byte of the file
    :param seconds: for unpacking an image and describing its file
    """

    disk_size: int
    expansion: float
    seconds: float

    def check(self, image_id: str, path: pathlib.Path,
              tools: image_tools.ImageTools) -> None:
        """Check a qcow2 file by its tables, before it is unpacked.

        :raises InvalidInput: its disk or its content is too large
        """
        size = tools.disk_size(path)
        if size > self.disk_size:
            raise exceptions.InvalidInput(
                f'Image {image_id} has a disk of {units.format_size(size)}, '
                f'more than [glance] largest_image allows '
                f'({units.format_size(self.disk_size)}); it is not added. '
                f'Raise the option if the image is legitimate.')
        stored, packed = tools.data_size(path), path.stat().st_size
        if stored > max(_FREE_BYTES, self.expansion * packed):
            raise exceptions.InvalidInput(
                f'Image {image_id} would grow from '
                f'{units.format_size(packed)} to '
                f'{units.format_size(stored)}, more than [repository] '
                f'max_expansion = {self.expansion:g} allows; it is not '
                f'added. Raise the option if the image is legitimate.')

    def deadline(self, image_id: str,
                 go_on: typing.Callable[[int, int], None]) -> 'Deadline':
        """Return the deadline of an image whose unpacking starts now.

        :param go_on: is called with each progress, and may end the job, too
        """
        return Deadline(image_id, self.seconds, go_on)


class Deadline:
    """Ends a job that takes too long, as its progress callback."""

    def __init__(self, image_id: str, seconds: float,
                 go_on: typing.Callable[[int, int], None]) -> None:
        self._image_id = image_id
        self._seconds = seconds
        self._go_on = go_on
        self._end = time.monotonic() + seconds

    def __call__(self, done: int, total: int) -> None:
        """Check the time.

        :raises PermanentError: it is over
        """
        self._go_on(done, total)
        if time.monotonic() > self._end:
            raise exceptions.PermanentError(
                f'Unpacking image {self._image_id} took longer than '
                f'[repository] unpack_timeout ({self._seconds:g} s) allows; '
                f'it is not added. Raise the option if the image is '
                f'legitimate.')
