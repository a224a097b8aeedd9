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
"""What cannot be solved is refused with one line, by the real command."""

import json
import pathlib
import subprocess
import sys

from tests import base
from tests.unit.placement import shapes

_COMMAND = pathlib.Path(sys.executable).with_name('diffcache')


class TestBadInput(base.TestCase):

    def refuse(self, field, text):
        """Solve an instance; it is refused with one line that names field."""
        path = self.write_file('instance.json', text.encode())
        output = self.directory / 'placement.json'
        done = subprocess.run(
            [_COMMAND, 'placement', 'solve', path, '--output', output],
            capture_output=True, text=True)
        self.assertEqual((1, ''), (done.returncode, done.stdout))
        self.assertEqual(1, len(done.stderr.splitlines()), done.stderr)
        self.assertIn(field, done.stderr)
        self.assertIn(str(path), done.stderr)
        self.assertEqual([path], list(self.directory.iterdir()))

    def refuse_with(self, field, change):
        document = shapes.document('testbed_s0')
        change(document)
        self.refuse(field, json.dumps(document))

    def test_negative_size(self):
        self.refuse_with('sizes[1]', lambda d: d['sizes'].__setitem__(1, -5))

    def test_missing_sizes(self):
        self.refuse_with('sizes', lambda d: d.pop('sizes'))

    def test_missing_patch_size(self):
        self.refuse_with('patch_sizes[0]', lambda d: d['patch_sizes'][0].pop())

    def test_patch_to_itself(self):
        self.refuse_with('patch_sizes[0]', lambda d: d[
            'patch_sizes'].__setitem__(0, [2, 2, 10.0, 1.0]))

    def test_capacities_below_every_object(self):
        self.refuse_with('capacities', lambda d: d.update(
            capacities=[1] * len(d['capacities'])))

    def test_zero_demand(self):
        self.refuse_with('rates', lambda d: d.update(
            rates=[[0] * len(row) for row in d['rates']]))

    def test_not_a_number(self):
        self.refuse_with('rates[0]', lambda d: d['rates'][0].__setitem__(
            0, float('nan')))

    def test_infinite_size(self):
        self.refuse_with('sizes[0]', lambda d: d['sizes'].__setitem__(
            0, float('inf')))

    def test_pair_twice(self):
        self.refuse_with('patch_sizes[', lambda d: d['patch_sizes'].append(
            d['patch_sizes'][0]))

    def test_no_json(self):
        self.refuse('instance.json', '{"sizes": [')
