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

from diffcache_openstack.agent.images import status
from diffcache_openstack.objects import base as objects_base
from tests import base


class PendingImagesTest(base.TestCase):

    def pending(self, ingest):
        found = status.HostStatus(None, None, None, None, None, ingest)
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
        seconds = (found[2].retry_at - objects_base.now()).total_seconds()
        self.assertTrue(0 < seconds <= 60, seconds)
