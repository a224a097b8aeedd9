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

from diffcache_openstack.ssdcache.engines import base as engines

_Sizes = collections.abc.Mapping[str, int]


class Limits:
    """Changes limits in an order that always fits.

    :param engine: the cache
    """

    def __init__(self, engine: engines.Engine) -> None:
        self._engine = engine

    def change(self, sizes: _Sizes) -> None:
        """Give volumes other sizes, if they are attached."""
        self.make_room(sizes)
        for name, state in self._engine.volumes().items():
            if name in sizes and sizes[name] > state.limit:
                self._engine.set_limit(name, sizes[name])

    def make_room(self, sizes: _Sizes) -> None:
        """Lower the limits of volumes that are to be smaller."""
        for name, state in self._engine.volumes().items():
            if name in sizes and sizes[name] < state.limit:
                self._engine.set_limit(name, sizes[name])
