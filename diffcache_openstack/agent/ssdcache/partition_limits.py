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
"""Limits of volumes' partitions, which never exceed the cache together."""

import collections.abc
import logging
import time

from diffcache_openstack.common import exceptions
from diffcache_openstack.ssdcache import control
from diffcache_openstack.ssdcache import engines

LOG = logging.getLogger(__name__)

# Seconds for which a volume whose limit could not be lowered keeps it.
PAUSE_S = 60.0

_Sizes = collections.abc.Mapping[str, int]


class PartitionLimits:
    """Changes limits in an order that always fits.

    To lower one can take blocks being written to a storage that hangs: such a
    volume keeps its limit for :data:`PAUSE_S`, and others do without its
    blocks.

    :param engine: the cache
    """

    def __init__(self, engine: engines.Engine) -> None:
        self._engine = engine
        self._stuck: dict[str, float] = {}

    def make_room(self, sizes: _Sizes) -> exceptions.DiffCacheError | None:
        """Lower the limits of volumes that are to be smaller.

        :returns: why one keeps its limit, if one does
        """
        failure, now = None, time.monotonic()
        for name, state in self._engine.volumes().items():
            if state.limit <= sizes.get(name, state.limit) \
                    or now < self._stuck.get(name, now):
                continue
            try:
                self._engine.set_limit(name, sizes[name])
            except (control.CacheSlow, engines.VolumeRefused) as error:
                failure = error
                self._stuck[name] = time.monotonic() + PAUSE_S
                LOG.warning('Volume %s keeps its %d blocks in the SSD cache:'
                            ' %s', name, state.limit, error)
            else:
                self._stuck.pop(name, None)
        return failure

    def change(self, sizes: _Sizes) -> None:
        """Give volumes other sizes, if they are attached.

        :raises DiffCacheError: some volumes could not get theirs
        """
        failure = self.make_room(sizes)
        left = self._left()
        for name, state in self._engine.volumes().items():
            more = min(sizes.get(name, 0) - state.limit, left)
            if more > 0:
                self._engine.set_limit(name, state.limit + more)
                left -= more
        if failure is not None:
            raise failure

    def room_for(self, name: str, size: int) -> int:
        """Return what a volume can have now of the size that it is to have."""
        return min(size, self._left(name))

    def _left(self, name: str = '') -> int:
        """Return the blocks that volumes leave, one of them not counted."""
        return self._engine.capacity() - sum(
            state.limit for other, state in self._engine.volumes().items()
            if other != name)
