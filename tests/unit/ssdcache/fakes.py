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
"""An engine in memory, for tests of what uses one."""

import dataclasses
import os
import uuid

from diffcache_openstack.cached_volumes import choices
from diffcache_openstack.cached_volumes import hot_blocks
from diffcache_openstack.common import exceptions
from diffcache_openstack.ssdcache import engines


class FakeEngine(engines.Engine):
    """See :class:`.base.Engine`.

    :ivar error: raised by each method instead, if it is set
    :ivar failed: whether its device failed
    :ivar epochs: what was requested of volumes in each epoch
    :ivar actions: flushes and invalidations
    :ivar filters: which requests to volumes are cached
    :ivar cached: blocks of volumes
    :ivar room: blocks that may be cached unrequested
    :ivar dead: volumes whose origins cannot be written
    :ivar recovered: where held volumes were written back to
    :ivar vhost_refusal: why volumes are not served by vhost-user
    :ivar queued: volumes whose writes wait, and for how long
    """

    socket = '/fake/nbd'

    def __init__(self, blocks: int = 1000) -> None:
        self.error: exceptions.DiffCacheError | None = None
        self.failed = False
        self.epochs: dict[str, engines.Epoch] = {}
        self.actions: list[tuple[str, str]] = []
        self.filters: dict[str, tuple[int, int | None]] = {}
        self.cached: dict[str, list[hot_blocks.Run]] = {}
        self.room = 1 << 17
        self.dead: set[str] = set()
        self.recovered: dict[str, str] = {}
        self.queued: dict[str, float] = {}
        self.vhost_refusal: str | None = None
        self._blocks = blocks
        self._volumes: dict[str, engines.State] = {}
        self._origins: dict[str, tuple[str, int]] = {}

    def _check(self, name: str | None = None) -> None:
        if self.error is not None:
            raise self.error
        if name is not None and name not in self._volumes:
            raise engines.VolumeRefused(f'volume {name} is not attached')

    def _check_limit(self, name: str, limit: int) -> None:
        left = self._blocks - sum(
            state.limit for other, state in self._volumes.items()
            if other != name)
        if limit > left:
            raise engines.VolumeRefused(
                f'volume {name}: a limit of {limit} blocks exceeds the {left}'
                f' that other volumes leave')

    def fill(self, name: str) -> None:
        """Set that all blocks of a volume's partition are used."""
        self._volumes[name] = dataclasses.replace(
            self._volumes[name], blocks=self._volumes[name].limit)

    def dirty(self, name: str, blocks: int, state: str = 'ok') -> None:
        """Set the blocks that a volume lacks, and its state."""
        self._volumes[name] = dataclasses.replace(
            self._volumes[name], dirty=blocks, state=state)

    def _write_back(self, name: str) -> None:
        found = self._volumes.get(name)
        if found is None or not found.dirty:
            return
        if name in self.dead or found.state == choices.HELD:
            raise engines.VolumeRefused(f'origin of volume {name}: it fails')
        self._volumes[name] = dataclasses.replace(found, dirty=0)

    def open_vhost(self, name: str) -> str:
        self._check(name)
        if self.vhost_refusal is not None:
            raise engines.VolumeRefused(self.vhost_refusal)
        found = f'/fake/nbd.vhost/{self._volumes[name].export}'
        self.set_vhost(name, found)
        return found

    def set_vhost(self, name: str, path: str | None) -> None:
        """Set where a volume is served by vhost-user."""
        self._volumes[name] = dataclasses.replace(self._volumes[name],
                                                  vhost=path)

    def recover(self, name: str, origin: str) -> None:
        self._check(name)
        if self._volumes[name].state != choices.HELD:
            raise engines.VolumeRefused(f'volume {name} is not held')
        self.dirty(name, 0, choices.HELD)
        self.recovered[name] = origin

    def discard(self, name: str) -> None:
        self._check(name)
        if self._volumes[name].state != choices.HELD:
            raise engines.VolumeRefused(f'volume {name} is not held')
        self.dirty(name, 0)
        self.detach(name)

    def queue(self, name: str, seconds: float) -> None:
        self._check(name)
        self.queued[name] = seconds

    def end_queue(self, name: str) -> bool:
        self._check(name)
        return self.queued.pop(name, None) is not None

    def serve(self, name: str, **counts: int) -> None:
        """Set what was requested of a volume."""
        self._volumes[name] = dataclasses.replace(
            self._volumes[name], traffic=engines.Traffic(**counts))

    def capacity(self) -> int:
        self._check()
        return 0 if self.failed else self._blocks

    def volumes(self) -> dict[str, engines.State]:
        self._check()
        return dict(self._volumes)

    def attach(self, attachment: engines.Attachment) -> engines.State:
        self._check()
        name = attachment.name
        if not name:
            raise engines.VolumeRefused('no such name')
        _check_mode(attachment.mode)
        try:
            origin = attachment.origin, os.path.getsize(attachment.origin)
        except OSError as error:
            raise engines.VolumeRefused(str(error)) from error
        if self._origins.get(name, origin) != origin:
            raise engines.VolumeRefused('attached with another origin')
        limit = attachment.limit
        self._check_limit(name, limit)
        known = self._volumes.get(name) or engines.State(
            uuid.uuid4().hex, attachment.mode, limit, 0)
        self._origins[name] = origin
        self._volumes[name] = dataclasses.replace(
            known, mode=attachment.mode, limit=limit)
        self.set_filters(name, attachment.sequential, attachment.admission)
        self.set_rates(name, attachment.rates)
        return self._volumes[name]

    def detach(self, name: str) -> None:
        self._check()
        self._write_back(name)
        self._volumes.pop(name, None)
        self._origins.pop(name, None)

    def set_limit(self, name: str, limit: int) -> None:
        self._check(name)
        state = self._volumes[name]
        self._check_limit(name, limit)
        self._volumes[name] = dataclasses.replace(
            state, limit=limit, blocks=min(state.blocks, limit))

    def set_mode(self, name: str, mode: str) -> None:
        self._check(name)
        _check_mode(mode)
        if mode != 'write-back':
            self._write_back(name)
        self._volumes[name] = dataclasses.replace(
            self._volumes[name], mode=mode)

    def set_filters(self, name: str, sequential: int, admission: int | None
                    ) -> None:
        self._check(name)
        self.filters[name] = sequential, admission
        self._volumes[name] = dataclasses.replace(
            self._volumes[name], sequential=sequential,
            admission=admission or 1)

    def set_rates(self, name: str, rates) -> None:
        self._check(name)
        self._volumes[name] = dataclasses.replace(
            self._volumes[name], rates=dict(rates))

    def resize(self, name: str) -> None:
        self._check(name)
        path, size = self._origins[name]
        if os.path.getsize(path) < size:
            raise engines.VolumeRefused('it became smaller')
        self._origins[name] = path, os.path.getsize(path)

    def disconnect(self, name: str) -> None:
        self._check(name)
        self.actions.append(('disconnect', name))

    def end_epoch(self) -> dict[str, engines.Epoch]:
        self._check()
        return {name: epoch for name, epoch in self.epochs.items()
                if name in self._volumes}

    def hot(self, name: str, most: int) -> list[hot_blocks.Run]:
        self._check(name)
        return self.cached.get(name, [])

    def warm(self, name: str, runs) -> engines.Warmed:
        self._check(name)
        found, blocks = self.cached.setdefault(name, []), 0
        for run in runs:
            blocks += min(run.blocks, self.room - blocks)
            found.append(run)
        self.room -= blocks
        return engines.Warmed(blocks, self.room > 0)

    def flush(self, name: str) -> None:
        self._check(name)
        self.actions.append(('flush', name))

    def lose(self, name: str, *losses: tuple[int, int]) -> None:
        """Set what the origin of a volume lost."""
        self._volumes[name] = dataclasses.replace(
            self._volumes[name], losses=losses)

    def accept_loss(self, name: str) -> None:
        self._check(name)
        self.lose(name)
        self.actions.append(('accept-loss', name))

    def end_guest(self, name: str) -> None:
        self._check(name)
        self.lose(name)
        self.actions.append(('guest-ended', name))

    def invalidate(self, name: str) -> None:
        self._check(name)
        self.actions.append(('invalidate', name))


def _check_mode(mode: str) -> None:
    if mode not in choices.MODES:
        raise engines.VolumeRefused(f'there is no mode {mode}')
