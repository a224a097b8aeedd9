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
"""Servers that wait for the SSD cache of their host.

QEMU pauses a server whose cached volume cannot be read or written, instead of
returning an error to the guest. It repeats the requests when the server is
resumed. libvirt 9.0 has no way to let QEMU wait without a pause.
"""

import collections.abc
import logging
import socket
import threading
import typing

import libvirt
from lxml import etree

LOG = logging.getLogger(__name__)

# Seconds between two looks; a server is paused for as long at most once the
# cache runs again.
INTERVAL_S = 2.0
_CONNECT_S = 1.0


class Resumer:
    """Resumes servers when the cache that they wait for runs again.

    :param guests: returns Nova's guests that are active on this host
    """

    def __init__(self, guests: collections.abc.Callable[
            [], collections.abc.Iterable[typing.Any]]) -> None:
        self._guests = guests
        self._ended = threading.Event()

    def start(self) -> None:
        """Look for servers that wait until the process ends."""
        threading.Thread(target=self._run, daemon=True,
                         name='diffcache-volume-waits').start()

    def _run(self) -> None:
        while not self._ended.wait(INTERVAL_S):
            try:
                self.look()
            except Exception:
                LOG.exception('Could not look for servers that wait for the'
                              ' SSD cache, will retry')

    def look(self) -> None:
        """Resume the servers that can go on."""
        for guest in self._guests():
            try:
                _resume_if_it_can(guest)
            except libvirt.libvirtError as error:
                # It may have ended meanwhile.
                LOG.debug('Could not look at server %s: %s', guest.uuid,
                          error)


def _resume_if_it_can(guest: typing.Any) -> None:
    domain = guest._domain
    state, reason = domain.state()
    if (state, reason) != (libvirt.VIR_DOMAIN_PAUSED,
                           libvirt.VIR_DOMAIN_PAUSED_IOERROR):
        return
    sockets = cached_disks(domain.XMLDesc(0))
    failed = set(domain.diskErrors(0))
    # An error of another disk is for an operator to look at.
    if failed and failed <= sockets.keys() and all(
            _accepts(sockets[name]) for name in failed):
        domain.resume()
        LOG.info('Resumed server %s, which waited for volumes in the SSD'
                 ' cache: %s', guest.uuid, ', '.join(sorted(failed)))


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
