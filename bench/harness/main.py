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
"""The command line of bench/run."""

import argparse
import collections.abc
import json
import os
import pathlib
import sys
import tempfile
import traceback
import typing

from bench.harness import cases
from bench.harness import errors
from bench.harness import processes
from bench.harness import runs

TREE = pathlib.Path(__file__).resolve().parents[2]
_METAVARS = {int: 'N', float: 'N', str: 'NAME', pathlib.Path: 'PATH'}
USAGE = 'bench/run [SUITE [CASE...]] [options]'


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return suite and cases, and the options behind them."""
    count = next((number for number, word in enumerate(arguments)
                  if word.startswith('-')), len(arguments))
    return arguments[:count], arguments[count:]


def explain(case: cases.Case) -> str:
    """Return what a case measures, shows and needs, for its help."""
    lines = [case.about, 'Shown in: ' + ', '.join(
        f'doc/source/{page}.rst' for page in case.pages)]
    if case.needs:
        lines.append('Programs: ' + ', '.join(case.needs))
    return '\n'.join(lines + ['Needs root.'] * case.root)


def build_parser(suite: str | None, chosen: list[cases.Case],
                 named: bool) -> argparse.ArgumentParser:
    """Return the parser for what was chosen.

    :param named: whether cases were named
    """
    if suite is None:
        about = ('Measure this suite, and other programs beside it.\n\n'
                 'suites:\n' + '\n'.join(
                     f'  {name:10} {cases.describe(name).splitlines()[0]}'
                     for name in cases.SUITES)
                 + '\n\nbench/run SUITE --help lists the cases of a suite, '
                 'bench/run SUITE CASE --help\nthe options of a case.')
    elif named:
        about = '\n\n'.join(f'{case.suite} {case.name}: {explain(case)}'
                            for case in chosen)
    else:
        about = cases.describe(suite) + '\n\ncases:\n' + '\n'.join(
            f'  {case.name:14} {case.about}' for case in chosen)
    parser = argparse.ArgumentParser(
        prog='bench/run', usage=USAGE, description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS)
    parser.add_argument('--list', action='store_true',
                        help='list the cases, and the pages that show them')
    parser.add_argument('--quick', action='store_true',
                        help='tiny sizes, to see that it works')
    parser.add_argument('--again', action='store_true',
                        help='measure what was measured before anew')
    parser.add_argument('--output', type=pathlib.Path, metavar='DIR',
                        help='folder of the results SUITE-CASE.json, .inc (a '
                        'table in reStructuredText) and .svg or .png (a '
                        'chart); default: .state/bench')
    parser.add_argument('--work', type=pathlib.Path, metavar='DIR',
                        help='folder for temporary files; default: /tmp')
    parser.add_argument('-f', '--format', choices=('table', 'json', 'rst'),
                        help='of standard output; default: table')
    for option, owners in _options(chosen):
        parser.add_argument(
            '--' + option.name.replace('_', '-'),
            help=_help(option, owners if len(chosen) > 1 else []),
            **_settings(option))
    return parser


def _settings(option: cases.Option) -> dict[str, typing.Any]:
    """Return the settings of an option's argument."""
    if option.type is bool:
        return {'action': 'store_true'}
    return {'type': option.type, 'choices': option.choices or None,
            'nargs': '+' if option.many else None,
            'metavar': _METAVARS[option.type]}


def _options(chosen: list[cases.Case],
             ) -> list[tuple[cases.Option, list[str]]]:
    """Return the options of cases, each with the names of its cases."""
    found: dict[str, tuple[cases.Option, list[str]]] = {}
    for case in chosen:
        for option in case.options:
            found.setdefault(option.name, (option, []))[1].append(case.name)
    return list(found.values())


def _help(option: cases.Option, owners: list[str]) -> str:
    """Return the help of an option, with its values and whose it is."""
    def words(values: tuple) -> str:
        return ', '.join(map(str, values) if ' ' not in ''.join(map(
            str, values)) else map(repr, values))

    parts = [option.help]
    if option.choices:
        parts.append('of: ' + words(option.choices))
    if option.default not in (None, False, (), option.choices):
        parts.append('default: ' + words(
            option.default if option.many else (option.default,)))
    if owners:
        parts.append('for ' + ', '.join(owners))
    return '; '.join(parts).replace('%', '%%')


def values(case: cases.Case, given: dict, quick: bool) -> dict:
    """Return the values of a case's options."""
    return {option.name: given.get(
        option.name, option.quick if quick and option.quick is not None
        else option.default) for option in case.options}


def show_list(chosen: list[cases.Case], form: str) -> None:
    """Print cases, and the pages that show them."""
    if form == 'json':
        print(json.dumps([{
            'suite': case.suite, 'case': case.name, 'about': case.about,
            'pages': case.pages, 'needs': case.needs, 'root': case.root}
            for case in chosen], indent=1))
        return
    for case in chosen:
        print(f'{case.suite:9} {case.name:15} {", ".join(case.pages)}')


def measure(case: cases.Case, given: dict) -> runs.Run:
    """Run a case; its result is written.

    :raises BenchError: it cannot run, or found something wrong
    """
    processes.require(case.needs)
    if case.root and os.geteuid():
        raise errors.BenchError('needs root: it mounts, or changes networks')
    output = given['output']
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
            prefix=f'bench-{case.suite}-', dir=given.get('work')) as work:
        quick = given.get('quick', False)
        run = runs.Run(case, values(case, given, quick), output,
                       pathlib.Path(work), quick=quick,
                       again=given.get('again', False))
        try:
            case.load()(run)
        finally:
            run.write()
        run.finish()
    return run


def main(arguments: collections.abc.Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    names, options = split(list(sys.argv[1:] if arguments is None
                                else arguments))
    try:
        chosen = (cases.find(names[0], names[1:]) if names
                  else cases.everything())
    except errors.BenchError as error:
        print(f'bench/run: {error}', file=sys.stderr)
        return 2
    parser = build_parser(names[0] if names else None,
                          chosen if names else [], len(names) > 1)
    given = {'output': TREE / '.state' / 'bench', 'format': 'table',
             **vars(parser.parse_args(options))}
    if given.get('list'):
        show_list(chosen, given['format'])
        return 0
    if not names:
        parser.print_help()
        return 2
    # Commands of this environment, and tools of the administrator.
    os.environ['PATH'] = os.pathsep.join([
        str(pathlib.Path(sys.executable).parent), os.environ['PATH'],
        '/usr/sbin', '/sbin'])
    return run_all(chosen, given)


def run_all(chosen: list[cases.Case], given: dict) -> int:
    """Run cases in turn, and print their results; return the exit code."""
    done, failed = [], 0
    for case in chosen:
        try:
            run = measure(case, given)
        except errors.BenchError as error:
            print(f'bench/run: {case.suite} {case.name}: {error}',
                  file=sys.stderr)
            failed += 1
            continue
        except Exception:
            # The other cases can still be measured.
            traceback.print_exc()
            failed += 1
            continue
        done.append(run.document)
        if given['format'] != 'json':
            for table in run.tables:
                print(table.rst() if given['format'] == 'rst'
                      else table.text())
        runs.say(run.document['machine'])
    if given['format'] == 'json':
        print(json.dumps(done, indent=1, default=str))
    return int(failed > 0)
