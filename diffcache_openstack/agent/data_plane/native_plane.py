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
"""One host's data plane: the native module in the agent's process.

The agent decides what a host shall hold and where it is best read from; the
data plane moves bytes. The agent hands over an :class:`.orders.Order` with a
ranked list of sources; the data plane tries them in that order, claims what
crosses the WAN, waits behind other holders, takes over from those that do not
deliver, and counts. All that is handed over is plain data; only progress and
cancellation come while an order is executed.
"""

import collections.abc
import contextlib
import logging
import pathlib
import typing

from diffcache_openstack import _native
from diffcache_openstack.agent.data_plane import documents
from diffcache_openstack.agent.data_plane import orders
from diffcache_openstack.blocks import native_errors
from diffcache_openstack.sites import views

LOG = logging.getLogger(__name__)


class DataPlane:
    """Serves objects to peers, and executes orders; listens from the start on.

    All methods may be called from any thread. Another data plane, such as one
    of a test that moves nothing, has the same methods.

    :param root: directory of the objects that are served
    :param name: this host, as it appears in claims
    :param listen: address and port
    :param key: the site's secret; None only on loopback
    :param options: of the native module's ``DataPlane``
    :raises InvalidInput: an option cannot be used
    """

    def __init__(self, root: pathlib.Path, name: str, listen: str,
                 key: bytes | None, **options: typing.Any) -> None:
        self.name = name
        with native_errors.translated():
            self._native = _native.DataPlane(str(root), name, listen, key,
                                             **options)

    @property
    def url(self) -> str:
        """Base URL at which peers reach this host."""
        return self._native.url

    def set_site(self, hosts: collections.abc.Iterable[orders.Host]
                 ) -> None:
        """Replace the hosts that may coordinate claims.

        Only hosts of the site that are alive, and not the repository. This
        host is always one of them.
        """
        self._native.set_site(documents.dump_hosts(hosts))

    def set_repositories(self, hosts: collections.abc.Iterable[orders.Host]
                         ) -> None:
        """Replace the repositories that may be read from."""
        self._native.set_repositories(documents.dump_hosts(hosts))

    def repositories(self) -> list[dict[str, typing.Any]]:
        """Return what is known of each repository.

        :returns: ``name``, completed ``transfers``, ``failures`` and
            ``bytes`` since the start; ``mbps`` is the measured rate, None
            until enough came; ``down_s`` and ``reason`` are None unless it
            is not used until it answers again
        """
        return self._native.repositories()

    def peer_mbps(self) -> float | None:
        """Return the measured rate from hosts of the site, in Mbit/s.

        :returns: None until enough came
        """
        return self._native.peer_mbps()

    def deliver(self, order: orders.Order, handle: _native.Handle,
                progress: orders.Progress | None = None
                ) -> orders.Delivery:
        """Get an object from the first source that delivers it.

        A host that does not answer, or refuses, is not tried again within
        the order. A repository that does not answer is passed over by all
        orders until it answers again, unless it is the only source left.
        An error that no other source would mend (a full disk, a
        damaged manifest), and one that may come from a file of this host (a
        build that is damaged), end the list early: it is the last failure.

        :returns: what happened; if no source delivered, dest is untouched
        :raises Cancelled: by the handle, or the order is a fill of an object
            that arrives by other means; what came is kept and resumed
        :raises InvalidInput: the order makes no sense
        """
        with native_errors.translated():
            text = self._native.deliver(
                documents.dump_order(order), handle, progress)
        delivery, warnings = documents.load_delivery(text, order.key)
        _log(warnings)
        return delivery

    def new_handle(self) -> _native.Handle:
        """Return a handle for orders."""
        return _native.Handle()

    @contextlib.contextmanager
    def expecting(self, key: views.Key) -> collections.abc.Iterator[None]:
        """Announce that an object arrives here by other means meanwhile.

        Fills of the site leave it alone. Requests do not wait for it.

        :raises DiffCacheError: it could not be announced
        """
        with native_errors.translated():
            expectation = self._native.expect(*key)
        _log(expectation.warnings)
        try:
            yield
        finally:
            expectation.close()

    def offer(self, key: views.Key) -> None:
        """Make the site read an object here until the claim expires.

        The site map will list it later, and only if it is held.
        """
        with native_errors.translated():
            _log(self._native.offer(*key))

    def announce(self, key: views.Key, stage: orders.Stage
                 ) -> _native.Announcement:
        """Announce to the site how far this host is with an object.

        :raises DiffCacheError: that is not possible now
        """
        with native_errors.translated():
            announced = self._native.announce(*key, stage)
        _log(announced.warnings)
        return announced

    def is_announced(self, key: views.Key, stage: orders.Stage) -> bool:
        """Return whether a host of the site, or this one, has announced it.

        :raises DiffCacheError: a host gave no sensible answer
        """
        with native_errors.translated():
            found, warnings = self._native.announced(*key, stage)
        _log(warnings)
        return found

    def lend(self, key: views.Key, path: pathlib.Path,
             seconds: float) -> None:
        """Let peers read a file for a while, or until it changes."""
        with native_errors.translated():
            self._native.lend(*key, str(path), float(seconds))

    def end_lending(self, key: views.Key) -> None:
        """Stop lending a file to peers."""
        with native_errors.translated():
            self._native.end_lending(*key)

    def stop_lending(self) -> bool:
        """End all lending of delivered files, to free space.

        :returns: whether anything was lent
        """
        return self._native.stop_lending()

    def borrow(self, key: views.Key, path: pathlib.Path,
               manifest: pathlib.Path) -> None:
        """Let peers read an image from a file of another service.

        Each leaf is verified before it is sent: the file's owner may change
        it. The first one that is wrong ends it. The file may be removed.

        :raises DiffCacheError: it cannot be opened, or has another size
        """
        with native_errors.translated():
            self._native.borrow(*key, str(path), str(manifest))

    def give_back(self, key: views.Key) -> None:
        """Serve a borrowed file no longer."""
        with native_errors.translated():
            self._native.give_back(*key)

    def attach(self, key: views.Key, folder: pathlib.Path) -> None:
        """Let peers read an image that diffcached serves while it arrives.

        What is absent is fetched for them, unless they want only what is
        here. What this host holds is read before it.

        :param folder: of the image, in the state of diffcached
        :raises DiffCacheError: it cannot be opened
        """
        with native_errors.translated():
            self._native.attach(*key, str(folder))

    def detach(self, key: views.Key) -> None:
        """Serve an image of diffcached no longer."""
        with native_errors.translated():
            self._native.detach(*key)

    def take_changed(self) -> list[views.Key]:
        """Return borrowed objects that were found changed since the last call.

        They are not served any more.
        """
        return [views.Key(*found) for found in self._native.take_changed()]

    def unreachable(self) -> frozenset[str]:
        """Return the names of hosts that did not answer lately.

        A repository is one of them until it answers again.
        """
        return frozenset(self._native.unreachable())

    def clear_unreachable(self) -> None:
        """Forget which hosts of the site did not answer."""
        self._native.clear_unreachable()

    def left_alone(self) -> dict[str, float]:
        """Return the hosts that nothing is read from because of an offence.

        A repository can be one of them; it is still used if there is no
        other.

        :returns: the seconds left, by host
        """
        return dict(self._native.left_alone())

    def accuse(self, host: orders.Host, reason: str) -> None:
        """Note that a host sent damaged data, which the caller found out.

        What deliveries find out by themselves is noted already. A host that
        does it twice is left alone for a while.
        """
        self._native.accuse(host.url, reason)

    def set_min_rates(self, site: float, wan: float) -> None:
        """Change how slowly peers may send before another source is used.

        :param site: bytes/s, of what a host of the site holds
        :param wan: bytes/s, over the WAN and of what still arrives elsewhere
        """
        self._native.set_min_rates(site, wan)

    def readers(self, kind: str, object_id: str) -> int:
        """Return the number of open transfers of an object to peers."""
        return self._native.readers(kind, object_id)

    def stats(self) -> dict[str, typing.Any]:
        """Return counters since the start."""
        return self._native.stats()

    def set_rate(self, rate: float | None) -> None:
        """Change the limit of what this host sends, bytes/s."""
        with native_errors.translated():
            self._native.set_rate(rate)

    def set_keys(self, keys: orders.Keys) -> None:
        """Replace the keys; a host without a key stays without.

        :raises InvalidInput: a key cannot be used; the old ones still are
        """
        with native_errors.translated():
            self._native.set_keys(*keys.signing, list(keys.accepted))

    def reload_tls(self) -> None:
        """Read certificates and key again.

        :raises InvalidInput: they cannot be used; the old ones still are
        """
        with native_errors.translated():
            self._native.reload_tls()

    def take_complaints(self) -> list[tuple[str, str, int]]:
        """Return problems with connections and hosts since the last call.

        :returns: address or host, reason and count of each
        """
        return self._native.take_complaints()

    def take_served(self, quiet: float) -> list[orders.PeerRead]:
        """Return what peers read for traces, since the last call.

        Nothing where the data plane was opened without ``traces``.

        :param quiet: seconds in which nothing was added to what is returned
        """
        return [documents.load_served(found)
                for found in self._native.take_served(quiet)]

    def close(self) -> None:
        """Stop serving, and end running orders with Cancelled."""
        self._native.close()


def _log(warnings: collections.abc.Iterable[str]) -> None:
    for warning in warnings:
        LOG.warning('%s', warning)
