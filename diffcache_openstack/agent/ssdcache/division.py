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
"""Division of the cache among volumes, between two ends of epochs."""

import collections.abc
import logging

from diffcache_openstack.agent.ssdcache import attached
from diffcache_openstack.agent.ssdcache import partition_limits
from diffcache_openstack.agent.ssdcache import volume_settings
from diffcache_openstack.agent.ssdcache import volume_sizes
from diffcache_openstack.common import exceptions
from diffcache_openstack.ssdcache import engines
from diffcache_openstack.ssdcache.sizing import base as sizing

LOG = logging.getLogger(__name__)

_Wanted = collections.abc.Mapping[str, volume_settings.VolumeSettings]


class Division:
    """Divides the cache anew when volumes come, go or change.

    :param engine: the cache
    :param sizes: decides
    :param limits: changes the limits of partitions
    """

    def __init__(self, engine: engines.Engine, sizes: volume_sizes.Sizes,
                 limits: partition_limits.PartitionLimits) -> None:
        self._engine = engine
        self._sizes = sizes
        self._limits = limits

    def cache(self) -> sizing.Cache:
        """Return what is divided."""
        return sizing.Cache(self._engine.capacity())

    def shares(self, known: _Wanted, states: attached.States
               ) -> dict[str, int]:
        """Return the sizes of volumes until the next epoch ends.

        :raises NoSpace: the least sizes do not fit
        """
        # A volume that had no blocks, as its type said so, counts as new.
        return self._sizes.shares(
            known, {name: state.limit for name, state in states.items()
                    if state.limit}, self.cache())

    def renew(self, known: _Wanted) -> None:
        """Divide the cache anew; volumes are served with any sizes."""
        try:
            self._limits.change(self.shares(known, self._engine.volumes()))
        except exceptions.DiffCacheError as error:
            LOG.warning('Could not divide the SSD cache anew, volumes keep'
                        ' their sizes: %s', error)

    def arrive(self, name: str, epoch: engines.Epoch, known: _Wanted,
               states: attached.States) -> None:
        """Divide the cache by the curve of a volume of another host, too.

        :param epoch: what was requested of it there in its last epoch
        """
        try:
            self._limits.change(self._sizes.arrive(
                name, epoch, known,
                {each: state.limit for each, state in states.items()},
                self.cache()))
        except exceptions.DiffCacheError as error:
            self._sizes.note_failure(error)
            LOG.warning('Volume %s, which came from another host, keeps its'
                        ' size: %s', name, error)
