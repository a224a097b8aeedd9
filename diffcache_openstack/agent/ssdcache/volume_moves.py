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
"""Volumes that come from other hosts: how they were used there.

The host that a server is migrated to asks the one that runs it, as long as the
volume is attached there. When the server runs here, the volume gets its size
by the curve, and its hot blocks are read from its storage at a bounded rate.
What the other host says is checked: it may be wrong, and is no data.
"""

import collections
import collections.abc
import logging
import queue
import threading
import time
import typing

from diffcache_openstack import _native
from diffcache_openstack.cached_volumes import hot_blocks
from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack import objects
from diffcache_openstack.rpc import agent_volumes_api
from diffcache_openstack.ssdcache import engines

LOG = logging.getLogger(__name__)

BLOCK = 4096
# Of one command to the cache: 1 MiB, short beside what guests wait for.
_PART = 256
# Of one epoch elsewhere; more are no host's.
_MOST_REFERENCES = 1 << 40
# Volumes of servers that are being migrated to this host at the same time.
_MOST_EXPECTED = 64

RECEIVED, FAILED = 'received', 'failed'
OUTCOMES = RECEIVED, FAILED


class RemoteUse(typing.NamedTuple):
    """How a volume was used on another host.

    :ivar epoch: what was requested of it in the last epoch, if one ended
    :ivar hot: the blocks that would have stayed in the cache the longest
    """

    epoch: engines.Epoch | None
    hot: list[hot_blocks.Run]


class Moves:
    """Learns how volumes were used elsewhere, and caches their hot blocks.

    :param engine: the cache
    :param agents: RPC client of other hosts
    :param context: of the calls
    :param rate: bytes of volumes to read each second; 0 for none
    """

    def __init__(self, engine: engines.Engine,
                 agents: agent_volumes_api.AgentVolumesAPI,
                 context: contexts.RequestContext, rate: int) -> None:
        self._engine = engine
        self._agents = agents
        self._context = context
        self._rate = rate
        self._lock = threading.Lock()
        self._expected: dict[str, RemoteUse] = {}
        self._counts: collections.Counter[str] = collections.Counter()
        self._warmed = 0
        self._wanted: queue.SimpleQueue[tuple[str, list[hot_blocks.Run]] | None
                                        ] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True,
                                        name='ssd-cache-warming')

    def start(self) -> None:
        """Start the thread that reads hot blocks."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the blocks that are being read."""
        self._stopped.set()
        self._wanted.put(None)
        self._thread.join()

    def counts(self) -> dict[str, int]:
        """Return for how many volumes other hosts answered, or did not."""
        with self._lock:
            return {outcome: self._counts[outcome] for outcome in OUTCOMES}

    @property
    def warmed(self) -> int:
        """Blocks that were cached before they were requested."""
        return self._warmed

    def status(self) -> dict[str, int]:
        """Return :meth:`counts`, and ``warmed`` blocks."""
        return {**self.counts(), 'warmed': self.warmed}

    def expect(self, name: str, host: str) -> None:
        """Learn how a volume is used on the host that it comes from.

        Without an answer it begins as a new one.
        """
        try:
            found = _checked(self._agents.volume_use(self._context, host,
                                                     name))
        except exceptions.DiffCacheError as error:
            self._count(FAILED)
            LOG.warning('Volume %s will begin with an empty SSD cache: %s did'
                        ' not say how it is used there: %s', name, host,
                        error)
            return
        self._count(RECEIVED)
        with self._lock:
            self._expected.pop(name, None)
            self._expected[name] = found
            while len(self._expected) > _MOST_EXPECTED:
                del self._expected[next(iter(self._expected))]

    def take(self, name: str) -> RemoteUse | None:
        """Return how a volume was used where it comes from, once."""
        with self._lock:
            return self._expected.pop(name, None)

    def warm(self, name: str, hot: list[hot_blocks.Run]) -> None:
        """Have blocks of a volume cached, after those of others."""
        if hot and self._rate:
            self._wanted.put((name, hot))

    def _count(self, outcome: str) -> None:
        with self._lock:
            self._counts[outcome] += 1

    def _run(self) -> None:
        while (wanted := self._wanted.get()) is not None:
            name, hot = wanted
            try:
                blocks = self._warm(name, hot)
                LOG.info('Cached %d blocks of volume %s, which came from'
                         ' another host', blocks, name)
            except exceptions.DiffCacheError as error:
                LOG.info('Volume %s fills its SSD cache by requests alone:'
                         ' %s', name, error)
            except Exception:
                LOG.exception('Could not warm the SSD cache of volume %s',
                              name)

    def _warm(self, name: str, hot: list[hot_blocks.Run]) -> int:
        """Cache blocks while there is room, and return how many."""
        blocks = 0
        for part in hot_blocks.divided(hot, _PART):
            began = time.monotonic()
            warmed = self._engine.warm(name, part)
            blocks += warmed.blocks
            self._warmed += warmed.blocks
            due = began + warmed.blocks * BLOCK / self._rate
            if not warmed.room \
                    or self._stopped.wait(max(0.0, due - time.monotonic())):
                break
        return blocks


def _checked(use: objects.VolumeUse) -> RemoteUse:
    """Return what another host says of a volume.

    :raises InvalidInput: it is not possible
    """
    if not isinstance(use, objects.VolumeUse):
        raise exceptions.InvalidInput('The answer does not say how a volume'
                                      ' is used.')
    curve = use.curve
    return RemoteUse(curve and _epoch(curve), hot_blocks.unpack(use.blocks))


def _epoch(curve: objects.VolumeCurve) -> engines.Epoch:
    try:
        steps = list(zip(curve.sizes, curve.hits, strict=True))
        found = _native.HitCurve(curve.references, curve.distinct, steps)
        if curve.references > _MOST_REFERENCES:
            raise ValueError(f'{curve.references} references')
    except (ValueError, OverflowError) as error:
        raise exceptions.InvalidInput(
            f'The curve of a volume cannot be: {error}') from error
    # Its latencies are those of the other host.
    return engines.Epoch(curve.seconds, found, curve.sampled)
