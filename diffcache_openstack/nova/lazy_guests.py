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
"""Running servers whose base image was, or is, still arriving."""

import collections.abc
import dataclasses
import logging
import os
import pathlib
import time
import typing

import libvirt

from diffcache_openstack.agent_client import local_client
from diffcache_openstack.common import exceptions
from diffcache_openstack.nova import base_nodes
from diffcache_openstack.nova import domains
from diffcache_openstack.nova import tallies

LOG = logging.getLogger(__name__)

STOPPED = 'stopped'
RESUMED = 'resumed'
LEFT = 'left'
# Seconds until a server is resumed once more although nothing more of its
# image has arrived: the first time, and the longest.
FIRST_PAUSE = 15.0
LONGEST_PAUSE = 300.0
# Until a base image is tried again that QEMU could not open.
_RETRY = 5.0
# After this many seconds an error has nothing to do with the last one.
_FORGET = 3600.0

Guests = collections.abc.Callable[[], collections.abc.Iterable[typing.Any]]


def open_anew(domain: typing.Any, overlay: base_nodes.Overlay) -> None:
    """Have QEMU open a base image anew; see :mod:`.base_nodes`."""
    base_nodes.open_anew(domains.monitor(domain), overlay)


class Leavers:
    """Has running servers read base images that have become files.

    Nova has QEMU read its disks past the page cache, so that each read of a
    server that has an arriving file open passes diffcached.

    :param guests: returns Nova's guests that are active on this host
    :param tally: counts
    """

    def __init__(self, guests: Guests, tally: tallies.Tally) -> None:
        self._guests = guests
        self._tally = tally
        # Servers, each start of them, that have opened a base anew.
        self._left: set[tuple[str, int, str]] = set()
        self._warned: set[str] = set()

    def leave(self, base: pathlib.Path) -> bool:
        """Have servers open a base image that is a file now.

        :returns: whether no server can still read what the file replaced
        """
        seen, all_left = set(), True
        for guest in self._guests():
            try:
                key = (guest.uuid, guest._domain.ID(), str(base))
                if key in self._left or self._leave(guest, base):
                    seen.add(key)
                else:
                    all_left = False
            except libvirt.libvirtError as error:
                # It may have ended meanwhile.
                LOG.debug('Could not look at server %s: %s', guest.uuid,
                          error)
                all_left = False
        self._left = seen | {key for key in self._left
                             if key[-1] != str(base)}
        return all_left

    def _leave(self, guest: typing.Any, base: pathlib.Path) -> bool:
        """Return whether a server does not have the base open as it was."""
        domain = guest._domain
        for overlay in base_nodes.overlays(domain.XMLDesc(0)):
            if overlay.base != str(base):
                continue
            if domains.is_busy(domain, overlay.device):
                return False
            try:
                open_anew(domain, overlay)
            except exceptions.DiffCacheError as error:
                known = guest.uuid in self._warned
                self._warned.add(guest.uuid)
                LOG.log(logging.DEBUG if known else logging.WARNING,
                        'Server %s still reads its base image from'
                        ' diffcached, will retry: %s', guest.uuid, error)
                return False
            self._tally.lazy(LEFT)
            LOG.info('Server %s reads its base image from %s now', guest.uuid,
                     base)
        return True


@dataclasses.dataclass(frozen=True)
class Attempt:
    """A server that was resumed.

    :ivar arrived: how much of its images had arrived then
    :ivar at: when, by time.monotonic()
    :ivar pause: seconds until the next one if nothing more has arrived
    """

    arrived: tuple[int, ...]
    at: float
    pause: float


class LazyWait:
    """What disks wait for whose base image is not whole.

    That is more of the image. As errors may have other causes, such as an end
    of the mount, and nothing may be fetched but what the guest reads, the
    server itself is the last test: it is resumed now and then.

    :param client: of this host's agent
    :param tally: counts
    """

    what = 'a base image that is arriving'

    def __init__(self, client: local_client.LocalClient,
                 tally: tallies.Tally) -> None:
        self._client = client
        self._tally = tally
        self._attempts: dict[str, Attempt] = {}

    def disks(self, document: str) -> collections.abc.Collection[str]:
        """Return the names of disks that stop their server for it."""
        return [overlay.device for overlay in base_nodes.overlays(document)
                if overlay.stops]

    def is_over(self, guest: typing.Any, document: str,
                names: collections.abc.Collection[str]) -> bool:
        """Return whether requests may be repeated, with files opened anew.

        :raises DiffCacheError: QEMU could not open a base image; repeated
            later
        """
        found = [overlay for overlay in base_nodes.overlays(document)
                 if overlay.device in names]
        arrived = self._arrived(found)
        now = time.monotonic()
        self._attempts = {key: attempt for key, attempt
                          in self._attempts.items()
                          if now - attempt.at < _FORGET}
        last = self._attempts.get(guest.uuid)
        if last is None:
            pause = FIRST_PAUSE
            self._tally.lazy(STOPPED)
            LOG.warning('Server %s is stopped, as its base image %s could not'
                        ' be read; it resumes when that can be', guest.uuid,
                        ', '.join(overlay.base for overlay in found))
        elif arrived != last.arrived:
            pause = FIRST_PAUSE
        elif now - last.at < last.pause:
            return False
        else:
            pause = min(2 * last.pause, LONGEST_PAUSE)
        # What is mounted may be gone, and come back any moment.
        self._attempts[guest.uuid] = Attempt(arrived, now, _RETRY)
        for overlay in found:
            open_anew(guest._domain, overlay)
        self._attempts[guest.uuid] = Attempt(arrived, now, pause)
        self._tally.lazy(RESUMED)
        return True

    def _arrived(self, found: collections.abc.Iterable[base_nodes.Overlay]
                 ) -> tuple[int, ...]:
        """Return how many chunks of base images have arrived."""
        try:
            served = {each['path']: int(each.get('present') or 0)
                      for each in self._client.lazy()}
        except exceptions.DiffCacheError as error:
            LOG.debug('It is unknown how much of images has arrived: %s',
                      error)
            return ()
        return tuple(served.get(_target(overlay.base), 0)
                     for overlay in found)


def _target(base: str) -> str | None:
    try:
        return os.readlink(base)
    except OSError:
        return None  # A file by now.
