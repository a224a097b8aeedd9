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

from diffcache_openstack.ssdcache.engines import base as engines

LOG = logging.getLogger(__name__)

_Sizes = collections.abc.Mapping[str, int]


class Limits:
    """Changes limits in an order that always fits.

    :param engine: the cache
    """

    def __init__(self, engine: engines.Engine) -> None:
        self._engine = engine

    def make_room(self, name: str, sizes: _Sizes,
                  states: collections.abc.Mapping[str, engines.State]
                  ) -> None:
        """Lower the limits of other volumes for a new one."""
        if not self._engine.abilities.keeps_blocks:
            left = self._engine.capacity() - sum(
                state.limit for state in states.values())
            if sizes[name] <= left:
                return
            LOG.info('Volumes in the SSD cache lose what is cached to make'
                     ' room for volume %s', name)
        self._lower(sizes)

    def change(self, sizes: _Sizes) -> None:
        """Give volumes other sizes, if they are attached."""
        self._lower(sizes)
        for name, state in self._engine.volumes().items():
            if name in sizes and sizes[name] > state.limit:
                self._engine.set_limit(name, sizes[name])

    def _lower(self, sizes: _Sizes) -> None:
        for name, state in self._engine.volumes().items():
            if name in sizes and sizes[name] < state.limit:
                self._engine.set_limit(name, sizes[name])
