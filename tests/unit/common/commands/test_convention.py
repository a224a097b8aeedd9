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
"""The convention of commands that the contributor guide states, checked.

Every command of every program is looked at, as its entry point declares it.
"""

import argparse
import importlib.metadata
import pathlib
import re
import shlex

from diffcache_openstack.cmd.manage import app as manage
from diffcache_openstack.cmd.toolbox import app as toolbox
from tests import base

PAGE = (pathlib.Path(__file__).parents[4] / 'doc' / 'source' / 'contributor'
        / 'commands.rst')
CLIENT = 'openstack.diffcache.v1'
NAMESPACES = (CLIENT, toolbox.Toolbox.NAMESPACE, manage.Manage.NAMESPACE)
# Words that stand for another, which the convention names.
NOT_WORDS = {'remove', 'get', 'add', 'object'}
AMOUNTS = {'size', 'rate', 'blocks', 'seconds', 'duration'}


def commands():
    """Each command's program, name, class and parser."""
    for namespace in NAMESPACES:
        for entry in importlib.metadata.entry_points(group=namespace):
            kind = entry.load()
            name = entry.name.replace('_', ' ')
            yield (namespace, name, kind,
                   kind(None, None).get_parser(f'test {name}'))


def options(parser):
    """Options of a command, without those of cliff."""
    for action in parser._actions:
        group = next((each.title for each in parser._action_groups
                      if action in each._group_actions), None)
        if group in ('options', 'optional arguments', 'positional arguments'):
            yield action


class TestConvention(base.TestCase):

    def each(self):
        found = list(commands())
        self.assertLess(120, len(found))
        return found

    def test_verbs_are_those_of_the_page(self):
        page = PAGE.read_text()
        verbs = {name.split()[-1] for _, name, _, _ in self.each()}
        self.assertEqual(set(), {verb for verb in verbs
                                 if f'``{verb}``' not in page})

    def test_words_of_names(self):
        for program, name, _kind, _parser in self.each():
            words = set(name.split())
            if 'host object list' in name:
                words.remove('object')
            self.assertEqual(set(), words & NOT_WORDS, (program, name))

    def test_lists_are_called_list_and_show_shows_one(self):
        for program, name, kind, _parser in self.each():
            verb = name.split()[-1]
            prints_rows = any(each.__module__ == 'cliff.lister'
                              for each in kind.__mro__)
            if verb == 'list':
                self.assertTrue(prints_rows, (program, name))
            if verb == 'show':
                self.assertFalse(prints_rows, (program, name))

    def test_what_is_set_can_be_unset(self):
        for namespace in NAMESPACES:
            names = {name for program, name, _, _ in self.each()
                     if program == namespace}
            for name in names:
                if name.endswith(' unset'):
                    self.assertIn(name.removesuffix('unset') + 'set', names)

    def test_pairs_of_options(self):
        for program, name, _kind, parser in self.each():
            names = {each for action in options(parser)
                     for each in action.option_strings}
            for option in names:
                self.assertNotRegex(option, r'^--not-(?!in-)', (program, name))
                found = re.match(r'--un(?!til)(\w.*)', option)
                if found:
                    self.assertIn(f'--{found[1]}', names, (program, name))

    def test_each_argument_has_a_help(self):
        for program, name, _kind, parser in self.each():
            for action in options(parser):
                where = (program, name, action.dest)
                self.assertTrue(action.help, where)
                if action.help != argparse.SUPPRESS:
                    self.assertRegex(action.help, r'^\S.{3}', where)
                    self.assertEqual(program != CLIENT or '-h' in
                                     action.option_strings,
                                     action.help.endswith('.')
                                     or '-h' in action.option_strings, where)

    def test_metavars(self):
        """Of the client in angle brackets, of our programs in capitals."""
        for program, name, _kind, parser in self.each():
            for action in options(parser):
                takes = action.nargs != 0 and not action.choices
                self.assertTrue(action.metavar or not takes,
                                (program, name, action.dest))
                if action.metavar and isinstance(action.metavar, str):
                    (self.assertRegex if program == CLIENT
                     else self.assertNotRegex)(
                        action.metavar, '^<.*>$', (program, name))

    def test_amounts_have_units(self):
        for program, name, _kind, parser in self.each():
            for action in options(parser):
                measure = getattr(action.type, 'measure', None)
                shown = str(action.metavar or '').strip('<>').lower()
                where = (program, name, action.dest)
                if measure:
                    self.assertEqual(measure, shown, where)
                elif shown in ('size', 'rate', 'bytes', 'mbps', 'mb/s'):
                    self.fail(f'{where}: no amount that has units')

    def test_each_help_has_an_example_that_can_be_parsed(self):
        for _program, name, kind, parser in self.each():
            self.assertTrue(kind.examples, name)
            for example in kind.examples:
                try:
                    parser.parse_args(shlex.split(example))
                except SystemExit:
                    self.fail(f'{name} {example}')
                self.assertIn(example.split(' --')[0], parser.format_help())
