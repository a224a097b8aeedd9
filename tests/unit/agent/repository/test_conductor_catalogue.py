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
"""What a repository tells the conductor's catalogue."""

from unittest import mock

from diffcache_openstack.agent.repository import conductor_catalogue
from diffcache_openstack.agent.repository import records
from tests import base


def record(image_id, **more):
    return records.ImageRecord(
        id=image_id, name='name', content_id='a' * 64, size=1, data_size=1,
        **more)


class FindTest(base.TestCase):

    def test_one_that_cannot_be_described_keeps_no_other_back(self):
        # Regression: nothing was reported any more.
        conductor = mock.Mock()
        conductor.find_unregistered.side_effect = \
            lambda context, host, prints, pairs: (list(prints), [])
        known = conductor_catalogue.ConductorCatalogue(
            conductor, None, 'hub', None)
        good, bad = record('good'), record('bad', family='a b')
        with self.assertLogs('diffcache_openstack', 'ERROR') as logged:
            self.assertEqual(([good], []),
                             known.find_unregistered([bad, good], []))
        self.assertIn('bad', logged.output[0])
