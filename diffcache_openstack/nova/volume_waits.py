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
"""Servers that wait for the SSD cache of their host."""

import collections.abc
import socket
import typing

from lxml import etree

_CONNECT_S = 1.0


class VolumeWait:
    """What volumes in the SSD cache wait for: that the cache runs."""

    what = 'volumes in the SSD cache'

    def disks(self, document: str) -> collections.abc.Collection[str]:
        """Return the names of cached volumes in libvirt's document."""
        return cached_disks(document).keys()

    def is_over(self, guest: typing.Any, document: str,
                names: collections.abc.Collection[str]) -> bool:
        """Return whether the caches of some disks accept connections."""
        sockets = cached_disks(document)
        return all(_accepts(sockets[name]) for name in names)


def cached_disks(document: str) -> dict[str, str]:
    """Return the sockets of disks over NBD, by the names of the disks."""
    found = {}
    for disk in etree.fromstring(document).iterfind(
            "devices/disk[@type='network']"):
        host = disk.find("source[@protocol='nbd']/host[@transport='unix']")
        target = disk.find('target')
        if host is not None and target is not None:
            found[target.get('dev')] = host.get('socket')
    return found


def _accepts(path: str) -> bool:
    """Return whether a cache listens."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(_CONNECT_S)
        try:
            client.connect(path)
        except PermissionError:
            # QEMU's user may; the socket of a cache that ended is refused.
            return True
        except OSError:
            return False
    return True
