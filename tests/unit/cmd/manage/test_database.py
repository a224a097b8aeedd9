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
from diffcache_openstack.db import migration
from tests.unit.cmd.manage import base


class TestDatabase(base.ManageTest):

    def test_sync_and_version(self):
        self.assert_fails(1, 'db sync', 'db', 'version')
        result = self.run_words('db', 'sync')
        self.assertEqual(0, result.code)
        self.assertIn(migration.head(), result.out)
        result = self.run_words('db', 'version')
        self.assertEqual((0, migration.head() + '\n'),
                         (result.code, result.out))

    def test_sync_twice(self):
        self.run_words('db', 'sync')
        self.assertEqual(0, self.run_words('db', 'sync').code)

    def test_without_schema(self):
        for words in (('host', 'list'), ('status',), ('image', 'list')):
            self.assert_fails(1, 'run "diffcache-manage db sync"', *words)

    def test_unreachable(self):
        self.config.write_text('[database]\nmax_retries = 0\nconnection ='
                               f' sqlite:///{self.directory}/no/x.sqlite\n')
        self.assert_fails(1, '[database] connection', 'host', 'list')

    def test_a_server_that_does_not_answer_is_reported_at_once(self):
        # Services wait for the server, by this option's default.
        self.config.write_text(
            '[database]\nmax_retries = 10\nretry_interval = 3600\n'
            'connection = mysql+pymysql://a:b@127.0.0.1:1/x\n')
        for words in (('host', 'list'), ('status',), ('db', 'version')):
            result = self.run_words(*words)
            self.assertEqual(1, result.code)
            [line] = result.err.splitlines()
            self.assertIn('127.0.0.1:1/x does not answer', line)

    def test_what_only_reads_creates_no_database(self):
        path = self.directory / 'none.sqlite'
        self.config.write_text(f'[database]\nconnection = sqlite:///{path}\n')
        for words in (('host', 'list'), ('status',), ('db', 'version')):
            self.assert_fails(1, 'diffcache-manage db sync', *words)
            self.assertFalse(path.exists())
