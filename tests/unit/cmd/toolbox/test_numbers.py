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
import argparse

from diffcache_openstack.cmd.toolbox import numbers
from tests import base


class TestNumbers(base.TestCase):

    def refused(self, parse, *texts):
        """Return what is said of texts that are all refused alike."""
        [reason] = {
            str(self.assertRaises(argparse.ArgumentTypeError, parse, text)
                ).replace(repr(text), 'X') for text in texts}
        return reason

    def test_whole(self):
        parse = numbers.whole(1, 9)
        self.assertEqual([1, 9], [parse(text) for text in ('1', '9')])
        self.assertEqual('X is not a whole number 1..9', self.refused(
            parse, '0', '10', '1.5', '', 'nan', 'x', '1' * 5000))
        self.assertEqual('X is not a whole number of at least 0',
                         self.refused(numbers.whole(0), '-1'))

    def test_real(self):
        parse = numbers.real(0, 1)
        self.assertEqual([0, .5, 1], list(map(parse, ('0', '.5', '1'))))
        self.assertEqual('X is not a number 0..1', self.refused(
            parse, '-1', '1.1', 'nan', 'inf', ''))
        self.assertEqual(-2.5, numbers.real()('-2.5'))
        self.assertEqual('X is not a number', self.refused(
            numbers.real(), 'inf', '-inf', 'nan', '1e999'))

    def test_positive(self):
        self.assertEqual(.1, numbers.positive()('.1'))
        self.assertEqual('X is not a number above 0', self.refused(
            numbers.positive(), '0', '-1', 'nan', 'inf'))
        self.assertEqual('X is not a number above 0, and at most 10',
                         self.refused(numbers.positive(10), '0', '11'))
