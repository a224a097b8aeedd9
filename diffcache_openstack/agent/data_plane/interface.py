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
"""The contract between an agent and its data plane.

The agent decides what a host shall hold and where it is best read from; the
data plane moves bytes. The agent hands over an :class:`Order` with a ranked
list of sources; the data plane tries them in that order, claims what crosses
the WAN, waits behind other holders, takes over from those that do not
deliver, and counts. Everything that crosses the seam is plain data, so that a
data plane may run in a process of its own; only progress and cancellation
come while an order is executed.
"""

import abc
import collections.abc
import contextlib
import dataclasses
import enum
import pathlib
import typing

from diffcache_openstack.common import exceptions
from diffcache_openstack.sites import view as views


class Link(enum.StrEnum):
    """The link that a source is read over."""

    LAN = 'lan'
    #: Used under a claim: one host of a site at a time moves an object.
    WAN = 'wan'


class JobClass(enum.StrEnum):
    """The kind of work that an object is delivered for."""

    #: A client that waits.
    REQUEST = 'request'
    #: The cache: gives way to requests of the same host on the WAN, and
    #: leaves alone what is expected by other means at the site.
    FILL = 'fill'


class Stage(enum.StrEnum):
    """How far a host is with bringing an object over the WAN."""

    #: It looks for a cheaper way first.
    CONSIDERED = 'considered'
    #: It brings the object, or has just done so and serves it for a while.
    COMING = 'coming'


@dataclasses.dataclass(frozen=True)
class Host:
    """A host of the site: its name, and the URL of its data plane."""

    name: str
    url: str


@dataclasses.dataclass(frozen=True)
class RemotePart:
    """A base or a patch that is read in place from a host of the site.

    :param max_size: the most bytes it can have; None if that is unknown
    """

    host: Host
    key: views.Key
    max_size: int | None = None


@dataclasses.dataclass(frozen=True)
class HostSource:
    """Read the object from a host."""

    host: Host
    link: Link


@dataclasses.dataclass(frozen=True)
class BuildSource:
    """Apply a patch to a base, each a file of this host or a remote part."""

    base: pathlib.Path | RemotePart
    patch: pathlib.Path | RemotePart


Source = HostSource | BuildSource


@dataclasses.dataclass(frozen=True)
class Order:
    """An object to deliver.

    :param dest: the file to write, by rename once it is whole and verified
    :param sources: ways to get the object, best first
    :param manifest: the file to verify a template with; None for other kinds
    :param rate: bytes/s, None for no limit
    :param durable: whether the file must survive a power cut
    :param in_place: whether dest is where the data plane serves the object
        from; what crossed the WAN to elsewhere is lent to peers for a while
    :param max_size: the most bytes that a patch, a manifest or a recipe can
        have by the catalogue; None if that is unknown
    :param trace: continues the trace that the order is part of, at the hosts
        that are read from; None without one
    """

    key: views.Key
    dest: pathlib.Path
    sources: tuple[Source, ...]
    manifest: pathlib.Path | None = None
    job_class: JobClass = JobClass.REQUEST
    rate: float | None = None
    durable: bool = True
    in_place: bool = False
    max_size: int | None = None
    trace: str | None = None


@dataclasses.dataclass(frozen=True)
class Keys:
    """Names and secrets of the keys that a host uses.

    :param signing: signs requests, and is accepted
    :param accepted: accepted besides, while a key is replaced
    """

    signing: tuple[str, bytes]
    accepted: tuple[tuple[str, bytes], ...] = ()


@dataclasses.dataclass(frozen=True)
class Failure:
    """A source that did not deliver.

    :param source: its position in the order's list
    :param host: name of the host to blame; None if it is not known
    """

    source: int
    host: str | None
    error: exceptions.DiffCacheError


@dataclasses.dataclass(frozen=True)
class Delivery:
    """The outcome of an order.

    :param source: position of the source that delivered; None if none did
    :param failures: sources that failed before, in order
    """

    source: int | None
    wan_bytes: int = 0
    lan_bytes: int = 0
    failures: tuple[Failure, ...] = ()


@dataclasses.dataclass(frozen=True)
class Served:
    """What a peer read of an object, in one step of a trace of its own.

    :param trace: as the peer sent it: not verified
    :param began: seconds since 1970, as is ``ended``
    :param requests: number of requests
    :param size: bytes of the object that they were for
    """

    trace: str
    key: views.Key
    began: float
    ended: float
    requests: int
    size: int


class Progress(typing.Protocol):
    """Receives progress of an order, a few times a second.

    It is also called before the WAN is used, and while a fill waits for it,
    with ``total`` 0.
    """

    def __call__(self, done: int, total: int, over_wan: bool) -> None:
        """Note the bytes done and the bytes in all of the transfer.

        :raises Exception: ends the order with this exception
        """


class Handle(abc.ABC):
    """Controls the orders that it was given to, from any thread."""

    @abc.abstractmethod
    def cancel(self) -> None:
        """End the orders, present and future; what has arrived is kept."""

    @abc.abstractmethod
    def promote(self) -> None:
        """Treat fills as requests from now on: no rate, no waiting."""


class Announcement(abc.ABC):
    """What a host has announced to its site."""

    @abc.abstractmethod
    def close(self) -> None:
        """Take it back, unless it was left."""

    @abc.abstractmethod
    def leave(self) -> None:
        """Let it expire, within the lifetime of a claim."""


class DataPlane(abc.ABC):
    """One host's data plane: its server and its transfers.

    All methods may be called from any thread.

    :ivar name: this host, as it appears in claims
    """

    name: str

    @property
    @abc.abstractmethod
    def url(self) -> str:
        """Base URL at which peers reach this host."""

    @abc.abstractmethod
    def set_site(self, hosts: collections.abc.Iterable[Host]) -> None:
        """Replace the hosts that may coordinate claims.

        Only hosts of the site that are alive, and not the repository. This
        host is always one of them.
        """

    @abc.abstractmethod
    def set_repositories(self, hosts: collections.abc.Iterable[Host]) -> None:
        """Replace the repositories that may be read from."""

    @abc.abstractmethod
    def repositories(self) -> list[dict[str, typing.Any]]:
        """Return what is known of each repository.

        :returns: ``name``, completed ``transfers``, ``failures`` and
            ``bytes`` since the start; ``mbps`` is the measured rate, None
            until enough came; ``down_s`` and ``reason`` are None unless it
            is not used until it answers again
        """

    @abc.abstractmethod
    def peer_mbps(self) -> float | None:
        """Return the measured rate from hosts of the site, in Mbit/s.

        :returns: None until enough came
        """

    @abc.abstractmethod
    def deliver(self, order: Order, handle: Handle,
                progress: Progress | None = None) -> Delivery:
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

    @abc.abstractmethod
    def new_handle(self) -> Handle:
        """Return a handle for orders."""

    @abc.abstractmethod
    def expecting(self, key: views.Key
                  ) -> contextlib.AbstractContextManager[None]:
        """Announce that an object arrives here by other means meanwhile.

        Fills of the site leave it alone. Requests do not wait for it.

        :raises DiffCacheError: it could not be announced
        """

    @abc.abstractmethod
    def offer(self, key: views.Key) -> None:
        """Make the site read an object here until the claim expires.

        The site map will list it later, and only if it is held.
        """

    @abc.abstractmethod
    def announce(self, key: views.Key, stage: Stage) -> Announcement:
        """Announce to the site how far this host is with an object.

        :raises DiffCacheError: that is not possible now
        """

    @abc.abstractmethod
    def is_announced(self, key: views.Key, stage: Stage) -> bool:
        """Return whether a host of the site, or this one, has announced it.

        :raises DiffCacheError: a host gave no sensible answer
        """

    @abc.abstractmethod
    def lend(self, key: views.Key, path: pathlib.Path,
             seconds: float) -> None:
        """Let peers read a file for a while, or until it changes."""

    @abc.abstractmethod
    def end_lending(self, key: views.Key) -> None:
        """Stop lending a file to peers."""

    @abc.abstractmethod
    def stop_lending(self) -> bool:
        """End all lending of delivered files, to free space.

        :returns: whether anything was lent
        """

    @abc.abstractmethod
    def borrow(self, key: views.Key, path: pathlib.Path,
               manifest: pathlib.Path) -> None:
        """Let peers read a template from a file of another service.

        Each leaf is verified before it is sent: the file's owner may change
        it. The first one that is wrong ends it. The file may be removed.

        :raises DiffCacheError: it cannot be opened, or has another size
        """

    @abc.abstractmethod
    def give_back(self, key: views.Key) -> None:
        """Serve a borrowed file no longer."""

    @abc.abstractmethod
    def attach(self, key: views.Key, folder: pathlib.Path) -> None:
        """Let peers read a template that diffcached serves while it arrives.

        What is absent is fetched for them, unless they want only what is
        here. What this host holds is read before it.

        :param folder: of the image, in the state of diffcached
        :raises DiffCacheError: it cannot be opened
        """

    @abc.abstractmethod
    def detach(self, key: views.Key) -> None:
        """Serve an image of diffcached no longer."""

    @abc.abstractmethod
    def take_changed(self) -> list[views.Key]:
        """Return borrowed objects that were found changed since the last call.

        They are not served any more.
        """

    @abc.abstractmethod
    def unreachable(self) -> frozenset[str]:
        """Return the names of hosts that did not answer lately.

        A repository is one of them until it answers again.
        """

    @abc.abstractmethod
    def clear_unreachable(self) -> None:
        """Forget which hosts of the site did not answer."""

    @abc.abstractmethod
    def left_alone(self) -> dict[str, float]:
        """Return the hosts that nothing is read from because of an offence.

        A repository can be one of them; it is still used if there is no
        other.

        :returns: the seconds left, by host
        """

    @abc.abstractmethod
    def accuse(self, host: Host, reason: str) -> None:
        """Note that a host sent damaged data, which the caller found out.

        What deliveries find out by themselves is noted already. A host that
        does it twice is left alone for a while.
        """

    @abc.abstractmethod
    def set_min_rates(self, site: float, wan: float) -> None:
        """Change how slowly peers may send before another source is used.

        :param site: bytes/s, of what a host of the site holds
        :param wan: bytes/s, over the WAN and of what still arrives elsewhere
        """

    @abc.abstractmethod
    def readers(self, kind: str, object_id: str) -> int:
        """Return the number of open transfers of an object to peers."""

    @abc.abstractmethod
    def stats(self) -> dict[str, typing.Any]:
        """Return counters since the start."""

    @abc.abstractmethod
    def set_rate(self, rate: float | None) -> None:
        """Change the limit of what this host sends, bytes/s."""

    @abc.abstractmethod
    def set_keys(self, keys: Keys) -> None:
        """Replace the keys; a host without a key stays without.

        :raises InvalidInput: a key cannot be used; the old ones still are
        """

    @abc.abstractmethod
    def reload_tls(self) -> None:
        """Read certificates and key again.

        :raises InvalidInput: they cannot be used; the old ones still are
        """

    @abc.abstractmethod
    def take_complaints(self) -> list[tuple[str, str, int]]:
        """Return problems with connections and hosts since the last call.

        :returns: address or host, reason and count of each
        """

    @abc.abstractmethod
    def take_served(self, quiet: float) -> list[Served]:
        """Return what peers read for traces, since the last call.

        Nothing where the data plane was opened without ``traces``.

        :param quiet: seconds in which nothing was added to what is returned
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Stop serving, and end running orders with Cancelled."""
