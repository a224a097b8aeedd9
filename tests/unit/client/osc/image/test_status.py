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
"""Status, by commands over the API itself."""


from diffcache_openstack.client.osc.image import status
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack.db.sites import pending_images
from diffcache_openstack import objects as server_objects
from diffcache_openstack.objects import versioned
from tests.unit.client import cloud


class TestStatus(cloud.CommandTest):

    def test_a_site_on_one_screen(self):
        names, values = self.take(status.ShowStatus, 'edge', '--days', '1')
        found = dict(zip(names, values))
        text = found['requests'].human_readable()
        self.assertIn('3, 0 failed; 3 by agents, in ', text)
        self.assertIn('build 100%', text)
        self.assertEqual({'bytes': 15, 'whole_bytes': 3 * 10 ** 8},
                         found['wan'].machine_readable())
        self.assertIn('100% saved', found['wan'].human_readable())
        self.assertEqual(0, found['running_jobs'])

    def test_problems_name_what_they_are_about(self):
        self.database.write(pending_images.put, 'hub', [
            server_objects.PendingImage(
                image_id='t9', state='refused', attempts=1,
                error='It has a backing file')])
        self.database.write(host_rows.expire_hosts, versioned.now())
        found = self.shown(status.ShowStatus, 'edge')['problems']
        for text in ('Host h1 is dead', 'Host h2 is dead',
                     'Repository hub is dead', 'no plan yet',
                     'could not add image t9 (refused): It has a backing'
                     ' file'):
            self.assertTrue(any(text in line for line in found),
                            f'{text}: {found}')

    def test_the_mean_is_of_what_agents_delivered(self):
        way = {'failed': 0, 'requests': 1}
        found = status.Requests(status._count([
            {**way, 'way': 'local', 'mean_s': 0.25},
            {**way, 'way': 'nova', 'mean_s': 9.0, 'requests': 3}]))
        self.assertEqual('4, 0 failed; 1 by agents, in 0.250 s each\n'
                         'local 25%, nova 75%', found.human_readable())
        found = status.Requests(status._count([
            {**way, 'way': 'nova', 'mean_s': 9.0}]))
        self.assertEqual('1, 0 failed\nnova 100%', found.human_readable())

    def test_without_requests(self):
        self.assertEqual('none', status.Requests(
            status._count([])).human_readable())
        self.assertEqual('0 B for requests', status.Saved(
            {'bytes': 0, 'whole_bytes': 0}).human_readable())
        self.assertEqual('none', status.Lines([]).human_readable())

    def test_more_than_whole_images_is_said_so(self):
        found = status.Saved({'bytes': 120, 'whole_bytes': 100})
        self.assertEqual('120 B for requests, whole images 100 B: 20% more',
                         found.human_readable())
