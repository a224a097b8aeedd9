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
"""tools/test: its stages, and what it counts of them."""

import configparser
import os
import re
import shutil
import subprocess
import sys
from unittest import mock

from tests import base
from tests.unit.tools import loading

SCRIPT = loading.TREE / 'tools' / 'test'
# The Python that runs the tests has what tools/lib/results.py imports.
PATH = f'{os.path.dirname(sys.executable)}:{os.environ["PATH"]}'
STAGE = loading.TREE / 'tools' / 'lib' / 'stage'


def bash(script: str, *arguments: str) -> str:
    """Run a script that may use the functions of tools/test."""
    return subprocess.run(
        # Sourced under another name, it runs nothing.
        ['bash', '-c', f'script=$1; shift; . "$script"; {script}', 'bash',
         SCRIPT, *arguments],
        check=True, capture_output=True, text=True,
        env=os.environ | {'PATH': PATH}).stdout.strip()


def defined() -> set[str]:
    """Return the names of the stages that are defined."""
    return set(re.findall(r'^run_(\w+)\(\)', STAGE.read_text(), re.M))


class TestStages(base.TestCase):

    def test_each_is_defined_and_in_the_help(self):
        names = bash('echo "${STAGES[@]}" "${EXTRA[@]}"').split()
        text = bash('usage')
        self.assertEqual(set(), {*names} - defined())
        for name in [*names, 'all']:
            self.assertRegex(text, f'(?m)^  {name} ')

    def test_all_runs_what_else_is_run_only_if_named(self):
        wanted = 'parse_arguments "$@"; echo "${WANTED[@]}"'
        stages = bash('echo "${STAGES[@]}"')
        self.assertEqual(stages, bash(wanted))
        self.assertEqual(
            f'{stages} release debian bare campaigns series trials',
            bash(wanted, 'all'))
        self.assertEqual('series 2025.1', bash(
            'parse_arguments "$@"; echo "${WANTED[@]}" "${ARGUMENTS[@]}"',
            'series', '2025.1'))
        for arguments in ['--fast'], ['--fast', 'all']:
            self.assertEqual(
                'lint unit native functional docs package dashboard'
                + (' release debian bare campaigns' if 'all' in arguments
                   else ''),
                bash(wanted, *arguments))

    def test_processes_keep_compiled_modules(self):
        with mock.patch.dict(os.environ, PYTHONDONTWRITEBYTECODE='1'):
            self.assertEqual(
                'False', bash('python -c "import sys;'
                              ' print(sys.dont_write_bytecode)"'))

    def test_tox_runs_stages_and_nothing_else(self):
        tox = configparser.ConfigParser(interpolation=None)
        tox.read(loading.TREE / 'tox.ini')
        for name in tox.sections():
            if name.startswith('testenv') and name != 'testenv:venv':
                [command] = tox[name]['commands'].split('\n')[1:]
                program, stage, _rest = command.split(maxsplit=2)
                self.assertEqual('{toxinidir}/tools/lib/stage', program)
                self.assertIn(stage, defined())


class TestRunStage(base.TestCase):
    """The totals, with stages that a test says."""

    def setUp(self):
        super().setUp()
        tools = self.directory / 'tools'
        (tools / 'lib').mkdir(parents=True)
        shutil.copy(STAGE.with_name('results.py'), tools / 'lib')
        self.stage = tools / 'lib' / 'stage'

    def write_stage(self, *commands: str) -> None:
        self.stage.write_text('\n'.join((
            '#!/usr/bin/env bash', 'mkdir -p "$2/results/$1"',
            'RESULTS=$2/results/$1', f'. {STAGE.with_name("checks.sh")}',
            *commands, '')))
        self.stage.chmod(0o755)

    def execute(self, command: str) -> str:
        return bash(
            'set -e; cd "$1"; WORK=$1 PASSED=0 FAILED=0 SKIPPED=0 SUMMARY=()'
            f' FAILED_STAGES=() FAILURES=(); {{ {command}; }} >"$1/out";'
            ' echo $PASSED $FAILED $SKIPPED "${FAILED_STAGES[@]}"'
            ' "${FAILURES[@]}"',
            str(self.directory))

    def totals(self, *commands: str, seconds: int = 60, arguments: str = ''
               ) -> str:
        self.write_stage(*commands)
        return self.execute(
            f'STAGE_SECONDS={seconds}; run_stage unit {arguments}')

    def test_checks(self):
        self.assertEqual('2 0 0', self.totals(
            'check one true', 'check two true', 'finish_checks'))
        self.assertEqual('1 1 0 unit unit: two', self.totals(
            'check one true', 'check two false', 'finish_checks'))

    def test_a_stage_that_fails_counts_as_a_failure(self):
        self.assertEqual('1 1 0 unit unit: ended with exit status 3',
                         self.totals('check one true', 'exit 3'))

    def test_a_stage_that_runs_nothing_counts_as_a_failure(self):
        self.assertEqual('0 1 0 unit', self.totals('exit 0'))

    def test_what_a_stage_prints_is_not_counted(self):
        self.assertEqual('1 0 0', self.totals(
            'check one true', 'echo "check two: failed"',
            'echo " - Failed: 3"'))

    def test_a_stage_that_takes_too_long_tidies_up(self):
        totals = self.totals(
            'trap "sleep 1; check tidied true" EXIT', 'sleep 60',
            # Until then a shell has begun, also on a busy machine.
            seconds=4)
        self.assertEqual('1 1 0 unit unit: ended with exit status 124', totals)
        # An OpenStack is slower than that.
        self.assertGreaterEqual(int(bash('echo $END_SECONDS')), 120)

    def test_arguments_are_the_stage_s(self):
        self.assertEqual('1 0 0', self.totals(
            'check given [ "$3,$4,$#" = "a b,--failing,4" ]',
            'finish_checks', arguments="'a b' --failing"))

    def test_the_slowest_tests_are_shown(self):
        table = ['Test id                   Runtime (s)',
                 '------------------------  -----------',
                 'tests.functional.one.One       20.013',
                 'tests.functional.one.Two        3.000']
        self.totals('check one true', 'cat <<END', 'tests.functional.one.One',
                    *table, '[ 3s] stopping', 'tests.other', 'END',
                    'finish_checks')
        self.assertEqual(
            table, (self.directory / 'out').read_text().splitlines()[1:])

    def test_stages_that_run_beside_others_are_counted(self):
        # The first one waits for what the one beside it does.
        self.write_stage(
            'if [ "$1" = functional ]; then',
            '    until [ -e "$2/results/docs/stage.checks" ]; do',
            '        sleep 0.1; done',
            'fi', 'if [ "$1" = docs ]; then check it false; else',
            '    check it true; fi', 'finish_checks')
        self.assertEqual('2 1 0 docs docs: it', self.execute(
            'WANTED=(lint docs functional); run_stages;'
            ' printf "%s\\n" "${SUMMARY[@]}"'))
        lines = (self.directory / 'out').read_text().splitlines()
        self.assertEqual(['lint', 'functional', 'docs'],
                         [line.split()[0] for line in lines[-3:]])

    def test_those_that_take_hours_run_alone(self):
        self.write_stage('echo "$1" >>"$2/order"; check it true')
        self.assertEqual('4 0 0', self.execute(
            'WANTED=(trials docs lint unit); run_stages'))
        order = (self.directory / 'order').read_text().split()
        self.assertEqual('trials', order[-1])
        order.remove('docs')
        self.assertEqual(['lint', 'unit', 'trials'], order)

    def test_results_that_cannot_be_read(self):
        self.assertEqual('0 1 0 unit', self.totals(
            'mkdir "$RESULTS/a.checks"'))


class TestArguments(base.TestCase):

    def test_what_one_stage_is_given(self):
        self.assertEqual('trials: a.b --failing', bash(
            'parse_arguments "$@"; echo "${WANTED[*]}: ${ARGUMENTS[*]}"',
            'trials', '--', 'a.b', '--failing'))

    def test_stages_that_take_arguments_pass_them_on(self):
        text = STAGE.read_text()
        for name in bash('echo "${TAKING[@]}"').split():
            [body] = re.findall(rf'(?ms)^run_{name}\(\) {{\n(.*?)^}}', text)
            self.assertRegex(body, r'\$(\{?@|\{@)')

    def test_wrong_usage(self):
        for arguments in (['--slow'], ['nonsense'], ['--state'],
                          ['--fast', 'trials'], ['trials', '--'],
                          ['--', 'test_glance'], ['docs', '--', 'x'],
                          ['unit', 'trials', '--', 'x'], ['all', '--', 'x']):
            with self.subTest(arguments=arguments):
                result = subprocess.run(
                    [SCRIPT, *arguments], capture_output=True, text=True)
                self.assertEqual(2, result.returncode)
                self.assertEqual('', result.stdout)
                self.assertIn('usage: tools/test', result.stderr)
