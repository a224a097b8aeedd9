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
"""tools/lib/support.py: the table of what was tried with each series."""

import datetime
import json
import sys
from unittest import mock

from tests import base
from tests.unit.tools import loading

with mock.patch.dict(sys.modules, results=loading.load('lib/results')):
    support = loading.load('lib/support')


class TestSupport(base.TestCase):

    def record(self, series: str, **more):
        return {'series': series, 'system': 'Debian 12',
                'command': f'tools/test series {series}',
                'python': '3.11.2', 'packages': {'nova': '31.3.1'},
                'largest_hub_gap_seconds': None, 'features': {}, **more}

    def test_the_last_result_of_a_test_counts(self):
        tests = support.Tests()
        name = 'tests.functional.openstack.test_nova_lazy.TestLazy.test_a'
        tests.add('failed', name)
        tests.add('passed', name)
        tests.add('skipped', 'tests.unit.nova.test_x')
        self.assertEqual({'passed': 1}, tests.of(
            support.FEATURES['Lazy boot, also while the WAN is away']))

    def test_what_was_not_tried_is_said_so(self):
        for found in ({}, {'skipped': 3}):
            self.assertEqual('not tried', support.cell(found))
        self.assertEqual('2 of 3 passed, 2026-11-29', support.cell(
            {'passed': 2, 'failed': 1, 'date': '2026-11-29'}))

    def test_what_was_not_tried_again_stays_as_it_was(self):
        tests = support.Tests()
        tests.add('passed', 'tests.unit.nova.test_x')
        before = {'Unit tests of the plug-ins': {'failed': 1, 'date': 'then'},
                  'Tempest plug-in': {'passed': 2, 'date': 'then'}}
        found = support.counted(tests, before)
        today = datetime.date.today().isoformat()
        self.assertEqual({'passed': 1, 'date': today},
                         found['Unit tests of the plug-ins'])
        self.assertEqual(before['Tempest plug-in'], found['Tempest plug-in'])
        self.assertEqual({}, found["Glance's image cache"])

    def test_other_packages_are_tried_anew(self):
        folder = self.directory
        (folder / '2025.1.json').write_text(
            json.dumps(self.record('2025.1')))
        with mock.patch.object(support, 'FOLDER', folder):
            self.assertEqual('2025.1', support.earlier(
                '2025.1', {'nova': '31.3.1'})['series'])
            for series, nova in ('2025.1', '31.3.2'), ('2025.2', '31.3.1'):
                self.assertEqual({}, support.earlier(series, {'nova': nova}))

    def test_the_largest_gap_is_that_of_all_runs(self):
        before = {support.GAP: 0.25}
        self.assertEqual({}, support.largest_gap(self.directory, {}))
        self.assertEqual(before, support.largest_gap(self.directory, before))
        (self.directory / 'compute-1-nova.log').touch()
        self.assertEqual({support.GAP: None},
                         support.largest_gap(self.directory, {}))
        (self.directory / 'compute-1-hub-gaps').write_text('1.0 0.125\n')
        self.assertEqual({support.GAP: 0.125},
                         support.largest_gap(self.directory, {}))
        self.assertEqual(before, support.largest_gap(self.directory, before))

    def test_the_table_of_the_documentation_is_of_today(self):
        self.assertEqual(support.table(support.records()),
                         support.TABLE.read_text())

    def test_a_column_for_each_series(self):
        table = support.table([
            self.record('2025.1', largest_hub_gap_seconds=0.125),
            self.record('2026.2', features={
                'Tempest plug-in': {'passed': 7, 'date': '2026-11-29'}}),
            {'series': '2027.1'}])
        self.assertIn('     - 2025.1 (Nova 31.3.1)\n', table)
        self.assertIn('   * - Tempest plug-in\n     - not tried\n'
                      '     - 7 of 7 passed, 2026-11-29\n'
                      '     - not tried\n', table)
        self.assertIn('     - 0.12 s\n     - no eventlet\n'
                      '     - not tried\n', table)
        self.assertIn('     - ``tools/test series 2026.2``\n', table)
