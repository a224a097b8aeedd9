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
"""Commands that pages of the documentation have, and their options, exist."""

import importlib.metadata
import pathlib
import re

from tests import base

TREE = pathlib.Path(__file__).parents[3]
# Programs and the entry points of their commands.
PROGRAMS = {'openstack': 'openstack.diffcache.v1',
            'diffcache-manage': 'diffcache.manage',
            'diffcache': 'diffcache.toolbox'}
# Strings of formats begin like this.
NO_COMMANDS = ('version store ',)
# Literals, and lines of literal blocks.
LITERAL = re.compile(r'``([^`]+)``|^[ >$]* {3,}(\S.*)$', re.MULTILINE)
COMMAND = re.compile(
    r'(?:^|[\s(/])(openstack|diffcache-manage|diffcache(?! diffcache))'
    r'((?: --config-file \S+)?(?: [a-z][a-z-]*)+)([^|;#>)]*)')


def commands_of(text: str) -> set[tuple[str, str, str]]:
    """Return programs, first words and the rest of commands in a page."""
    text = re.sub(r'\s*\\\n\s*', ' ', text)
    return {(program, re.sub(r'--config-file \S+', '', words).strip(), rest)
            for literal in LITERAL.findall(text)
            for program, words, rest in COMMAND.findall(
                ' '.join(''.join(literal).split()))}


class TestPages(base.TestCase):

    def setUp(self):
        super().setUp()
        self.commands = {program: {
            point.name.replace('_', ' '): point
            for point in importlib.metadata.entry_points(group=group)}
            for program, group in PROGRAMS.items()}
        # Of OpenStack's commands, ours begin with two of these words; without
        # the others what is named like the program would count as one.
        self.beginnings = {
            'openstack': self.beginnings_of('openstack', 2),
            'diffcache': self.beginnings_of('diffcache', 1)}

    def beginnings_of(self, program: str, count: int) -> set[tuple[str, ...]]:
        return {tuple(name.split()[:count])
                for name in self.commands[program]}

    def problem(self, program: str, words: str, rest: str) -> str | None:
        """Return what is wrong with a command; None if nothing is."""
        known = self.commands[program]
        first = words.split()
        if words.startswith(NO_COMMANDS) or not any(
                tuple(first[:len(each)]) == each
                for each in self.beginnings.get(program, [()])):
            return None
        names = (' '.join(first[:count])
                 for count in range(len(first), 0, -1))
        name = next((each for each in names if each in known), None)
        if name is None:
            # Several commands may be meant by what they begin with.
            is_group = any(each.startswith(f'{words} ') for each in known)
            return None if is_group else 'there is no such command'
        parser = known[name].load()(None, None).get_parser(name)
        options = {option for action in parser._actions
                   for option in action.option_strings}
        unknown = set(re.findall(r'(?<=\s)--[a-z][\w-]*', f' {rest}')
                      ) - options
        return f'{name} has no {", ".join(unknown)}' if unknown else None

    def test_their_commands_exist_with_these_options(self):
        found, problems = 0, []
        for path in [TREE / 'README.rst',
                     *(TREE / 'doc/source').rglob('*.rst'),
                     *(TREE / 'doc/source').rglob('*.inc')]:
            for command in sorted(commands_of(path.read_text())):
                found += 1
                if problem := self.problem(*command):
                    problems.append(f'{path.relative_to(TREE)}:'
                                    f' {" ".join(command)}: {problem}')
        self.assertEqual([], problems)
        self.assertGreater(found, 300)

    def test_what_does_not_exist_is_found(self):
        text = ('``openstack image cache host boot-set list H``,\n'
                '``diffcache-manage host\nstatus``, ``diffcache-manage'
                ' --config-file F db sync``::\n\n'
                '    openstack server version task list \\\n'
                '        --kind rekey | cat --number  # --no\n'
                '    openstack server list --all-projects\n')
        self.assertEqual(
            {'host status': 'there is no such command',
             'image cache host boot-set list': 'there is no such command',
             'server version task list':
                 'server version task list has no --kind'},
            {words: problem for program, words, rest in commands_of(text)
             if (problem := self.problem(program, words, rest))})
