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
"""Versioned objects that cross RPC."""

from diffcache_openstack.objects.catalogue import ACTIVE  # noqa: F401
from diffcache_openstack.objects.catalogue import DEACTIVATED  # noqa: F401
from diffcache_openstack.objects.catalogue import DELETED  # noqa: F401
from diffcache_openstack.objects.catalogue import RECIPES  # noqa: F401
from diffcache_openstack.objects.catalogue import MANIFESTS  # noqa: F401
from diffcache_openstack.objects.catalogue import Patch  # noqa: F401
from diffcache_openstack.objects.catalogue import PATCHES  # noqa: F401
from diffcache_openstack.objects.catalogue import SHARED  # noqa: F401
from diffcache_openstack.objects.catalogue import Image  # noqa: F401
from diffcache_openstack.objects.catalogue import IMAGES  # noqa: F401
from diffcache_openstack.objects.hydration import Hydration  # noqa: F401
from diffcache_openstack.objects.hydration import (  # noqa: F401
    HydrationSource)
from diffcache_openstack.objects.patch_work import ImageSketch  # noqa: F401
from diffcache_openstack.objects.patch_work import PairReport  # noqa: F401
from diffcache_openstack.objects.patch_work import PatchPair  # noqa: F401
from diffcache_openstack.objects.patch_work import PatchWork  # noqa: F401
from diffcache_openstack.objects.pending_image import (  # noqa: F401
    PendingImage)
from diffcache_openstack.objects.plan import Fill  # noqa: F401
from diffcache_openstack.objects.plan import Plan  # noqa: F401
from diffcache_openstack.objects.plan import PLAN_FIGURES  # noqa: F401
from diffcache_openstack.objects.plan import PLAN_OBJECTIVES  # noqa: F401
from diffcache_openstack.objects.plan import PlanItem  # noqa: F401
from diffcache_openstack.objects.precache import PrecacheDemand  # noqa: F401
from diffcache_openstack.objects.precache import PrecacheJob  # noqa: F401
from diffcache_openstack.objects.request import Request  # noqa: F401
from diffcache_openstack.objects.site import COMPUTE  # noqa: F401
from diffcache_openstack.objects.site import HeartbeatAnswer  # noqa: F401
from diffcache_openstack.objects.site import Holding  # noqa: F401
from diffcache_openstack.objects.site import Host  # noqa: F401
from diffcache_openstack.objects.site import HostHoldings  # noqa: F401
from diffcache_openstack.objects.site import HostLinks  # noqa: F401
from diffcache_openstack.objects.site import HostNetwork  # noqa: F401
from diffcache_openstack.objects.site import Links  # noqa: F401
from diffcache_openstack.objects.site import MapChange  # noqa: F401
from diffcache_openstack.objects.site import REPOSITORY  # noqa: F401
from diffcache_openstack.objects.site import RepositoryLink  # noqa: F401
from diffcache_openstack.objects.site import (  # noqa: F401
    RepositoryStanding)
from diffcache_openstack.objects.site import SiteMap  # noqa: F401
from diffcache_openstack.objects.versions import NewVersion  # noqa: F401
from diffcache_openstack.objects.versions import SavedVersion  # noqa: F401
from diffcache_openstack.objects.versions import TaskReport  # noqa: F401
from diffcache_openstack.objects.versions import VersionDisk  # noqa: F401
from diffcache_openstack.objects.versions import VersionPolicy  # noqa: F401
from diffcache_openstack.objects.versions import VersionTask  # noqa: F401
from diffcache_openstack.objects.volume_cache import (  # noqa: F401
    SizingDecision)
from diffcache_openstack.objects.volume_cache import SsdCache  # noqa: F401
from diffcache_openstack.objects.volume_cache import VolumeCache  # noqa: F401
from diffcache_openstack.objects.volume_cache import VolumeCurve  # noqa: F401
from diffcache_openstack.objects.volume_cache import VolumeUse  # noqa: F401
