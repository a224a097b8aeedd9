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
"""How long servers wait for what they read while they boot lazily.

An estimate beside :mod:`.routes`, which has the seconds of the whole image:
a boot reads a part of it, and some of that may be here in a boot set.
"""

import typing

from diffcache_openstack.placement import ways
from diffcache_openstack.prefetch import boots
from diffcache_openstack.sites import views


class Estimate(typing.NamedTuple):
    """What a lazy boot waits for.

    :ivar seconds: in sum
    :ivar reads: of the boot; none is absent where the host holds the image
    """

    seconds: float
    reads: boots.Reads


def estimate(view: views.SiteView, host: str, image: views.ImageRef,
             reads: boots.Reads, whole_s: float) -> Estimate:
    """Estimate how long a lazy boot waits for its reads at a host.

    What the host's boot set has is read from its disk, what sets of other
    hosts of the site have is copied from there, and the rest takes its part
    of what the whole image takes. A host that holds the image reads all of it
    from its disk.

    :param reads: of boots at this host
    :param whole_s: what the cheapest way to the whole image takes
    :returns: of at most ``whole_s``, which delivering the image first takes
    """
    key = views.Key(views.IMAGES, image.content_id)
    links = view.links.of(host)
    local = ways.fetch_seconds(1.0, links.local)
    peer = ways.fetch_seconds(1.0, links.peer)
    whole = whole_s / max(image.data_size / views.MEGABYTE, 1e-6)
    if key in view.holdings(host):
        reads = reads._replace(absent=0, at_peers=0)
    found = (local * (reads.total - reads.absent)
             + min(peer, whole) * reads.at_peers
             + whole * (reads.absent - reads.at_peers)) / views.MEGABYTE
    return Estimate(min(found, whole_s), reads)
