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
import types

from diffcache_openstack.client.osc import graphs
from tests import base


def image(image_id, content_id, family=None):
    return types.SimpleNamespace(id=image_id, name=f'Image {image_id}',
                                 content_id=content_id, family=family)


def item(kind, object_id, saved, image, **values):
    return {'kind': kind, 'id': object_id, 'saved_seconds': saved,
            'images': [image] if image else [], 'bytes': 2_000_000,
            'host': 'h1', 'held': False, 'base': None, 'target': None,
            **values}


class TestRows(base.TestCase):
    """Which rows a picture has, and in which order."""

    IMAGES = (image('a', 'content-a'),
              image('b', 'content-b', 'a'),
              image('c', 'content-c', 'b'),
              image('x', 'content-x'))

    def rows(self, *items):
        names = graphs._Names(self.IMAGES)
        return [(row.label, row.saved) for row in graphs._rows(items, names)]

    def test_families_are_together_the_most_useful_first(self):
        patch = item('patches', 'patch', 3.0, 'c', base='content-a',
                     target='content-c')
        self.assertEqual([
            ('Image a', 0), ('Image a, 2 MB', 12.0),
            ('Image a → Image c, 2.0 MB', 3.0),
            ('Image x', 0), ('Image x, 2 MB', 14.0)],
            self.rows(item('images', 'content-x', 14.0, 'x'), patch,
                      item('images', 'content-a', 5.0, 'a'),
                      item('images', 'content-a', 7.0, 'a', host='h2')))

    def test_what_the_catalogue_no_longer_knows(self):
        [family, row] = self.rows(item('images', 'gone' * 16, 1.0, None))
        self.assertIn('gone', family[0])
        self.assertIn('gone', row[0])

    def test_families_that_name_each_other(self):
        self.IMAGES = (image('a', 'content-a', 'b'),
                       image('b', 'content-b', 'a'))
        self.assertEqual(2, len(self.rows(
            item('images', 'content-a', 1.0, 'a'))))
