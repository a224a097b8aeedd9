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
from diffcache_openstack.client.osc.server import estimates
from diffcache_openstack.client.resources import version
from tests import base


def saved(day, stored, server='a', seconds=2.0, pause_ms=10.0):
    return version.ServerVersion(
        server_id=server, bytes_stored=stored, seconds=seconds,
        pause_ms=pause_ms, created_at=f'2026-11-{day:02}T12:00:00Z')


class TestEstimate(base.TestCase):

    def test_servers_add_up(self):
        found = estimates.estimate(
            # The first of each server has all of its disk.
            [saved(5, 300), saved(3, 100), saved(1, 9000),
             saved(2, 50, 'b', 4.0), saved(1, 7000, 'b', 4.0, None),
             saved(1, 5000, 'c')],
            [version.VersionTask(result={'seconds': 3.0}),
             version.VersionTask(result={'seconds': 5.0}),
             version.VersionTask(result=None)])
        self.assertEqual(estimates.Estimate(6, 150, 16 / 6, 10.0, 4.0), found)

    def test_nothing_tells(self):
        self.assertEqual(estimates.Estimate(0, None, None, None, None),
                         estimates.estimate([], []))
        self.assertIsNone(
            estimates.estimate([saved(1, 10)], []).bytes_per_day)
        # Of the same instant.
        self.assertIsNone(estimates.estimate(
            [saved(1, 10), saved(1, 10)], []).bytes_per_day)
