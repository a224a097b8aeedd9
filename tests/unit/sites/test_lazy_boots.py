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
"""How long lazy boots wait for what they read."""

from diffcache_openstack.prefetch import boots
from diffcache_openstack.sites import lazy_boots
from diffcache_openstack.sites import views
from tests import base

MB = 10 ** 6
IMAGE = views.ImageRef('t', 'web', 'c' * 64, 1000 * MB, 100 * MB)
KEY = views.Key(views.IMAGES, IMAGE.content_id)
# Seconds per MB: 0.02, 0.04, and 0.8 over the WAN.
LINKS = views.Links(local=400.0, peer=200.0, repo=10.0)


def seconds(total, absent, at_peers, whole_s=80.0, held=()):
    """What a boot waits; the bytes are in MB."""
    view = views.SiteView(1, (IMAGE,), (), (views.HostRef(
        'h1', 'compute', 'http://h1', True, frozenset(held)),), LINKS)
    return round(lazy_boots.estimate(
        view, 'h1', IMAGE,
        boots.Reads(total * MB, absent * MB, at_peers * MB), whole_s
    ).seconds, 6)


class TestSeconds(base.TestCase):

    def test_a_boot_waits_for_its_part_of_the_image(self):
        self.assertEqual(8.0, seconds(10, 10, 0))

    def test_what_the_set_has_comes_from_the_disk(self):
        self.assertEqual(0.2, seconds(10, 0, 0))
        self.assertEqual(0.02 * 9 + 0.8, seconds(10, 1, 0))

    def test_what_sets_of_peers_have_comes_from_there(self):
        self.assertEqual(0.4, seconds(10, 10, 10))
        self.assertEqual(round(0.02 * 5 + 0.04 * 3 + 0.8 * 2, 6),
                         seconds(10, 5, 3))

    def test_a_cheaper_way_to_the_image_counts_for_that_too(self):
        # From a base and a patch, which are here.
        self.assertEqual(0.3, seconds(10, 10, 10, whole_s=3.0))

    def test_a_host_that_holds_the_image_reads_its_disk(self):
        self.assertEqual(0.2, seconds(10, 10, 0, whole_s=2.0, held=[KEY]))

    def test_never_longer_than_the_whole_image(self):
        self.assertEqual(80.0, seconds(500, 500, 0))
        self.assertEqual(0.0, seconds(10, 10, 10, whole_s=0.0))
