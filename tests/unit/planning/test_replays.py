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
"""Histories of sites, replayed."""

import math

from diffcache_openstack.planning import histories
from diffcache_openstack.planning import replays
from tests import base

DAY = replays.DAY
SIZE = 1_000_000_000
# 80 s for an image, 0.8 s from a peer.
KNOWN = replays.Assumptions(wan_mbps=100, lan_mbps=10_000, disk_mbps=20_000,
                            capacity_bytes=10 * SIZE, time_limit=0.05)


def server(day, host, image=0, days=0.0):
    """A server that begins on a day, and lasts for some."""
    return histories.Server(image, host, day * DAY + 1,
                            (day + days) * DAY + 1)


def history(*servers, images=1, family='f', hosts=2):
    """One site, with images that are a week apart."""
    site = histories.Site('s', tuple(map(str, range(hosts))), {},
                          tuple(sorted(servers, key=lambda s: s.begin_s)))
    return histories.History(
        tuple(histories.Image(str(n), SIZE, family, (7 * n - 1) * DAY)
              for n in range(images)), (site,), {})


class TestNeeds(base.TestCase):

    def days(self, *servers):
        return [(need.time_s // DAY, need.host) for need
                in replays.needs(servers)]

    def test_nova_keeps_what_a_server_had_for_a_day(self):
        self.assertEqual([(0, 1), (3, 1)], self.days(
            server(0, 1), server(0.9, 1), server(3, 1)))

    def test_and_while_there_is_a_server(self):
        self.assertEqual([(0, 1)], self.days(
            server(0, 1, days=5), server(1, 1), server(4, 1)))
        self.assertEqual([(0, 1)], self.days(
            server(0, 1, days=math.inf), server(400, 1)))

    def test_each_host_has_its_own(self):
        self.assertEqual([(0, 1), (0, 2)], self.days(
            server(0, 1), server(0, 2)))


class TestReplay(base.TestCase):

    def replay(self, what, way, **changes):
        known = replays.Assumptions(**{**vars(KNOWN), **changes})
        return replays.replay(what, what.sites[0], way, known)

    def test_plain_nova_downloads_each_time(self):
        found = self.replay(history(server(0, 1), server(0, 2), server(9, 1)),
                            replays.NOVA)
        self.assertEqual([80.0] * 3, found.waits)
        self.assertEqual((3 * SIZE, 0), (found.wan_bytes, found.held))

    def test_a_cache_of_glance_has_it_once(self):
        found = self.replay(history(server(0, 1), server(0, 2), server(9, 1)),
                            replays.GLANCE_CACHE)
        self.assertEqual([80.0, 0.8, 0.8], found.waits)
        self.assertEqual((SIZE, SIZE), (found.wan_bytes, found.held))

    def test_a_host_reads_what_it_or_a_peer_has(self):
        found = self.replay(history(server(0, 1), server(0, 2), server(9, 1)),
                            replays.TEMPLATES)
        self.assertEqual([80.0, 0.8, 0.4], found.waits)
        self.assertEqual(SIZE, found.wan_bytes)

    def test_the_next_image_of_a_family_is_a_patch(self):
        what = history(server(0, 1), server(8, 1, image=1), images=2)
        found = self.replay(what, replays.PATCHES, patch_share=0.1)
        # A tenth over the WAN, the base from the disk, and both together.
        self.assertEqual(8.0 + 0.4 + 0.4 + 0.5, found.waits[1])
        self.assertEqual(1.1 * SIZE, found.wan_bytes)
        without = self.replay(what, replays.TEMPLATES)
        self.assertEqual(2 * SIZE, without.wan_bytes)

    def test_images_of_no_family_have_no_patches(self):
        what = history(server(0, 1), server(8, 1, image=1), images=2,
                       family=None)
        self.assertEqual(2 * SIZE,
                         self.replay(what, replays.PATCHES).wan_bytes)

    def test_no_host_holds_more_than_it_may(self):
        what = history(*(server(7 * n, 1, image=n) for n in range(6)),
                       images=6, hosts=1)
        for way in (replays.TEMPLATES, replays.PATCHES):
            found = self.replay(what, way, capacity_bytes=int(2.5 * SIZE))
            self.assertLessEqual(found.held, 2.5 * SIZE)
            self.assertEqual(6, len(found.waits))
        self.assertEqual(0, self.replay(
            what, replays.PATCHES, capacity_bytes=0).held)

    def test_plans_may_save_bytes_instead_of_seconds(self):
        # Two hosts with room for one image ask for three in turns.
        what = history(*(server(3 * n, 1 + n % 2, image=n % 3)
                         for n in range(12)), images=3, family=None)
        fast, lean = (
            self.replay(what, replays.TEMPLATES, objective=objective,
                        capacity_bytes=SIZE)
            for objective in ('seconds', 'wan_bytes'))
        self.assertLess(lean.wan_bytes, fast.wan_bytes)

    def test_what_a_site_says_of_itself_counts(self):
        what = history(server(0, 1))
        site = histories.Site('s', ('0', '1'), {'wan_mbps': 10},
                              what.sites[0].servers)
        found = replays.replay(what, site, replays.NOVA, KNOWN)
        self.assertEqual([800.0], found.waits)

    def test_an_image_that_a_server_had_before_it_was_made(self):
        # The clock of Glance's host was late.
        what = history(server(0, 1, image=1), images=2)
        self.assertEqual(1, len(self.replay(what, replays.PATCHES).waits))

    def test_a_site_without_servers(self):
        for way in replays.WAYS:
            found = self.replay(history(), way)
            self.assertEqual((0, [], 0), (found.servers, found.waits,
                                          found.wan_bytes))
