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
"""Boot sets that hosts of a site may have, and the room that they get."""

import collections.abc
import dataclasses
import datetime

from oslo_config import cfg
from sqlalchemy import orm

from diffcache_openstack.db.lazy import boot_sets
from diffcache_openstack.db.planning import precache
from diffcache_openstack.placement import boot_sets as placing


@dataclasses.dataclass(frozen=True)
class Demand:
    """What boots read, and where that may be.

    :ivar share: of a host's capacity that sets may take
    :ivar images: by content id
    :ivar standing: of the hosts of the site
    :ivar pins: (host, content id) of jobs, the most important first
    """

    share: float
    images: collections.abc.Mapping[str, boot_sets.BootReads]
    standing: boot_sets.SiteSets
    pins: tuple[tuple[str, str], ...]

    def room_at(self, host: str, capacity: int, pinned: int) -> int:
        """Return the bytes that are set aside for sets at a host.

        :param pinned: bytes of whole images that jobs pin there
        """
        if host not in self.standing.hosts:
            return 0
        share = placing.steps_of(self.share) / placing.STEPS
        every = sum(image.bytes for image in self.images.values())
        return max(0, min(int(share * capacity), every, capacity - pinned))


NO_DEMAND = Demand(0.0, {}, boot_sets.SiteSets(frozenset(), frozenset()), ())


def read(session: orm.Session, site: str, options: cfg.ConfigOpts.GroupAttr,
         now: datetime.datetime) -> Demand:
    """Read the demand of a site.

    :param options: ``[lazy]``
    """
    standing = boot_sets.standing(session, site, now)
    if not standing.hosts:
        return NO_DEMAND
    return Demand(options.boot_set_share,
                  boot_sets.of_images(session, options.threshold), standing,
                  tuple(precache.boot_set_pins(session, site)))
