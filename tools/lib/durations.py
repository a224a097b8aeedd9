#!/usr/bin/env python3
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
"""Give stestr the durations of tests before a first run has measured them.

Usage: durations.py seed <IDS
       durations.py measure STREAM... >tests/durations.txt

stestr balances its workers by the durations in its repository, ``.stestr``. A
fresh clone has none: all workers get as many tests, and the last one runs
minutes longer than the first.

seed
    Read the ids of tests, one a line. Unless the repository has the duration
    of one of them, add those of tests/durations.txt.
measure
    Read subunit streams of whole runs. Print, by class, the mean duration of a
    test in seconds; classes whose tests take less than 5 s in all are left
    out.
"""

import collections
import datetime
import pathlib
import sys
import typing

from stestr.repository import util
import subunit
import testtools

DURATIONS = pathlib.Path(__file__).resolve().parents[2] / 'tests/durations.txt'
# What all tests of a class take at least, in seconds, to be listed.
LISTED = 5
# What a test takes whose class is not listed, in seconds.
DEFAULT = 0.1


def class_of(test: str) -> str:
    """Return the class of a test's id."""
    return test.rpartition('.')[0]


def parse(text: str) -> dict[str, float]:
    """Return the mean seconds of a test, by class, of what measure printed."""
    rows = (line.split() for line in text.splitlines())
    return {name: float(seconds) for seconds, name in rows}


def seed(tests: list[str], durations: dict[str, float]) -> None:
    """Add durations to stestr's repository if it has none of these tests.

    They are added as a run that skipped all, so that it counts for no success
    if no other run follows.
    """
    repository = util.get_repo_open()
    if repository.get_test_times(tests)['known']:
        return
    run = repository.get_inserter()
    start = datetime.datetime.now(datetime.timezone.utc)
    run.startTestRun()
    for test in tests:
        seconds = durations.get(class_of(test), DEFAULT)
        run.status(test_id=test, test_status='inprogress', timestamp=start)
        run.status(test_id=test, test_status='skip',
                   timestamp=start + datetime.timedelta(seconds=seconds))
    run.stopTestRun()


def measure(paths: list[pathlib.Path]) -> list[str]:
    """Return the lines of tests/durations.txt for runs."""
    seconds: dict[str, list[float]] = collections.defaultdict(list)

    def add(test: dict[str, typing.Any]) -> None:
        start, stop = test['timestamps']
        if test['status'] == 'success' and start and stop:
            seconds[class_of(test['id'])].append(
                (stop - start).total_seconds())

    for path in paths:
        summary = testtools.StreamToDict(add)
        summary.startTestRun()
        with open(path, 'rb') as stream:
            subunit.ByteStreamToStreamResult(
                stream, non_subunit_name='stdout').run(summary)
        summary.stopTestRun()
    return [f'{sum(taken) / len(taken):.1f} {name}'
            for name, taken in sorted(seconds.items())
            if sum(taken) >= LISTED]


def main(arguments: list[str]) -> int:
    """Run the command line; return the exit code."""
    match arguments:
        case ['seed']:
            seed(sys.stdin.read().splitlines(), parse(DURATIONS.read_text()))
        case ['measure', *names] if names:
            print('\n'.join(measure([pathlib.Path(name) for name in names])))
        case _:
            print('usage: durations.py seed | measure STREAM...',
                  file=sys.stderr)
            return 2
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
