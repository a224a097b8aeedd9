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
"""What an agent reports of itself."""

from diffcache_openstack.agent.images import host_status
from diffcache_openstack.conf import opts
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from tests import base
from tests.unit.agent import fakes


class NetworkTest(base.TestCase):

    def test_repositories_fetch_nothing(self):
        conf = opts.new_config()
        conf.set_override('role', 'repository', 'agent')
        found = host_status.HostStatus(conf, None, None, None, None)
        self.assertIsNone(found.network())

    def test_what_the_data_plane_and_the_options_say(self):
        conf = opts.new_config()
        conf.set_override('max_rate', 2000, 'fill')
        conf.set_override('windows', ['22:00-06:00'], 'fill')
        plane = fakes.Plane(fakes.Network(), 'h1')
        counts = {'transfers': 3, 'failures': 1, 'bytes': 10 ** 9}
        plane.repository_reports = [
            {'name': 'a', 'mbps': None, 'down_s': 60.2, 'reason': 'gone',
             **counts},
            {'name': 'b', 'mbps': 20.0, 'down_s': None, 'reason': None,
             **counts}]
        plane.measured_peer_mbps = 900.0
        before = versioned.now()
        found = host_status.HostStatus(conf, plane, None, None, None).network()
        dead, alive = found.repositories
        silent = (before - dead.since).total_seconds()
        self.assertTrue(-60 < silent <= 60, silent)
        self.assertEqual(objects.HostNetwork(
            fill_rate=2000, fill_windows=['22:00-06:00'], peer_mbps=900.0,
            repositories=[
                objects.RepositoryStanding(
                    name='a', answers=False, reason='gone', since=dead.since,
                    **counts),
                objects.RepositoryStanding(name='b', mbps=20.0, **counts)]),
            found)

    def test_without_limits(self):
        plane = fakes.Plane(fakes.Network(), 'h1')
        found = host_status.HostStatus(opts.new_config(), plane, None, None,
                                       None)
        self.assertEqual(objects.HostNetwork(), found.network())


class PendingImagesTest(base.TestCase):

    def pending(self, ingest):
        found = host_status.HostStatus(None, None, None, None, None, ingest)
        return found.pending_images()

    def test_hosts_that_take_no_images_report_none(self):
        self.assertIsNone(self.pending(None))

    def test_states(self):
        waiting = {'retry_in_s': 60, 'attempts': 2, 'error': 'full'}
        found = self.pending(lambda: {
            'queue': [
                # The listing of all images is none.
                {'image': '', 'state': 'active'},
                {'image': 'now', 'state': 'active'},
                {'image': 'full', 'state': 'waiting_for_space', **waiting},
                {'image': 'away', 'state': 'waiting', **waiting},
                # It waits for its turn.
                {'image': 'next', 'state': 'waiting', 'retry_in_s': 0,
                 'attempts': 0, 'error': None}],
            'refused': {'bad': 'no qcow2'}})
        self.assertEqual(
            [('away', 'waiting', 2, 'full'), ('bad', 'refused', 0, 'no qcow2'),
             ('full', 'waiting_for_space', 2, 'full'),
             ('now', 'adding', 0, None)],
            [(each.image_id, each.state, each.attempts, each.error)
             for each in found])
        seconds = (found[2].retry_at - versioned.now()).total_seconds()
        self.assertTrue(0 < seconds <= 60, seconds)
