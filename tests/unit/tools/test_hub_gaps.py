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
"""What the meter of eventlet's hub notes of a gap."""

import subprocess
import sys
from unittest import mock

from testing import hub_gaps
from tests import base


class TestMeter(base.TestCase):

    def noted(self, *, wall, computed, queued):
        """What is noted of one wait: of the gap, and beside stacks."""
        path = self.directory / 'gaps'
        meter = hub_gaps.Meter(path)
        clocks = [hub_gaps._Clocks(0.0, 0.0, 0.0),
                  hub_gaps._Clocks(wall, computed, queued)]

        def now():
            if len(clocks) == 1:
                meter.stop()
            return clocks.pop(0)

        with mock.patch.object(hub_gaps._Clocks, 'now', now), \
                mock.patch.object(hub_gaps, '_START_SECONDS', -float('inf')), \
                mock.patch.object(hub_gaps.time, 'sleep'):
            meter._measure()
        return [[words.split()[1:] for words in found.read_text().splitlines()]
                if found.exists() else []
                for found in (path, path.with_name('gaps-stacks'))]

    def test_a_long_gap_is_told_from_computing_and_queueing(self):
        gaps, stacks = self.noted(wall=4.05, computed=0.5, queued=1.0)
        self.assertEqual([['3.000', '0.500']], gaps)
        self.assertEqual(gaps, stacks)

    def test_a_short_gap_has_no_stacks(self):
        gaps, stacks = self.noted(wall=0.25, computed=0.2, queued=0.0)
        self.assertEqual([['0.200', '0.200']], gaps)
        self.assertEqual([], stacks)

    def test_a_queue_for_a_processor_is_no_gap(self):
        self.assertEqual([[], []],
                         self.noted(wall=9.0, computed=0.0, queued=8.95))


class TestProgram(base.TestCase):

    def test_stacks_of_a_thread_that_holds_the_interpreter(self):
        path = self.directory / 'gaps'
        subprocess.run(
            [sys.executable, '-m', 'testing.hub_gaps', path,
             'tests.unit.tools.holding', f'{path}-stacks'],
            stdin=subprocess.DEVNULL, check=True, timeout=300)
        stacks = path.with_name('gaps-stacks').read_text()
        self.assertRegex(stacks, r'No beat; thread [0-9]+: [A-Z]')
        self.assertIn('in hold', stacks)
