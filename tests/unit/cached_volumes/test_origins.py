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

import json

from diffcache_openstack.cached_volumes import origins
from tests import base

MONITORS = [('10.0.0.1', '6789'), ('[fd00::1]', '6789')]


class TestOrigins(base.TestCase):

    def test_an_image_of_rbd(self):
        name = origins.rbd('volumes/volume-1', 'cinder', MONITORS)
        self.assertEqual(
            {'driver': 'rbd', 'pool': 'volumes', 'image': 'volume-1',
             'user': 'cinder', 'server': [
                 {'host': '10.0.0.1', 'port': '6789'},
                 {'host': 'fd00::1', 'port': '6789'}]},
            json.loads(name.removeprefix('json:')))
        self.assertEqual({'driver': 'rbd', 'pool': 'p', 'image': 'i'},
                         json.loads(origins.rbd('p/i', None, [])[5:]))

    def test_pools_that_are_allowed(self):
        name = origins.rbd('volumes/volume-1', 'cinder', MONITORS)
        self.assertTrue(origins.is_allowed(name, ['/dev', 'rbd:volumes']))
        for allowed in ([], ['/dev'], ['rbd:other'], ['volumes'], ['/']):
            self.assertFalse(origins.is_allowed(name, allowed))

    def test_directories_that_are_allowed(self):
        for origin, is_allowed in (
                ('/dev/sdx', True), ('/dev/../etc/x', False), ('/dev', False),
                ('/device', False), ('rbd:volumes/x', False), ('', False)):
            self.assertEqual(is_allowed, origins.is_allowed(
                origin, ['/dev', 'rbd:volumes']))

    def test_what_is_no_image_of_rbd(self):
        good = {'driver': 'rbd', 'pool': 'volumes', 'image': 'i'}
        for bad in ({'driver': 'file'}, {'filename': '/etc/passwd'},
                    {'conf': '/tmp/ceph.conf'}, {'image': '../x'},
                    {'image': 7}, {'user': 'a,b'}, {'server': 'x'},
                    {'server': [{'host': 'x'}]}, {'pool': None},
                    {'server': [{'host': 1, 'port': '2'}]}):
            self.assertFalse(origins.is_allowed(
                'json:' + json.dumps({**good, **bad}), ['rbd:volumes']), bad)
        for text in ('', '[]', '{', 'null', '"rbd"'):
            self.assertFalse(origins.is_allowed('json:' + text,
                                                ['rbd:volumes', 'rbd:']))
        self.assertTrue(origins.is_allowed('json:' + json.dumps(good),
                                           ['rbd:volumes']))
