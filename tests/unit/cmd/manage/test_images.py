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
import datetime

from diffcache_openstack.db import catalogue
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack import objects
from diffcache_openstack.objects import versioned
from tests.unit.cmd.manage import base
from tests.unit.db import database


class TestImages(base.FilledTest):

    def test_image_goes_to_the_repository(self):
        worker = self.serve_agent('hub')
        result = self.run_words('image', 'register', '/img', '--name', 'N',
                                '--id', 't', '-f', 'json')
        self.assertEqual('0' * 64, result.json['content_id'])
        self.assertEqual([('register_image', '/img', 't', 'N')],
                         worker.calls)

    def test_repository_has_to_be_named_among_several(self):
        self.database.write(host_rows.put_host, database.host(
            'hub2', site='centre', role=objects.REPOSITORY),
            versioned.now())
        self.assert_fails(1, 'hub, hub2', 'image', 'register', '/img',
                          '--name', 'N')

    def test_silent_repository_is_not_waited_for(self):
        """An unanswered call would take minutes, and say nothing."""
        worker = self.serve_agent('hub')
        self.database.write(host_rows.expire_hosts,
                            versioned.now() + datetime.timedelta(days=1))
        self.assert_fails(1, 'Host hub was last heard of at', 'image',
                          'register', '/img', '--name', 'N')
        self.assert_fails(1, 'Host h1 was last heard of at', 'image', 'fetch',
                          't', '/out', '--host', 'h1')
        self.assertEqual([], worker.calls)

    def test_image_is_fetched_by_a_host(self):
        worker = self.serve_agent('h1')
        result = self.run_words('image', 'fetch', 't', '/out', '--host',
                                'h1', '-f', 'json')
        self.assertEqual('local', result.json['way'])
        self.assertEqual([('get_image', 't', '/out', None)], worker.calls)


class TestCatalogue(base.FilledTest):

    def test_list(self):
        rows = self.run_words('image', 'list', '-f', 'json').json
        self.assertEqual(['t1', 't2'], [r['ID'] for r in rows])

    def test_removal(self):
        self.assertEqual(0, self.run_words('image', 'delete', 't1').code)
        self.assertEqual([], self.database.read(catalogue.list_patches))
        self.assert_fails(1, 't1', 'image', 'delete', 't1')

    def test_restoration(self):
        self.assert_fails(1, 'not deleted', 'image', 'restore', 't1')
        self.database.write(
            catalogue.put_image, database.image(
                1, data_size=1_500_000, status=objects.DELETED),
            versioned.now())
        [row] = self.run_words('image', 'list', '--withdrawn', '-f',
                               'json').json
        self.assertEqual(('t1', 'deleted'), (row['ID'], row['Status']))
        self.assertEqual(0, self.run_words('image', 'restore', 't1').code)
        self.assertEqual([], self.run_words('image', 'list', '--withdrawn',
                                            '-f', 'json').json)
