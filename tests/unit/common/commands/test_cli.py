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

from diffcache_openstack.common.commands import cli
from tests import base


class TestNumbers(base.TestCase):

    def refused(self, parse, *texts):
        """Return what is said of texts that are all refused alike."""
        [reason] = {
            str(self.assertRaises(argparse.ArgumentTypeError, parse, text)
                ).replace(repr(text), 'X') for text in texts}
        return reason

    def test_whole(self):
        parse = cli.whole(1, 9)
        self.assertEqual([1, 9], [parse(text) for text in ('1', '9')])
        self.assertEqual('X is not a whole number 1..9', self.refused(
            parse, '0', '10', '1.5', '', 'nan', 'x', '1' * 5000))
        self.assertEqual('X is not a whole number of at least 0',
                         self.refused(cli.whole(0), '-1'))

    def test_a_limit_of_the_format_is_not_named(self):
        self.assertEqual('X is not a whole number of at least 0',
                         self.refused(cli.whole(0, 2 ** 63 - 1), 'big'))

    def test_real(self):
        parse = cli.real(0, 1)
        self.assertEqual([0, .5, 1], list(map(parse, ('0', '.5', '1'))))
        self.assertEqual('X is not a number 0..1', self.refused(
            parse, '-1', '1.1', 'nan', 'inf', ''))
        self.assertEqual(-2.5, cli.real()('-2.5'))
        self.assertEqual('X is not a number', self.refused(
            cli.real(), 'inf', '-inf', 'nan', '1e999'))

    def test_positive(self):
        self.assertEqual(.1, cli.positive()('.1'))
        self.assertEqual('X is not a number above 0', self.refused(
            cli.positive(), '0', '-1', 'nan', 'inf'))
        self.assertEqual('X is not a number above 0, and at most 10',
                         self.refused(cli.positive(10), '0', '11'))


class TestAmounts(base.TestCase):

    def test_sizes(self):
        parse = cli.size(1, 10 ** 12)
        for text, count in (('4096', 4096), ('100MB', 10 ** 8),
                            ('2GiB', 2 << 30), ('1.5kB', 1500)):
            self.assertEqual(count, parse(text))
        for text in ('0', '2TB', 'much', '-5MB', 'nan', 'inf'):
            self.assertRaises(argparse.ArgumentTypeError, parse, text)

    def test_what_a_bare_number_counts(self):
        parse = cli.size(-10 ** 12, bare=10 ** 6)
        self.assertEqual([5 * 10 ** 6, -2.5e6, -5 * 10 ** 9],
                         [parse(text) for text in ('5', '-2.5', '-5GB')])

    def test_blocks(self):
        parse = cli.blocks(1, 1 << 20)
        self.assertEqual([7, 524288], [parse('7'), parse('2GiB')])
        for text in ('0', '1kB', '100GiB'):
            self.assertRaises(argparse.ArgumentTypeError, parse, text)
        self.assertEqual(1, cli.blocks(bare=1)('4096'))

    def test_rates(self):
        for text in ('20', '20MBps', '160Mbps', '160Mbit/s', '20MB/s', '20MB'):
            self.assertEqual(20_000_000, cli.rate(bare=10 ** 6)(text))
        self.assertEqual(20, cli.rate()('20'))
        for text in ('0', '-1', 'fast', 'nan', '20MBpm', 'Mbps'):
            self.assertRaises(argparse.ArgumentTypeError, cli.rate(), text)
        self.assertEqual([200.0, 160.0, 1000.0], [
            cli.bandwidth(text) for text in ('200', '20MBps', '1Gbps')])

    def test_seconds(self):
        self.assertEqual([90, .5, 1800, 86400], [
            cli.seconds()(text) for text in ('90', '.5', '30m', '1d')])
        self.assertEqual(0, cli.seconds(0)('0'))
        for text in ('0', '-1', 'soon', '5y', 'nan'):
            self.assertRaises(argparse.ArgumentTypeError, cli.seconds(), text)
