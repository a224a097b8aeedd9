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
import hypothesis
from hypothesis import strategies

from diffcache_openstack.common import units
from tests import base


class TestParseSize(base.TestCase):

    def test_units(self):
        for text, count in (('0', 0), ('1024', 1024), ('5GB', 5 * 10 ** 9),
                            ('5 gib', 5 * 2 ** 30), ('1.5MB', 1500000),
                            ('2k', 2000), ('1TiB', 2 ** 40), ('7B', 7)):
            with self.subTest(text):
                self.assertEqual(count, units.parse_size(text))

    def test_nonsense(self):
        for text in ('', 'GB', '-1', '1 apple', '1iB', '0x10', '1e3', 'nan'):
            with self.subTest(text):
                self.assertRaises(ValueError, units.parse_size, text)

    @hypothesis.given(strategies.integers(0, 10 ** 18))
    def test_bare_number_is_itself(self, count):
        self.assertEqual(count, units.parse_size(count))


class TestFormatSize(base.TestCase):

    def test_digits(self):
        for count, text in ((0, '0 B'), (999, '999 B'), (1000, '1.0 kB'),
                            (1_500_000, '1.5 MB'), (999_600, '1.0 MB'),
                            (123_456_789, '123 MB'),
                            (5 * 10 ** 15, '5000 TB')):
            with self.subTest(text):
                self.assertEqual(text, units.format_size(count))

    @hypothesis.given(strategies.integers(0, 10 ** 16))
    def test_reads_back_within_a_twentieth(self, count):
        back = units.parse_size(units.format_size(count))
        self.assertLessEqual(abs(back - count), count / 20)


class TestDurations(base.TestCase):

    def test_transfer(self):
        self.assertEqual(100.0, units.transfer_seconds(100 * units.MB, 8.0))

    def test_units(self):
        for text, count in (('45s', 45), ('30m', 1800), ('6h', 21600),
                            ('1d', 86400), ('2w', 1209600)):
            self.assertEqual(count, units.parse_duration(text))

    def test_nonsense(self):
        for text in '', 'd', '7', '-1d', '1.5h', '1y', 'often':
            self.assertRaises(ValueError, units.parse_duration, text)

    @hypothesis.given(strategies.integers(1, 10 ** 9))
    def test_reads_back(self, count):
        self.assertEqual(count, units.parse_duration(
            units.format_duration(count)))


class TestOptions(base.TestCase):

    def test_within_bounds(self):
        found = units.Number(min=0.5, max=9)('0.5')
        self.assertEqual((float, 0.5), (type(found), found))
        self.assertEqual(9, units.Count(min=1, max=9)('9'))

    def test_others_are_refused(self):
        for kind in (units.Number(min=0.5, max=9), units.Count(min=1, max=9)):
            for text in ('', ' ', 'nan', 'inf', '-inf', '0', '10', 'x'):
                with self.subTest(kind=kind, text=text):
                    self.assertRaises(ValueError, kind, text)
        self.assertRaises(ValueError, units.Count(min=1, max=9), '1.5')
