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
"""``diffcache-status upgrade check``."""

import contextlib
import io
import json
from unittest import mock

import fixtures
import sqlalchemy as sa

from diffcache_openstack.cmd import status
from diffcache_openstack.common import exceptions
from diffcache_openstack.conf import opts
from diffcache_openstack.db import engine
from diffcache_openstack.db import migration
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack.objects import versioned
from tests.unit.cmd.manage import base

SUCCESS, WARNING, FAILURE = 0, 1, 2


class UpgradeCheckTest(base.FilledTest):

    def ask(self, *more):
        """Return the exit code, and result and details of each check."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), \
                contextlib.redirect_stderr(err):
            code = status.main(['--config-file', str(self.config), *more,
                                'upgrade', 'check', '--json'])
        self.printed = out.getvalue() + err.getvalue()
        found = json.loads(out.getvalue()) if out.getvalue() else {}
        return code, {check['check']: (check['result'], check['details'])
                      for check in found.get('checks', ())}

    def set_revision(self, revision):
        with self.database.engine.begin() as connection:
            connection.execute(sa.text(
                'UPDATE alembic_version SET version_num = :revision'),
                {'revision': revision})

    def configure(self, text):
        with open(self.config, 'a', encoding='utf-8') as stream:
            stream.write(text)

    def assert_found(self, result, check, *words):
        code, found = self.ask()
        self.assertEqual(result, found[check][0], found)
        self.assertEqual(result, code, found)
        for word in words:
            self.assertIn(word, found[check][1])

    def test_the_version(self):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            self.assertEqual(0, status.main(['--version']))
        self.assertEqual(opts.version() + '\n', output.getvalue())

    def test_another_word_than_check_is_refused(self):
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            self.assertEqual(255, status.main(['upgrade', 'chekc']))
        self.assertIn('no command "upgrade chekc"', err.getvalue())

    def test_all_is_well(self):
        code, found = self.ask()
        self.assertEqual((SUCCESS, 5), (code, len(found)), found)

    def test_a_database_without_the_last_migration(self):
        self.useFixture(fixtures.MockPatchObject(
            migration, 'head', lambda: '0002'))
        self.assert_found(FAILURE, 'Database schema', '0001', '0002',
                          'db sync')

    def test_a_database_of_a_newer_version(self):
        self.set_revision('9999')
        self.assert_found(FAILURE, 'Database schema', '9999', 'newer')

    def test_a_database_of_a_release_that_only_adds(self):
        self.set_revision('0999')
        self.assert_found(WARNING, 'Database schema', '0999',
                          migration.head(), 'Upgrade')

    def test_an_empty_database(self):
        self.configure(f'[database]\nconnection ='
                       f' sqlite:///{self.directory}/empty.sqlite\n')
        code, found = self.ask()
        self.assertEqual(FAILURE, code)
        for check in ('Database schema', 'Hosts'):
            self.assertEqual(FAILURE, found[check][0])
            self.assertIn('db sync', found[check][1])

    def test_hosts_that_are_dead(self):
        self.database.write(host_rows.expire_hosts, versioned.now())
        self.assert_found(WARNING, 'Hosts', 'h1', 'hub')

    def test_images_without_a_record(self):
        self.configure(f'[messaging]\nauthority_file ='
                       f' {self.write_file("authority", b"x")}\n')
        self.assert_found(WARNING, 'Records of images', 't1', 't2')

    def test_dangerous_options(self):
        self.configure('[data_plane]\nallow_plain = true\n')
        self.assert_found(WARNING, 'Dangerous options', 'allow_plain')

    def test_a_policy_of_json(self):
        policy = self.write_file('policy.json', b'{}')
        self.configure(f'[oslo_policy]\npolicy_file = {policy}\n')
        self.assert_found(FAILURE, 'Policy file', 'JSON')

    def test_a_configuration_that_cannot_be_read(self):
        code, found = self.ask('--config-file', '/nonexistent.conf')
        self.assertEqual((255, {}), (code, found))
        self.assertIn('/nonexistent.conf', self.printed)

    def test_a_database_that_does_not_answer(self):
        error = exceptions.ServiceUnavailable('it is down')
        with mock.patch.object(engine, 'errors_explained',
                               side_effect=error):
            code, found = self.ask()
        self.assertEqual(FAILURE, code)
        self.assertEqual((FAILURE, 'it is down'), found['Hosts'])


class NamesTest(base.ManageTest):

    def test_many_are_counted(self):
        self.assertEqual('a, b', status._names(['a', 'b']))
        self.assertEqual('a, b, c, d, e and 2 more',
                         status._names(list('abcdefg')))
