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
"""Running servers, as libvirt and QEMU have them."""

import typing

import libvirt
import libvirt_qemu

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import qemu_monitor


def monitor(domain: typing.Any) -> qemu_monitor.Monitor:
    """Return the QEMU monitor of a server."""
    return qemu_monitor.Monitor(libvirt, libvirt_qemu, domain)


def is_migrated(domain: typing.Any) -> bool:
    """Return whether libvirt works on a server, such as to migrate it."""
    return bool(domain.jobInfo()[0] != libvirt.VIR_DOMAIN_JOB_NONE)


def is_busy(domain: typing.Any, device: str) -> bool:
    """Return whether libvirt works on a server, or copies one of its disks.

    :param device: the disk's name, such as vda
    :raises PermanentError: the server was stopped meanwhile, or libvirt fails
    """
    try:
        return is_migrated(domain) or bool(domain.blockJobInfo(device, 0))
    except libvirt.libvirtError as error:
        raise exceptions.PermanentError(
            f'libvirt does not say whether disk {device} is copied: {error}'
        ) from error
