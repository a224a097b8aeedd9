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
"""Orders to the data plane, and what becomes of them: plain data."""

import dataclasses
import enum
import pathlib
import typing

from diffcache_openstack.common import exceptions
from diffcache_openstack.sites import views


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
class KnownFile:
    """An image's file of this host that has its seal.

    What a target shares with it is not read where the filesystem shares
    blocks.

    :param manifest: file of its manifest
    """

    path: pathlib.Path
    manifest: pathlib.Path


# Where a part of a build is read; what is known is a base.
Place = pathlib.Path | KnownFile | RemotePart


@dataclasses.dataclass(frozen=True)
class BuildSource:
    """Apply a patch to a base, each a file of this host or a remote part."""

    base: Place
    patch: Place


Source = HostSource | BuildSource


@dataclasses.dataclass(frozen=True)
class Order:
    """An object to deliver.

    :param dest: the file to write, by rename once it is whole and verified
    :param sources: ways to get the object, best first
    :param manifest: the file to verify an image with; None for other kinds
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
class PeerRead:
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
