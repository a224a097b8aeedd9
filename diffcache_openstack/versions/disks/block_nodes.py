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
"""Disks as QEMU's programs open them: by node, with every layer stated.

A file name alone would have QEMU detect the format, take the name for that of
a protocol, and open the backing file that the header names, which the guest
of a raw disk can write itself.
"""

import json
import pathlib
from typing import Any

from diffcache_openstack import _native
from diffcache_openstack.blocks import native_errors


def file_name(disk: pathlib.Path, disk_format: str,
              base: pathlib.Path | None = None) -> str:
    """Return the name by which qemu-img and qemu-nbd open a disk.

    They do not lock the disk: who starts them has locked it (:mod:`.locks`).

    :param base: the image below a qcow2 disk; None: nothing is opened below
        it, whatever its header names
    :raises InvalidInput: the base names other files, or is refused
    """
    node: dict[str, Any] = {'driver': disk_format,
                            'file': _protocol(disk) | {'locking': 'off'}}
    if disk_format == 'qcow2':
        node['backing'] = None if base is None else _base(base)
    return f'json:{json.dumps(node)}'


def format_of_base(base: pathlib.Path) -> str:
    """Return the format of a base image, detected by its first bytes.

    :raises InvalidInput: it names other files, or is refused
    """
    with native_errors.translated():
        is_qcow2, _size = _native.qcow2_probe(base)
    return 'qcow2' if is_qcow2 else 'raw'


def _base(base: pathlib.Path) -> dict[str, Any]:
    node: dict[str, Any] = {'driver': format_of_base(base),
                            'read-only': True, 'file': _protocol(base)}
    if node['driver'] == 'qcow2':
        node['backing'] = None
    return node


def _protocol(path: pathlib.Path) -> dict[str, str]:
    driver = 'host_device' if path.is_block_device() else 'file'
    return {'driver': driver, 'filename': str(path)}
