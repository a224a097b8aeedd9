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
from unittest import mock

from oslo_db import exception as db_errors

from diffcache_openstack.common import exceptions
from diffcache_openstack.conductor import liveness
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack.objects import versioned
from tests.unit.db import database

_TIMEOUT = 60


class TestLiveness(database.DatabaseTest):

    def setUp(self):
        super().setUp()
        self.conf.set_override('host_timeout', _TIMEOUT, 'conductor')
        self.now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
        clock = mock.patch.object(versioned, 'now', lambda: self.now)
        clock.start()
        self.addCleanup(clock.stop)
        self.report()
        self.queue = mock.Mock(return_value=None)
        self.liveness = self.started()

    def started(self):
        return liveness.Liveness(self.conf, self.database, self.queue)

    def report(self):
        self.write(host_rows.put_host, database.host('h1'), versioned.now())

    def wait(self, seconds):
        self.now += datetime.timedelta(seconds=seconds)

    def check(self):
        """The names of those that are declared dead."""
        return self.liveness.check()[0]

    def test_silent_hosts_are_declared_dead_once(self):
        self.wait(_TIMEOUT + 1)
        names, changed = self.liveness.check()
        self.assertEqual((['h1'], {database.SITE}), (names, changed))
        self.assertEqual([], self.check())

    def test_hosts_that_report_live(self):
        self.wait(_TIMEOUT - 1)
        self.report()
        self.wait(_TIMEOUT - 1)
        self.assertEqual([], self.check())

    def test_silence_while_no_conductor_ran_does_not_count(self):
        self.wait(10 * _TIMEOUT)
        self.liveness = self.started()
        self.assertEqual([], self.check())
        self.wait(_TIMEOUT - 1)
        self.assertEqual([], self.check())
        self.wait(2)
        self.assertEqual(['h1'], self.check())

    def test_silence_while_the_database_was_away_does_not_count(self):
        self.wait(_TIMEOUT + 1)
        with mock.patch.object(self.database, 'read',
                               side_effect=db_errors.DBConnectionError):
            self.assertRaises(db_errors.DBConnectionError, self.check)
        self.assertEqual([], self.check())
        self.wait(_TIMEOUT + 1)
        self.assertEqual(['h1'], self.check())

    def test_hosts_whose_heartbeats_wait_in_the_queue_live(self):
        self.queue.side_effect = self.report
        self.wait(_TIMEOUT + 1)
        self.assertEqual([], self.check())

    def test_silence_while_the_queue_stood_still_does_not_count(self):
        self.queue.side_effect = exceptions.ServiceUnavailable('no answer')
        self.wait(_TIMEOUT + 1)
        self.assertEqual([], self.check())
        self.queue.side_effect = None
        self.assertEqual([], self.check())
        self.wait(_TIMEOUT + 1)
        self.assertEqual(['h1'], self.check())

    def test_while_all_report_nothing_is_sent(self):
        self.wait(_TIMEOUT - 1)
        self.check()
        self.queue.assert_not_called()
