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
"""tools/check_constraints.py finds pins that are missing or do not fit."""

from tests import base
from tests.unit.tools import loading

check_constraints = loading.load('check_constraints')


class TestPins(base.TestCase):

    def test_names_are_canonical(self):
        self.assertEqual(
            {'oslo-log': '8.3.2'},
            check_constraints.pins('# a set\noslo.log==8.3.2\n'))

    def test_only_exact_versions(self):
        self.assertRaises(ValueError, check_constraints.pins, 'a>=1\n')

    def test_only_once(self):
        self.assertRaises(ValueError, check_constraints.pins, 'a==1\nA==2\n')


class TestProblems(base.TestCase):

    def problems(self, text: str) -> list[str]:
        return list(check_constraints.problems(text, {'oslo-log': '8.3.2'}))

    def test_satisfied(self):
        self.assertEqual([], self.problems('oslo.log>=7.0.0 # Apache-2.0\n'))

    def test_missing(self):
        self.assertEqual(
            ['numpy>=1.26: not in constraints.txt'],
            self.problems('numpy>=1.26\n'))

    def test_below_the_lower_bound(self):
        self.assertEqual(
            ['oslo.log>=9: constraints.txt has 8.3.2'],
            self.problems('oslo.log>=9\n'))
