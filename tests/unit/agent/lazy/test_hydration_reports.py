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
"""When hydrations are reported."""

from diffcache_openstack.agent.lazy import hydration_reports
from diffcache_openstack.common import exceptions
from tests import base
from tests.unit import arriving


class Conductor:

    def __init__(self):
        self.reports = []
        self.error = None

    def report_hydrations(self, ctxt, host, found):
        if self.error is not None:
            raise self.error
        self.reports.append((host, [each.server_id for each in found]))


class TestReports(base.TestCase):

    def setUp(self):
        super().setUp()
        self.host = arriving.Host(self.directory, arriving.status())
        self.conductor = Conductor()
        self.reports = hydration_reports.HydrationReports(
            'h1', self.host.hydrations, self.conductor)

    def report(self):
        self.conductor.reports.clear()
        self.reports.report(None)
        return self.conductor.reports

    def test_while_there_are_any_and_once_when_there_are_none(self):
        self.assertEqual([('h1', [])], self.report())
        self.assertEqual([], self.report())
        self.host.boot('s1')
        for _ in range(2):
            self.assertEqual([('h1', ['s1'])], self.report())
        self.host.servers.remove('s1')
        self.assertEqual([('h1', [])], self.report())
        self.assertEqual([], self.report())
        self.reports.repeat()
        self.assertEqual([('h1', [])], self.report())

    def test_a_daemon_that_does_not_answer_says_nothing(self):
        self.host.boot('s1')
        self.report()
        self.host.daemon.error = exceptions.ServiceUnavailable('down')
        self.assertEqual([], self.report())

    def test_a_conductor_that_does_not_answer(self):
        self.host.boot('s1')
        self.conductor.error = exceptions.ServiceUnavailable('down')
        self.assertRaises(exceptions.ServiceUnavailable, self.report)
