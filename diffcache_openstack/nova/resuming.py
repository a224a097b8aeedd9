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
"""Resuming servers that were stopped by an error of a disk.

QEMU pauses a server whose disk has the error policy "stop" instead of
returning an error to the guest, and repeats the requests when the server is
resumed. libvirt 9.0 has no way to let QEMU wait without a pause.
"""

import collections.abc
import logging
import typing

import libvirt

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import threads

LOG = logging.getLogger(__name__)

# Seconds between two looks; a server is paused for as long at most once its
# disks can be read again.
INTERVAL_S = 2.0


class Wait(typing.Protocol):
    """What some kind of disk waits for.

    :ivar what: of which disks, for the log
    """

    what: str

    def disks(self, document: str) -> collections.abc.Collection[str]:
        """Return the names of its disks in libvirt's document."""
        ...

    def is_over(self, guest: typing.Any, document: str,
                names: collections.abc.Collection[str]) -> bool:
        """Return whether requests to some of its disks may be repeated."""
        ...


def is_stopped(domain: typing.Any) -> bool:
    """Return whether a server was stopped by an error of a disk."""
    return list(domain.state()) == [libvirt.VIR_DOMAIN_PAUSED,
                                    libvirt.VIR_DOMAIN_PAUSED_IOERROR]


class Resumer(threads.Rounds):
    """Resumes servers when what they wait for is there again.

    :param guests: returns Nova's guests that are active on this host
    :param waits: an error of another disk is for an operator to look at
    """

    def __init__(self, guests: collections.abc.Callable[
            [], collections.abc.Iterable[typing.Any]],
            waits: collections.abc.Sequence[Wait]) -> None:
        super().__init__(
            'diffcache-resumer', self.look, INTERVAL_S,
            'Could not look for servers that wait for their disks')
        self._guests = guests
        self._waits = waits

    def look(self) -> None:
        """Resume the servers whose disks can be read again."""
        for guest in self._guests():
            try:
                self._resume_if_it_can(guest)
            except libvirt.libvirtError as error:
                # It may have ended meanwhile.
                LOG.debug('Could not look at server %s: %s', guest.uuid,
                          error)
            except exceptions.DiffCacheError as error:
                LOG.warning('Could not resume server %s, which was stopped by'
                            ' an error of a disk; will retry: %s', guest.uuid,
                            error)

    def _resume_if_it_can(self, guest: typing.Any) -> None:
        domain = guest._domain
        if not is_stopped(domain):
            return
        failed = domain.diskErrors(0)
        document = domain.XMLDesc(0)
        waiting = [(wait, failed.keys() & set(wait.disks(document)))
                   for wait in self._waits]
        if not failed or failed.keys() - set().union(
                *(names for _, names in waiting)):
            return
        # Space on a disk is for an operator to make.
        if libvirt.VIR_DOMAIN_DISK_ERROR_NO_SPACE in failed.values():
            return
        if all(wait.is_over(guest, document, names)
               for wait, names in waiting if names):
            domain.resume()
            LOG.info('Resumed server %s, which waited for %s', guest.uuid,
                     ' and '.join(f'{wait.what} ({", ".join(sorted(names))})'
                                  for wait, names in waiting if names))
