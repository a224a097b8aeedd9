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
"""``--help`` of every command of every program, and the reference's page.

The page is built from the parsers by cliff's Sphinx extension, which makes
them without an application. What a program prints has to be the same.
"""

import argparse
import contextlib
import importlib.metadata
import io
import logging
import os
import pathlib
import re
from unittest import mock

from openstackclient import shell

from diffcache_openstack.agent.privileged import start
from diffcache_openstack.cmd import agent
from diffcache_openstack.cmd import api
from diffcache_openstack.cmd import conductor
from diffcache_openstack.cmd import console
from diffcache_openstack.cmd.manage import app as manage
from diffcache_openstack.cmd import services
from diffcache_openstack.cmd.toolbox import app as toolbox
from diffcache_openstack.common.commands import command_groups
from tests import base

PAGE = (pathlib.Path(__file__).parents[3] / 'doc' / 'source' / 'reference'
        / 'commands.rst')
OPTIONS_OF_SERVICES = PAGE.with_name('service-options.inc')
MANUAL = PAGE.parents[1] / 'man'
OURS = importlib.metadata.EntryPoints(
    point for name in ('diffcache-openstack', 'diffcache-openstack-plugins')
    for point in importlib.metadata.distribution(name).entry_points)
# What argparse prints before the help of an option.
OPTION = r'-[-\w]+(?: (?:\{[^}]*\}|[^\s,]+))?'
OPTIONS = re.compile(rf'(?m)^  ({OPTION}(?:, {OPTION})*)')


def one_line(text):
    """Text as it is before argparse breaks lines."""
    return ' '.join(text.split())


def option_names(text):
    """The options that a help text lists."""
    return {word for line in OPTIONS.findall(text)
            for word in re.findall(r'(?<![^ ])(-[-\w]+)', line)}


class ReferenceTest(base.TestCase):

    def setUp(self):
        super().setUp()
        # Each program adds its handlers to the root logger.
        root = logging.getLogger()
        self.addCleanup(setattr, root, 'handlers', list(root.handlers))
        self.addCleanup(root.setLevel, root.level)
        patch = mock.patch.dict(os.environ, COLUMNS='1000', TERM='dumb')
        patch.start()
        self.addCleanup(patch.stop)
        self.page = PAGE.read_text()

    def output(self, function, *args):
        """What a function prints; it may end the process, with 0."""
        out = io.StringIO()
        with (contextlib.redirect_stdout(out),
              contextlib.suppress(SystemExit)):
            self.assertEqual(0, function(out, *args))
        return out.getvalue()

    def assert_documented(self, namespace, program):
        self.assertRegex(self.page, rf'(?m)^\.\. autoprogram-cliff:: '
                         rf'{namespace}\n   :application: {program}$')

    def assert_help_is_reference(self, text, program, entry):
        name = entry.name.replace('_', ' ')
        parser = entry.load()(None, None).get_parser(f'{program} {name}')
        self.assertTrue(text.startswith(f'usage: {program} {name}'), text)
        flat = one_line(text)
        self.assertIn(one_line(parser.description), flat)
        for action in parser._actions:
            self.assertTrue(action.help, (name, action))
            if action.help != argparse.SUPPRESS:
                self.assertIn(one_line(action.help % vars(action)), flat)
        self.assertEqual(
            {each for action in parser._actions
             if action.help != argparse.SUPPRESS
             for each in action.option_strings}, option_names(text))


class TestPrograms(ReferenceTest):
    """The programs whose commands are all of this suite."""

    def help_of(self, program, *words):
        def run(out):
            instance = program()
            instance.stdout = out
            return instance.run([*words, '--help'])
        return self.output(run)

    def test_each_command(self):
        for program in (toolbox.Toolbox, manage.Manage):
            self.assert_documented(program.NAMESPACE, program.NAME)
            entries = OURS.select(group=program.NAMESPACE)
            self.assertLess(10, len(entries))
            for entry in entries:
                with self.subTest(program=program.NAME, command=entry.name):
                    text = self.help_of(program, *entry.name.split('_'))
                    self.assert_help_is_reference(text, program.NAME, entry)

    def test_each_group(self):
        for program in (toolbox.Toolbox, manage.Manage):
            names = console.CommandManager(program.NAMESPACE).commands
            for group in {name.split()[0] for name in names
                          if ' ' in name}:
                text = self.help_of(program, group)
                for name in names:
                    if name.startswith(f'{group} '):
                        self.assertRegex(text, rf'(?m)^  {name} +\w')

    def test_list_of_commands(self):
        for program in (toolbox.Toolbox, manage.Manage):
            text = self.help_of(program)
            for entry in OURS.select(group=program.NAMESPACE):
                name = entry.name.replace('_', ' ')
                self.assertRegex(text, rf'(?m)^  {name} +\w')


class TestOpenStackClient(ReferenceTest):
    """What ``openstack`` has of this suite."""

    NAMESPACE = 'openstack.diffcache.v1'

    def setUp(self):
        super().setUp()
        self.shell = shell.OpenStackShell()
        # From sys.argv, which is the test runner's.
        self.shell.NAME = 'openstack'
        self.output(self.run_shell, 'complete', '--shell', 'none', '--help')

    def run_shell(self, out, *words):
        self.shell.stdout = out
        return self.shell.run(list(words))

    def run_again(self, out, *words):
        """A command; what the shell has looked up once is known."""
        self.shell.stdout = out
        return self.shell.run_subcommand(list(words))

    def test_each_command(self):
        self.assert_documented(self.NAMESPACE, 'openstack')
        entries = OURS.select(group=self.NAMESPACE)
        self.assertLess(40, len(entries))
        for entry in entries:
            with self.subTest(command=entry.name):
                text = self.output(self.run_again, 'help',
                                   *entry.name.split('_'))
                self.assert_help_is_reference(text, 'openstack', entry)

    def groups(self):
        """First words that several commands have, and only ours."""
        groups = {tuple(words[:count]) for entry
                  in OURS.select(group=self.NAMESPACE)
                  for words in [entry.name.split('_')]
                  for count in range(2, len(words))}
        self.assertLess(10, len(groups))
        return groups

    def test_each_group(self):
        for words in self.groups():
            with self.subTest(group=' '.join(words)):
                text = self.output(self.run_again, 'help', *words)
                for entry in OURS.select(group=self.NAMESPACE):
                    name = entry.name.replace('_', ' ')
                    if name.startswith(' '.join(words) + ' '):
                        self.assertRegex(text, rf'(?m)^  {name} +\w')

    def test_group_alone_is_wrong_usage_and_lists_commands(self):
        self.shell.stderr = err = io.StringIO()
        for words in (['image', 'cache'], ['image', 'cache', 'nonsense']):
            self.assertEqual(2, self.shell.run(words))
            self.assertIn('image cache host list', err.getvalue())
            self.assertNotIn('image create', err.getvalue())

    def test_completion_knows_commands_below_groups(self):
        text = self.output(self.run_again, 'complete', '--shell', 'none')
        self.assertIn("cmds_image_cache_host_object='list'", text)
        self.assertRegex(text, r"cmds_server_version='create [^']*verify'")
        self.assertRegex(text, r"cmds_image_cache_lookup='-h --help")


class TestServices(ReferenceTest):

    PROGRAMS = (agent.program(start.Privileges({})), api.PROGRAM,
                conductor.PROGRAM)

    def test_each_option(self):
        section = self.page.partition('Services')[2]
        self.assertIn(f'.. include:: {OPTIONS_OF_SERVICES.name}', section)
        documented = set(re.findall(r'``(-[-\w]+)(?: \w+)?``',
                                    OPTIONS_OF_SERVICES.read_text()))
        for program in self.PROGRAMS:
            text = self.output(
                lambda _out: services.run(program, ['--help']))
            self.assertTrue(text.startswith(f'usage: {program.name} '))
            self.assertIn(one_line(program.description), one_line(text))
            self.assertEqual(option_names(text), documented)
            self.assertIn(f'``{program.name}``', section)


class TestScripts(ReferenceTest):

    def test_each_is_in_the_reference(self):
        for script in OURS.select(group='console_scripts'):
            self.assertRegex(self.page, rf'(?m)^{script.name}$|'
                             rf'``{script.name}``')

    def test_each_has_a_manual_page_and_so_have_the_daemons(self):
        self.assertEqual(
            {script.name for script in OURS.select(group='console_scripts')}
            | {'diffcached', 'diffcache-ssdcached'},
            {page.stem for page in MANUAL.glob('*.rst')})
        configuration = (MANUAL.parent / 'conf.py').read_text()
        for page in MANUAL.glob('*.rst'):
            self.assertRegex(configuration, rf"\('{page.stem}', [18], ")

    def test_groups_of_the_openstack_client_are_no_commands(self):
        for entry in OURS.select(group='openstack.extension'):
            self.assertIs(command_groups.Group, entry.load())
