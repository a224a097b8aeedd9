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
"""Tests of what the help of a command shows."""

import argparse

from cliff import lister

from diffcache_openstack.common.commands import cli
from tests import base


class ListThings(cli.Command, lister.Lister):
    """List things.

    They are many.
    """

    examples = ('edge-1', 'edge-1 ' + '--option value ' * 5)
    arguments = (cli.Argument('site', help='Name of the site.'),
                 cli.Argument('--option', metavar='VALUE', help='Its value.'))

    def take_action(self, parsed_args):
        """Return no rows."""
        return (), ()


class TestHelps(base.TestCase):

    def help(self):
        parser = ListThings(None, None).get_parser('program thing list')
        return parser, parser.format_help()

    def test_each_example_has_lines_of_its_own(self):
        _parser, text = self.help()
        shown = text.partition('Examples:\n')[2].splitlines()
        self.assertEqual('  program thing list edge-1', shown[0])
        self.assertTrue(shown[1].endswith(' \\'))
        self.assertTrue(shown[2].startswith('      --option value'))

    def test_an_option_stays_with_its_value(self):
        _parser, text = self.help()
        for line in text.partition('Examples:\n')[2].splitlines():
            self.assertNotRegex(line, r'--option( \\)?$')

    def test_output_options_that_are_rarely_used_work_and_are_not_shown(self):
        parser, text = self.help()
        self.assertIn('--format', text)
        self.assertNotIn('--max-width', text)
        self.assertEqual(
            100, parser.parse_args(['x', '--max-width', '100']).max_width)

    def test_a_description_keeps_its_paragraphs(self):
        _parser, text = self.help()
        self.assertIn('List things.\n\nThey are many.', text)

    def test_a_parser_without_options_of_output(self):
        parser = argparse.ArgumentParser()
        cli.helps.shorten(parser)
        self.assertIn('--help', parser.format_help())
