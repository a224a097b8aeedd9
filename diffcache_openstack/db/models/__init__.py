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
"""The conductor's tables.

Sizes are bytes, times UTC. Names are compared byte by byte on every engine;
MariaDB needs a collation for it.
"""

from diffcache_openstack.db.models.tables import Base  # noqa: F401
from diffcache_openstack.db.models.tables import UTCDateTime  # noqa: F401
from diffcache_openstack.db.models.images import Patch  # noqa: F401
from diffcache_openstack.db.models.images import PatchPair  # noqa: F401
from diffcache_openstack.db.models.images import Sketch  # noqa: F401
from diffcache_openstack.db.models.images import SketchKey  # noqa: F401
from diffcache_openstack.db.models.images import Image  # noqa: F401
from diffcache_openstack.db.models.images import ImageMember  # noqa: F401
from diffcache_openstack.db.models.lazy import BootSet  # noqa: F401
from diffcache_openstack.db.models.lazy import BootSetHost  # noqa: F401
from diffcache_openstack.db.models.lazy import Hydration  # noqa: F401
from diffcache_openstack.db.models.lazy import Profile  # noqa: F401
from diffcache_openstack.db.models.lazy import (  # noqa: F401
    ProfileContribution)
from diffcache_openstack.db.models.planning import Lease  # noqa: F401
from diffcache_openstack.db.models.planning import Plan  # noqa: F401
from diffcache_openstack.db.models.planning import PlanHost  # noqa: F401
from diffcache_openstack.db.models.planning import PlanItem  # noqa: F401
from diffcache_openstack.db.models.planning import PrecacheJob  # noqa: F401
from diffcache_openstack.db.models.planning import PrecacheTarget  # noqa: F401
from diffcache_openstack.db.models.planning import Request  # noqa: F401
from diffcache_openstack.db.models.senders import Message  # noqa: F401
from diffcache_openstack.db.models.senders import RevokedKey  # noqa: F401
from diffcache_openstack.db.models.sites import Borrowed  # noqa: F401
from diffcache_openstack.db.models.sites import Fill  # noqa: F401
from diffcache_openstack.db.models.sites import Holding  # noqa: F401
from diffcache_openstack.db.models.sites import Host  # noqa: F401
from diffcache_openstack.db.models.sites import HostNetwork  # noqa: F401
from diffcache_openstack.db.models.sites import MapChange  # noqa: F401
from diffcache_openstack.db.models.sites import PendingImage  # noqa: F401
from diffcache_openstack.db.models.sites import (  # noqa: F401
    RepositoryStanding)
from diffcache_openstack.db.models.sites import Site  # noqa: F401
from diffcache_openstack.db.models.ssd_caches import SsdCache  # noqa: F401
from diffcache_openstack.db.models.ssd_caches import VolumeCache  # noqa: F401
from diffcache_openstack.db.models.versions import ServerVersion  # noqa: F401
from diffcache_openstack.db.models.versions import VersionHead  # noqa: F401
from diffcache_openstack.db.models.versions import VersionPolicy  # noqa: F401
from diffcache_openstack.db.models.versions import VersionStore  # noqa: F401
from diffcache_openstack.db.models.versions import VersionTask  # noqa: F401
