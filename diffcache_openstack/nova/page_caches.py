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
"""Sizes of guests' page caches, for the SSD cache of their volumes.

They are in the statistics of the balloon, which Nova's ``[libvirt]
mem_stats_period_seconds`` has the guest's driver send. libvirt's call is used
and not QEMU's monitor (``qom-get guest-stats``): both have the same numbers,
and libvirt marks servers as tainted whose monitor others use.
"""

import collections.abc
import logging
import threading
import time
import typing

import libvirt

from diffcache_openstack.agent_client import local_client
from diffcache_openstack.common import exceptions
from diffcache_openstack.nova import tally as tallies
from diffcache_openstack.nova import volume_nodes

LOG = logging.getLogger(__name__)

# Seconds between two looks at all guests.
INTERVAL_S = 10.0
# Seconds after which an agent that does not know the call is called again.
RETRY_S = 600.0
# Statistics are those of a driver that says no more after so many seconds, or
# so many of its periods.
_OLD_S = 120.0
_OLD_PERIODS = 3
_KIB = 1024


class PageCacheWatch:
    """Reports the page caches of guests that have volumes in the SSD cache.

    :param guests: returns Nova's guests that are active on this host
    :param client: of this host's agent
    :param tally: counts guests without statistics
    :param period_s: seconds between two statistics of a guest
    """

    def __init__(self, guests: collections.abc.Callable[
            [], collections.abc.Iterable[typing.Any]],
            client: local_client.LocalClient, tally: tallies.Tally,
            period_s: int) -> None:
        self._guests = guests
        self._client = client
        self._tally = tally
        self._old_s = max(_OLD_S, _OLD_PERIODS * period_s)
        self._silent: set[str] = set()
        self._unwanted_until = 0.0
        self._ended = threading.Event()

    def start(self) -> None:
        """Report until the process ends."""
        threading.Thread(target=self._run, daemon=True,
                         name='diffcache-page-caches').start()

    def _run(self) -> None:
        while not self._ended.wait(INTERVAL_S):
            try:
                self.look()
            except Exception:
                LOG.exception('Could not look at the page caches of guests,'
                              ' will retry')

    def look(self) -> None:
        """Report the page caches of all guests once."""
        if time.monotonic() < self._unwanted_until:
            return
        seen = set()
        for guest in self._guests():
            seen.add(guest.uuid)
            try:
                self._report(guest)
            except libvirt.libvirtError as error:
                # It may have ended meanwhile.
                LOG.debug('Could not read the memory statistics of server %s:'
                          ' %s', guest.uuid, error)
            except exceptions.NotFound as error:
                LOG.info('The agent does not follow page caches of guests; it'
                         ' may be older than nova-compute: %s', error)
                self._unwanted_until = time.monotonic() + RETRY_S
                return
            except exceptions.PermanentError as error:
                LOG.warning('Could not report the page cache of server %s: %s',
                            guest.uuid, error)
            except exceptions.DiffCacheError as error:
                LOG.warning('Could not report the page caches of guests, will'
                            ' retry in %g s: %s', INTERVAL_S, error)
                return
        self._silent &= seen

    def _report(self, guest: typing.Any) -> None:
        volumes = volume_nodes.volume_ids(guest._domain.XMLDesc(0))
        if not volumes:
            return
        size = page_cache(guest._domain.memoryStats(),
                          time.time() - self._old_s)
        if size is not None:
            self._silent.discard(guest.uuid)
            self._client.report_page_cache(guest.uuid, size, volumes)
        elif guest.uuid not in self._silent:
            self._silent.add(guest.uuid)
            self._tally.without_statistics()
            LOG.info('The page cache of server %s is unknown: it needs a'
                     ' driver of the balloon, and nova.conf [libvirt]'
                     ' mem_stats_period_seconds above 0', guest.uuid)


def page_cache(statistics: dict[str, int], since: float) -> int | None:
    """Return the bytes of a guest's page cache.

    :param statistics: libvirt's, in KiB; a guest says them
    :param since: seconds since 1970; older statistics do not count
    :returns: None if the guest does not say it, or not any more
    """
    size = statistics.get('disk_caches')
    updated = statistics.get('last_update', 0)
    if size is None or size < 0 or updated < since:
        return None
    return min(size, statistics.get('actual', size)) * _KIB
