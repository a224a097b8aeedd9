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
"""Files with the history of an operator."""

import json

from diffcache_openstack.common import exceptions
from diffcache_openstack.planning import histories
from tests import base

START = '2026-11-01T00:00:00Z'


def document(**changes):
    """A history with two images, and a server of each at one site."""
    return {
        'images': [
            {'id': 'new', 'bytes': 200, 'created_at': '2026-11-02T00:00:00Z',
             'family': 'f', 'name': 'n'},
            {'id': 'old', 'bytes': 100, 'created_at': START, 'family': 'f'}],
        'sites': [{'name': 's', 'hosts': ['a', 'b'], 'wan_mbps': 20}],
        'servers': [
            {'image': 'new', 'site': 's', 'host': 'b', 'created_at':
             '2026-11-03T00:00:00+00:00', 'deleted_at': None},
            {'image': 'old', 'site': 's', 'host': 'a',
             'created_at': '2026-11-02T00:00:00',
             'deleted_at': '2026-11-04T00:00:00Z'},
            {'image': 'gone', 'site': 's', 'host': 'a',
             'created_at': START}],
        **changes}


class TestLoad(base.TestCase):

    def load(self, content):
        path = self.directory / 'history.json'
        path.write_text(content if isinstance(content, str)
                        else json.dumps(content))
        return histories.load(path)

    def test_images_and_servers_are_in_the_order_of_their_times(self):
        history = self.load(document(patches=[
            {'base': 'old', 'target': 'new', 'bytes': 7},
            {'base': 'old', 'target': 'gone', 'bytes': 7}]))
        self.assertEqual(['old', 'new'], [i.id for i in history.images])
        [site] = history.sites
        self.assertEqual({'wan_mbps': 20}, site.settings)
        # Of an image that was deleted nothing is known.
        self.assertEqual([(0, 1), (1, 2)],
                         [(s.image, s.host) for s in site.servers])
        self.assertEqual([2 * 86400.0, float('inf')],
                         [s.end_s - s.begin_s for s in site.servers])
        self.assertEqual({(0, 1): 7}, history.patches)

    def test_what_is_refused(self):
        sites = document()['sites']
        images = document()['images']
        for content, words in (
                ('no JSON', 'history export'),
                ('[]', "[] is not of type 'object'"),
                (document(sites=[{'name': 's', 'hosts': []}]),
                 'sites[0].hosts'),
                (document(sites=sites * 2), 'sites: one is listed twice'),
                (document(images=images * 2), 'images: one is listed twice'),
                (document(sites=[{'name': 's', 'hosts': ['x']}]),
                 'no site s with a host'),
                (document(images=[{**images[0], 'created_at': 'noon'}]),
                 '"noon" is no time'),
                (document(wan=1), "'wan' was unexpected")):
            error = self.assertRaises(exceptions.InvalidInput, self.load,
                                      content)
            self.assertIn(words, str(error))
            self.assertIn('history.json', str(error))

    def test_a_file_that_is_missing(self):
        error = self.assertRaises(
            exceptions.InvalidInput, histories.load, self.directory / 'none')
        self.assertIn('no such file', str(error))
