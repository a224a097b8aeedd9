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
"""A data plane in the agent's own process: the native module."""

import collections.abc
import contextlib
import logging
import pathlib
import typing

from diffcache_openstack import _native
from diffcache_openstack.agent.data_plane import documents
from diffcache_openstack.agent.data_plane import interface
from diffcache_openstack.blocks import native
from diffcache_openstack.sites import view as views

LOG = logging.getLogger(__name__)


class InProcessHandle(interface.Handle):
    """See :class:`.interface.Handle`."""

    def __init__(self) -> None:
        self.native = _native.Handle()

    def cancel(self) -> None:
        """See :meth:`.interface.Handle.cancel`."""
        self.native.cancel()

    def promote(self) -> None:
        """See :meth:`.interface.Handle.promote`."""
        self.native.promote()


class InProcessAnnouncement(interface.Announcement):
    """See :class:`.interface.Announcement`."""

    def __init__(self, announced: _native.Announcement) -> None:
        self._announced = announced

    def close(self) -> None:
        """See :meth:`.interface.Announcement.close`."""
        self._announced.close()

    def leave(self) -> None:
        """See :meth:`.interface.Announcement.leave`."""
        self._announced.leave()


class InProcessDataPlane(interface.DataPlane):
    """See :class:`.interface.DataPlane`; listens from construction on.

    :param root: directory of the objects that are served
    :param name: this host
    :param listen: address and port
    :param key: the site's secret; None only on loopback
    :param options: of the native module's ``DataPlane``
    :raises InvalidInput: an option cannot be used
    """

    def __init__(self, root: pathlib.Path, name: str, listen: str,
                 key: bytes | None, **options: typing.Any) -> None:
        self.name = name
        with native.translated():
            self._native = _native.DataPlane(str(root), name, listen, key,
                                             **options)

    @property
    def url(self) -> str:
        """See :attr:`.interface.DataPlane.url`."""
        return self._native.url

    def set_site(self, hosts: collections.abc.Iterable[interface.Host]
                 ) -> None:
        """See :meth:`.interface.DataPlane.set_site`."""
        self._native.set_site(documents.dump_hosts(hosts))

    def set_repositories(self, hosts: collections.abc.Iterable[interface.Host]
                         ) -> None:
        """See :meth:`.interface.DataPlane.set_repositories`."""
        self._native.set_repositories(documents.dump_hosts(hosts))

    def repositories(self) -> list[dict[str, typing.Any]]:
        """See :meth:`.interface.DataPlane.repositories`."""
        return self._native.repositories()

    def peer_mbps(self) -> float | None:
        """See :meth:`.interface.DataPlane.peer_mbps`."""
        return self._native.peer_mbps()

    def deliver(self, order: interface.Order, handle: interface.Handle,
                progress: interface.Progress | None = None
                ) -> interface.Delivery:
        """See :meth:`.interface.DataPlane.deliver`."""
        assert isinstance(handle, InProcessHandle)
        with native.translated():
            text = self._native.deliver(
                documents.dump_order(order), handle.native, progress)
        delivery, warnings = documents.load_delivery(text, order.key)
        _log(warnings)
        return delivery

    def new_handle(self) -> InProcessHandle:
        """See :meth:`.interface.DataPlane.new_handle`."""
        return InProcessHandle()

    @contextlib.contextmanager
    def expecting(self, key: views.Key) -> collections.abc.Iterator[None]:
        """See :meth:`.interface.DataPlane.expecting`."""
        with native.translated():
            expectation = self._native.expect(*key)
        _log(expectation.warnings)
        try:
            yield
        finally:
            expectation.close()

    def offer(self, key: views.Key) -> None:
        """See :meth:`.interface.DataPlane.offer`."""
        with native.translated():
            _log(self._native.offer(*key))

    def announce(self, key: views.Key, stage: interface.Stage
                 ) -> InProcessAnnouncement:
        """See :meth:`.interface.DataPlane.announce`."""
        with native.translated():
            announced = self._native.announce(*key, stage)
        _log(announced.warnings)
        return InProcessAnnouncement(announced)

    def is_announced(self, key: views.Key, stage: interface.Stage) -> bool:
        """See :meth:`.interface.DataPlane.is_announced`."""
        with native.translated():
            found, warnings = self._native.announced(*key, stage)
        _log(warnings)
        return found

    def lend(self, key: views.Key, path: pathlib.Path,
             seconds: float) -> None:
        """See :meth:`.interface.DataPlane.lend`."""
        with native.translated():
            self._native.lend(*key, str(path), float(seconds))

    def end_lending(self, key: views.Key) -> None:
        """See :meth:`.interface.DataPlane.end_lending`."""
        with native.translated():
            self._native.end_lending(*key)

    def stop_lending(self) -> bool:
        """See :meth:`.interface.DataPlane.stop_lending`."""
        return self._native.stop_lending()

    def borrow(self, key: views.Key, path: pathlib.Path,
               manifest: pathlib.Path) -> None:
        """See :meth:`.interface.DataPlane.borrow`."""
        with native.translated():
            self._native.borrow(*key, str(path), str(manifest))

    def give_back(self, key: views.Key) -> None:
        """See :meth:`.interface.DataPlane.give_back`."""
        with native.translated():
            self._native.give_back(*key)

    def attach(self, key: views.Key, folder: pathlib.Path) -> None:
        """See :meth:`.interface.DataPlane.attach`."""
        with native.translated():
            self._native.attach(*key, str(folder))

    def detach(self, key: views.Key) -> None:
        """See :meth:`.interface.DataPlane.detach`."""
        with native.translated():
            self._native.detach(*key)

    def take_changed(self) -> list[views.Key]:
        """See :meth:`.interface.DataPlane.take_changed`."""
        return [views.Key(*found) for found in self._native.take_changed()]

    def unreachable(self) -> frozenset[str]:
        """See :meth:`.interface.DataPlane.unreachable`."""
        return frozenset(self._native.unreachable())

    def clear_unreachable(self) -> None:
        """See :meth:`.interface.DataPlane.clear_unreachable`."""
        self._native.clear_unreachable()

    def left_alone(self) -> dict[str, float]:
        """See :meth:`.interface.DataPlane.left_alone`."""
        return dict(self._native.left_alone())

    def accuse(self, host: interface.Host, reason: str) -> None:
        """See :meth:`.interface.DataPlane.accuse`."""
        self._native.accuse(host.url, reason)

    def set_min_rates(self, site: float, wan: float) -> None:
        """See :meth:`.interface.DataPlane.set_min_rates`."""
        self._native.set_min_rates(site, wan)

    def readers(self, kind: str, object_id: str) -> int:
        """See :meth:`.interface.DataPlane.readers`."""
        return self._native.readers(kind, object_id)

    def stats(self) -> dict[str, typing.Any]:
        """See :meth:`.interface.DataPlane.stats`."""
        return self._native.stats()

    def set_rate(self, rate: float | None) -> None:
        """See :meth:`.interface.DataPlane.set_rate`."""
        with native.translated():
            self._native.set_rate(rate)

    def set_keys(self, keys: interface.Keys) -> None:
        """See :meth:`.interface.DataPlane.set_keys`."""
        with native.translated():
            self._native.set_keys(*keys.signing, list(keys.accepted))

    def reload_tls(self) -> None:
        """See :meth:`.interface.DataPlane.reload_tls`."""
        with native.translated():
            self._native.reload_tls()

    def take_complaints(self) -> list[tuple[str, str, int]]:
        """See :meth:`.interface.DataPlane.take_complaints`."""
        return self._native.take_complaints()

    def take_served(self, quiet: float) -> list[interface.Served]:
        """See :meth:`.interface.DataPlane.take_served`."""
        return [documents.load_served(found)
                for found in self._native.take_served(quiet)]

    def close(self) -> None:
        """See :meth:`.interface.DataPlane.close`."""
        self._native.close()


def _log(warnings: collections.abc.Iterable[str]) -> None:
    for warning in warnings:
        LOG.warning('%s', warning)
