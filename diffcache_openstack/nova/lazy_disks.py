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
"""Disks of servers whose base image may not be whole."""

import os
import typing

from nova.virt.libvirt import config as vconfig
from nova.virt.libvirt import utils as libvirt_utils


class LazyDisk(vconfig.LibvirtConfigGuestDisk):
    """A disk that stops its guest when it cannot be read or written.

    QEMU repeats the requests when the guest is resumed. Writes are included:
    those of a part of a cluster read the base.
    """

    def __init__(self, disk: vconfig.LibvirtConfigGuestDisk) -> None:
        super().__init__()
        self.__dict__.update(disk.__dict__)

    def format_dom(self) -> typing.Any:
        """Return the element of libvirt's document."""
        disk = super().format_dom()
        stop_at_errors(disk)
        return disk


def stop_at_errors(disk: typing.Any) -> None:
    """Have errors of a disk stop the guest instead of reaching it.

    :param disk: the element of libvirt's document
    """
    driver = disk.find('driver')
    driver.set('error_policy', 'stop')
    driver.set('rerror_policy', 'stop')


def is_lazy(path: str) -> bool:
    """Return whether a disk's base image is a link to an arriving file.

    A base that is missing may become one before the server starts.

    :param path: of the disk, a qcow2 file
    """
    base = libvirt_utils.get_disk_backing_file(path, basename=False,
                                               format='qcow2')
    return base is not None and (
        os.path.islink(base) or not os.path.exists(base))
