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
"""Orders to the data plane, from what the site map says.

The data plane knows hosts by name and URL; which of them are alive, and
which are repositories behind the WAN, comes from the site map.
"""

import collections.abc
import contextlib
import dataclasses
import pathlib
import threading

from diffcache_openstack import _native
from diffcache_openstack.agent.data_plane import native_plane
from diffcache_openstack.agent.data_plane import orders
from diffcache_openstack.agent.images.limits import throttles
from diffcache_openstack.common import exceptions
from diffcache_openstack.common.telemetry import tracing
from diffcache_openstack.sites import routes
from diffcache_openstack.sites import views

Part = routes.Part | pathlib.Path

_BYTES_PER_MBIT = 125_000
# Shares of a link's rate below which a transfer is too slow. A WAN is shared
# by many hosts, and its rate in the site map may be an estimate.
_PEER_SHARE = 0.01
_WAN_SHARE = 0.001


@dataclasses.dataclass(frozen=True)
class Moved:
    """The cost of bringing an object.

    :param apply_seconds: applying a patch to local files; 0 if that was not
        done or not timed by itself
    """

    wan_bytes: int = 0
    lan_bytes: int = 0
    apply_seconds: float = 0.0

    def __add__(self, other: 'Moved') -> 'Moved':
        return Moved(self.wan_bytes + other.wan_bytes,
                     self.lan_bytes + other.lan_bytes,
                     self.apply_seconds + other.apply_seconds)


@dataclasses.dataclass(frozen=True)
class TransferTarget:
    """An object and the file that it is written to.

    :param manifest: to verify images with; None for other kinds
    :param in_place: whether dest is where the object is served from
    :param durable: whether the file must survive a power cut; None as the
        throttle says
    """

    key: views.Key
    dest: pathlib.Path
    manifest: pathlib.Path | None = None
    in_place: bool = False
    durable: bool | None = None


class Transfers:
    """Orders objects from this host's data plane.

    :ivar plane: the data plane, for what needs no site map
    :param current_view: gives the site map
    :param lend_seconds: how long peers may read what arrived by other means
    :param min_rate: bytes/s below which a peer's transfer is given up; less
        on links that the site map says to be slow
    """

    def __init__(self, plane: native_plane.DataPlane,
                 current_view: collections.abc.Callable[
                     [], views.SiteView], lend_seconds: float,
                 min_rate: float) -> None:
        self.plane = plane
        self._view = current_view
        self._lend_seconds = lend_seconds
        self._min_rate = min_rate
        self._lock = threading.Lock()
        self._known: views.SiteView | None = None

    @property
    def host(self) -> str:
        """This host's name."""
        return self.plane.name

    @property
    def lends(self) -> bool:
        """Whether peers may read for a while what arrived."""
        return self._lend_seconds > 0

    def is_repository(self, host: str) -> bool:
        """Return whether a host is a repository."""
        return host in self._view().repositories

    def is_reachable(self, host: str) -> bool:
        """Return whether the site map has an address for a host."""
        found = self._view().host(host)
        return found is not None and bool(found.url)

    def source(self, host: str) -> orders.HostSource:
        """Return a host as a source of an order.

        :raises PeerUnavailable: the site map has no address for it
        """
        link = orders.Link.WAN if self.is_repository(host) \
            else orders.Link.LAN
        return orders.HostSource(self._address(host), link)

    def part(self, part: Part) -> pathlib.Path | orders.RemotePart:
        """Return a part of a build as the data plane reads it.

        :raises PeerUnavailable: the site map has no address for its host
        """
        if isinstance(part, pathlib.Path):
            return part
        return orders.RemotePart(self._address(part.host), part.key,
                                 self._view().max_size_of(part.key))

    def deliver(self, target: TransferTarget,
                sources: collections.abc.Iterable[orders.Source],
                throttle: throttles.Throttle) -> orders.Delivery:
        """Fetch an object from the first source that delivers it.

        See :meth:`.native_plane.DataPlane.deliver`.
        """
        self._update_hosts()
        durable = throttle.durable if target.durable is None \
            else target.durable
        ranked = tuple(sources)
        with tracing.span('fetch', object=target.key) as span:
            order = orders.Order(
                target.key, target.dest, ranked, target.manifest,
                throttle.job_class, throttle.rate, durable, target.in_place,
                self._view().max_size_of(target.key), tracing.ticket())
            with throttle.pulse.transferring():
                delivery = self.plane.deliver(order, throttle.handle,
                                              throttle.note)
            span.note(source=_describe(ranked, delivery),
                      wan_bytes=delivery.wan_bytes,
                      lan_bytes=delivery.lan_bytes,
                      failures=len(delivery.failures))
        return delivery

    def expecting(self, key: views.Key
                  ) -> contextlib.AbstractContextManager[None]:
        """See :meth:`.native_plane.DataPlane.expecting`."""
        self._update_hosts()
        return self.plane.expecting(key)

    def announce(self, key: views.Key, stage: orders.Stage
                 ) -> _native.Announcement:
        """See :meth:`.native_plane.DataPlane.announce`."""
        self._update_hosts()
        return self.plane.announce(key, stage)

    def is_announced(self, key: views.Key, stage: orders.Stage) -> bool:
        """See :meth:`.native_plane.DataPlane.is_announced`."""
        self._update_hosts()
        return self.plane.is_announced(key, stage)

    def lend(self, key: views.Key, path: pathlib.Path) -> None:
        """Let peers read a file for a while, or until it changes."""
        self.plane.lend(key, path, self._lend_seconds)

    def offer(self, key: views.Key) -> None:
        """See :meth:`.native_plane.DataPlane.offer`."""
        self._update_hosts()
        self.plane.offer(key)

    def avoided(self) -> frozenset[str]:
        """Return the hosts that do not answer, or are left alone.

        Repositories are left alone only as long as there is another one.
        """
        unreachable = self.plane.unreachable()
        avoided = unreachable | self.plane.left_alone().keys()
        repositories = self._view().repositories.keys()
        if avoided >= repositories:
            return avoided - (repositories - unreachable)
        return avoided

    def accuse(self, host: str, reason: str) -> None:
        """See :meth:`.native_plane.DataPlane.accuse`."""
        self.plane.accuse(self._address(host), reason)

    def _update_hosts(self) -> None:
        """Give the data plane the hosts of the newest site map."""
        view = self._view()
        with self._lock:
            if view is not self._known:
                self.plane.set_site(
                    orders.Host(host.name, host.url)
                    for host in view.compute_hosts()
                    if host.alive and host.url)
                self.plane.set_repositories(
                    orders.Host(host.name, host.url)
                    for host in view.repositories.values() if host.url)
                self.plane.set_min_rates(*min_rates(
                    view.links.of(self.host), self._min_rate,
                    view.repositories))
                self._known = view

    def _address(self, host: str) -> orders.Host:
        found = self._view().host(host)
        if found is None or not found.url:
            raise exceptions.PeerUnavailable(
                f'The site map has no address for host {host}; another '
                f'source is tried.')
        return orders.Host(found.name, found.url)


def _describe(sources: tuple[orders.Source, ...],
              delivery: orders.Delivery) -> str:
    """Return the source that delivered, for a trace."""
    if delivery.source is None:
        return 'none'
    source = sources[delivery.source]
    if isinstance(source, orders.HostSource):
        way = 'repository' if source.link is orders.Link.WAN else 'peer'
        return f'{way}:{source.host.name}'
    return 'build:' + '+'.join(
        part.host.name if isinstance(part, orders.RemotePart) else 'own'
        for part in (source.base, source.patch))


def min_rates(links: views.Links, min_rate: float,
              repositories: collections.abc.Iterable[str] = ()
              ) -> tuple[float, float]:
    """Return the slowest rates within the site and over the WAN, bytes/s.

    They follow the links: several transfers share a link, and one over a
    thin WAN must not be given up because the WAN is thin.

    :param links: of one host
    :param min_rate: upper limit of both
    :param repositories: names of those that the host reads from, of which the
        slowest counts
    """
    wan = min(map(links.from_repository, repositories), default=links.repo)
    return (min(min_rate, links.peer * _BYTES_PER_MBIT * _PEER_SHARE),
            min(min_rate, wan * _BYTES_PER_MBIT * _WAN_SHARE))
