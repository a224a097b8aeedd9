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
"""Opening disks to write to them in place, while no guest can use them."""

import contextlib
import pathlib
from typing import Iterator

from diffcache_openstack import _native
from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.disks import locks
from diffcache_openstack.versions.disks import nbd


@contextlib.contextmanager
def open_disk(path: pathlib.Path, disk_format: str,
              base: pathlib.Path | None = None
              ) -> Iterator[_native.DiskWriter]:
    """Open a disk for writing, locked for the time of a ``with`` block.

    A raw disk is written directly, one of another format through qemu-nbd.

    :param base: the image below a qcow2 disk
    :raises Busy: a guest uses the disk
    :raises ServiceUnavailable: qemu-nbd ended; also in the block
    """
    with locks.hold(path) as lock:
        if disk_format == 'raw':
            yield _native.DiskWriter.raw(lock, str(path))
            return
        try:
            with nbd.Server(path, lock, disk_format, base) as disk:
                yield disk
        except exceptions.PeerUnavailable as exc:
            raise exceptions.ServiceUnavailable(
                f'Could not write to {path}: {exc}') from exc
