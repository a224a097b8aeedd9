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
from diffcache_openstack.client.osc import formats
from diffcache_openstack.common.commands import cells
from tests import base


class TestColumns(base.TestCase):

    def test_task(self):
        task = {'id': 'x', 'kind': 'save', 'state': 'running',
                'done': 1_500_000, 'total': 3_000_000}
        column = formats.Task(task)
        self.assertEqual('save running, 1.5 MB of 3.0 MB (x)',
                         column.human_readable())
        self.assertEqual(task, column.machine_readable())
        for column in (formats.Task(None), formats.Task('')):
            self.assertEqual('', column.human_readable())
            self.assertEqual('', column.machine_readable())

    def test_disks(self):
        disks = [{'device': 'vda', 'size': 10 ** 9},
                 {'device': 'vdb', 'size': 5}]
        column = formats.Disks(disks)
        self.assertEqual('vda: 1.0 GB\nvdb: 5 B', column.human_readable())
        self.assertEqual(disks, column.machine_readable())
        self.assertEqual('', formats.Disks([]).human_readable())

    def test_result(self):
        result = {'method': 'rollback', 'bytes_written': 0}
        column = cells.Named(result)
        self.assertEqual('method: rollback\nbytes_written: 0',
                         column.human_readable())
        self.assertEqual(result, column.machine_readable())
        self.assertEqual(('', ''), (cells.Named(None).human_readable(),
                                    cells.Named(None).machine_readable()))

    def test_duration(self):
        for seconds, text in ((86400, '1d'), (21600, '6h'), (5400, '90m'),
                              (61, '61s'), (None, '')):
            column = cells.Duration(seconds)
            self.assertEqual(text, column.human_readable())
            self.assertEqual('' if seconds is None else seconds,
                             column.machine_readable())

    def test_links(self):
        links = {'local': 4000.0, 'repo': 20.0}
        column = formats.Links(links)
        self.assertEqual('local 4000 Mbit/s, repository 20 Mbit/s',
                         column.human_readable())
        self.assertEqual(links, column.machine_readable())
        self.assertEqual('repository 12.35 Mbit/s', formats.Links(
            {'peer': None, 'repo': 12.3456}).human_readable())

    def test_fill_limits(self):
        self.assertEqual('at most 2.0 MB/s, 22:00-06:00, sat 00:00-24:00',
                         formats.FillLimits({
                             'max_rate': 2 * 10 ** 6, 'windows': [
                                 '22:00-06:00', 'sat 00:00-24:00'],
                             'seconds_per_day': 1.0}).human_readable())
        self.assertEqual('no limit, at any time', formats.FillLimits({
            'max_rate': None, 'windows': [], 'seconds_per_day': 86400.0,
        }).human_readable())
        self.assertEqual('', formats.FillLimits(None).human_readable())

    def test_standings(self):
        counts = {'transfers': 3, 'failures': 1, 'bytes': 10 ** 9}
        self.assertEqual(
            'hub: answers, 18.5 Mbit/s, 3 transfers, 1 failures, 1.0 GB\n'
            'h1: does not answer since 2026-01-01T12:00:00Z (gone),'
            ' 3 transfers, 1 failures, 1.0 GB',
            formats.Standings([
                {'name': 'hub', 'answers': True, 'mbps': 18.5, **counts},
                {'host': 'h1', 'answers': False, 'mbps': None,
                 'since': '2026-01-01T12:00:00Z', 'reason': 'gone', **counts},
            ]).human_readable())
