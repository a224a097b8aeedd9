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
"""What a host's agent needs of an SSD cache, whatever serves it."""

import abc
import collections.abc
import dataclasses
import typing

from diffcache_openstack import _native
from diffcache_openstack.cached_volumes import hot_blocks
from diffcache_openstack.cached_volumes import rates as volume_rates
from diffcache_openstack.common import exceptions


class VolumeRefused(exceptions.Conflict):
    """The cache does not take a volume, or a change; the message says why."""


@dataclasses.dataclass(frozen=True)
class Attachment:
    """A volume to attach.

    :ivar origin: path of its block device or file
    :ivar mode: what the cache does with reads and writes
    :ivar limit: the most blocks that it has
    :ivar sequential: bytes in sequence after which requests are not cached;
        0 for never
    :ivar admission: a block is cached at this reference to it; none for what
        the cache has
    :ivar rates: what it may do per second, for all its clients
    """

    name: str
    origin: str
    mode: str
    limit: int
    sequential: int = 0
    admission: int | None = None
    rates: volume_rates.Rates = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Traffic:
    """What was requested of a volume since the cache was started.

    :ivar reads: blocks that were read
    :ivar writes: blocks that were written
    :ivar hits: references to cached blocks
    :ivar misses: references to other blocks
    :ivar evictions: blocks that left the cache for others
    :ivar bypassed: blocks that the mode or a sequence kept out of it
    :ivar ssd_bytes_written: to the cache's device, without its metadata
    :ivar latency_us: ``hit`` and ``miss`` of reads; of each, microseconds
        under ``p50`` and ``p99``
    """

    reads: int = 0
    writes: int = 0
    hits: int = 0
    misses: int = 0
    evictions: int = 0
    bypassed: int = 0
    ssd_bytes_written: int = 0
    latency_us: collections.abc.Mapping[
        str, collections.abc.Mapping[str, float]] = dataclasses.field(
            default_factory=dict)


@dataclasses.dataclass(frozen=True)
class State:
    """A volume that is attached.

    :ivar export: name under which clients find it; the same until it is
        detached, also over restarts of the cache
    :ivar limit: the most blocks that it has
    :ivar blocks: blocks that it has
    :ivar dirty: blocks that its origin lacks
    :ivar state: ``ok``, or ``pass-through`` without the cache's device;
        ``failed`` if its clients get errors;
        :data:`~diffcache_openstack.cached_volumes.choices.HELD`
    :ivar sequential: bytes in sequence after which requests are not cached
    :ivar admission: at which reference a block is cached
    :ivar losses: what its origin lost, for which flushes fail: offsets and
        lengths in bytes
    :ivar vhost: path of the socket for its guest, if it is served by
        vhost-user, too
    :ivar rates: what it may do per second
    """

    export: str
    mode: str
    limit: int
    blocks: int
    dirty: int = 0
    state: str = 'ok'
    traffic: Traffic = Traffic()
    sequential: int = 0
    admission: int = 1
    losses: tuple[tuple[int, int], ...] = ()
    vhost: str | None = None
    rates: volume_rates.Rates = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Requests:
    """Reads of an epoch that were answered from the cache alone, or others.

    :ivar count: their number
    :ivar mean_us: their mean latency in microseconds; 0 without any
    """

    count: int = 0
    mean_us: float = 0.0


@dataclasses.dataclass(frozen=True)
class Epoch:
    """What was requested of a volume in an epoch.

    :ivar seconds: its length
    :ivar curve: hits of its references for all sizes; references that would
        not be cached are left out
    :ivar sampled: the part of the blocks that the curve is of
    :ivar hit: reads that were answered from the cache alone
    :ivar miss: other reads
    """

    seconds: float
    curve: _native.HitCurve
    sampled: float = 1.0
    hit: Requests = Requests()
    miss: Requests = Requests()


class Warmed(typing.NamedTuple):
    """What was cached unrequested.

    :ivar blocks: that were not cached before
    :ivar room: whether there is room for more of the volume
    """

    blocks: int
    room: bool


class Engine(abc.ABC):
    """An SSD cache of this host, which lives without the agent.

    All methods may be called from any thread. They raise a
    :class:`~diffcache_openstack.common.exceptions.RetryableError` if the
    cache cannot be reached; it may have done what was asked for then. They
    raise a :class:`~diffcache_openstack.common.exceptions.PermanentError` if
    it answers in a way that is unknown.

    :cvar socket: path of the socket where clients find the exports
    """

    socket: str

    @abc.abstractmethod
    def capacity(self) -> int:
        """Return the blocks of the cache; 0 if its device failed."""

    @abc.abstractmethod
    def volumes(self) -> collections.abc.Mapping[str, State]:
        """Return what is attached, by name."""

    @abc.abstractmethod
    def attach(self, attachment: Attachment) -> State:
        """Attach a volume, without cached blocks.

        If it is attached with the same origin, it gets the mode and the
        limit, and keeps its export and its blocks.

        :raises VolumeRefused: it is attached with another origin, the limits
            exceed the capacity, there is no such mode, or the origin cannot
            be opened
        """

    @abc.abstractmethod
    def detach(self, name: str) -> None:
        """Make a volume's writes durable, and forget it and its export.

        Without effect for one that is not attached.

        :raises VolumeRefused: its origin cannot be written
        """

    @abc.abstractmethod
    def open_vhost(self, name: str) -> str:
        """Serve a volume by vhost-user, too, until it is detached.

        :returns: path of the socket, to which its guest can connect at once
        :raises VolumeRefused: it is not attached, or the cache cannot
        """

    @abc.abstractmethod
    def recover(self, name: str, origin: str) -> None:
        """Write a held volume's dirty blocks back; it is to be detached then.

        :param origin: where the volume is now
        :raises VolumeRefused: it is not held, or its origin cannot be written
        """

    @abc.abstractmethod
    def discard(self, name: str) -> None:
        """Lose a held volume's dirty blocks, and detach it.

        :raises VolumeRefused: it is not held
        """

    @abc.abstractmethod
    def set_limit(self, name: str, limit: int) -> None:
        """Change the most blocks that a volume has.

        :raises VolumeRefused: it is not attached, or the limits exceed the
            capacity
        """

    @abc.abstractmethod
    def set_mode(self, name: str, mode: str) -> None:
        """Change what the cache does with a volume's reads and writes.

        :raises VolumeRefused: it is not attached, or there is no such mode
        """

    @abc.abstractmethod
    def queue(self, name: str, seconds: float) -> None:
        """Have a volume's writes wait, for some seconds at most.

        Those that have begun are completed; reads and flushes do not wait.

        :raises VolumeRefused: it is not attached
        """

    @abc.abstractmethod
    def end_queue(self, name: str) -> bool:
        """Have a volume's writes go on.

        :returns: whether they have waited until now
        :raises VolumeRefused: it is not attached
        """

    @abc.abstractmethod
    def set_filters(self, name: str, sequential: int, admission: int | None
                    ) -> None:
        """Change which requests to a volume are cached.

        :param sequential: as of :class:`Attachment`
        :param admission: as of :class:`Attachment`
        :raises VolumeRefused: it is not attached
        """

    @abc.abstractmethod
    def set_rates(self, name: str, rates: volume_rates.Rates) -> None:
        """Change what a volume may do per second.

        :param rates: all of them
        :raises VolumeRefused: it is not attached
        """

    @abc.abstractmethod
    def resize(self, name: str) -> None:
        """Give a volume the size that its origin has now.

        :raises VolumeRefused: it is not attached, or became smaller
        """

    @abc.abstractmethod
    def disconnect(self, name: str) -> None:
        """End the connections of a volume's clients.

        They see the size of the volume when they connect again.

        :raises VolumeRefused: it is not attached
        """

    @abc.abstractmethod
    def end_epoch(self) -> collections.abc.Mapping[str, Epoch]:
        """End an epoch, and return what was requested in it, by volume.

        A cache that follows no requests returns nothing: sizes follow weights
        then.
        """

    @abc.abstractmethod
    def hot(self, name: str, most: int) -> list[hot_blocks.Run]:
        """Return the blocks of a volume that would stay the longest.

        :param most: blocks
        :returns: in ascending order
        :raises VolumeRefused: it is not attached
        """

    @abc.abstractmethod
    def warm(self, name: str, runs: collections.abc.Sequence[hot_blocks.Run]
             ) -> Warmed:
        """Cache blocks of a volume, and evict none for them.

        :raises VolumeRefused: it is not attached, or its origin cannot be
            read
        """

    @abc.abstractmethod
    def flush(self, name: str) -> None:
        """Write a volume's dirty blocks back, and make its writes durable.

        :raises VolumeRefused: it is not attached, or its origin cannot be
            written
        """

    @abc.abstractmethod
    def accept_loss(self, name: str) -> None:
        """Have a volume's flushes succeed although its origin lost blocks.

        :raises VolumeRefused: it is not attached
        """

    @abc.abstractmethod
    def end_guest(self, name: str) -> None:
        """Forget what a volume's origin lost, as its client has ended.

        :raises VolumeRefused: it is not attached
        """

    @abc.abstractmethod
    def invalidate(self, name: str) -> None:
        """Forget what is cached of a volume; dirty blocks are written back.

        :raises VolumeRefused: as of :meth:`flush`
        """
