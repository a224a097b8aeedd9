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
from diffcache_openstack.db import catalogue
from diffcache_openstack import objects
from diffcache_openstack.objects import base as objects_base
from tests.unit.cmd.manage import base
from tests.unit.db import database


class TestTemplates(base.FilledTest):

    def test_list(self):
        rows = self.run_words('template', 'list', '-f', 'json').json
        self.assertEqual(['t1', 't2'], [r['ID'] for r in rows])

    def test_removal(self):
        self.assertEqual(0, self.run_words('template', 'remove', 't1').code)
        self.assertEqual([], self.database.read(catalogue.list_patches))
        self.assert_fails(1, 't1', 'template', 'remove', 't1')

    def test_restoration(self):
        self.assert_fails(1, 'not deleted', 'template', 'restore', 't1')
        self.database.write(
            catalogue.put_template, database.template(
                1, data_size=1_500_000, status=objects.DELETED),
            objects_base.now())
        [row] = self.run_words('template', 'list', '--withdrawn', '-f',
                               'json').json
        self.assertEqual(('t1', 'deleted'), (row['ID'], row['Status']))
        self.assertEqual(0, self.run_words('template', 'restore', 't1').code)
        self.assertEqual([], self.run_words('template', 'list', '--withdrawn',
                                            '-f', 'json').json)
