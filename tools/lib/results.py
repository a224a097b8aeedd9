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
"""Add up the results that a stage of tools/test left.

Usage: results.py DIR

Prints how many tests and checks passed, failed and were skipped, then the name
of each that failed, one a line. The files of DIR are read by their ending:

``.subunit``
    The stream of a run of stestr. A test that began and did not end failed.
``.checks``
    One line for each check of tools/lib/checks.sh: ``passed``, ``failed`` or
    ``skipped``, a tabulator, and its name.
``.libtest``
    What ``cargo test`` printed. Stable Rust has no other format for tests (its
    JSON needs a nightly compiler); the line that ends each test program is
    counted, and the lines of tests that failed are named, and here alone.
"""

import collections
import dataclasses
import pathlib
import re
import sys
import typing

import subunit
import testtools

PASSED, FAILED, SKIPPED = 'passed', 'failed', 'skipped'
_STATUSES = {'success': PASSED, 'fail': FAILED, 'uxsuccess': FAILED,
             'inprogress': FAILED, 'skip': SKIPPED, 'xfail': SKIPPED}
_LIBTEST = re.compile(
    r'^test result: .* (\d+) passed; (\d+) failed; (\d+) ignored;', re.M)
_LIBTEST_FAILED = re.compile(r'^test (\S+) (?:- should panic )?\.\.\. FAILED$',
                             re.M)


@dataclasses.dataclass
class Results:
    """What the tests and checks of a stage came to."""

    counts: typing.Counter[str] = dataclasses.field(
        default_factory=collections.Counter)
    #: The names of those that failed, in the order of their files.
    failures: list[str] = dataclasses.field(default_factory=list)

    def add(self, status: str, name: str) -> None:
        """Add one test or check."""
        self.counts[status] += 1
        if status == FAILED:
            self.failures.append(name)


def read_subunit(path: pathlib.Path, results: Results) -> None:
    """Add the tests of a stream of subunit."""
    def add(test: dict[str, typing.Any]) -> None:
        # What is no test, such as a worker's output, has no such status.
        if test['status'] in _STATUSES:
            results.add(_STATUSES[test['status']], test['id'])

    summary = testtools.StreamToDict(add)
    summary.startTestRun()
    with open(path, 'rb') as stream:
        subunit.ByteStreamToStreamResult(
            stream, non_subunit_name='stdout').run(summary)
    summary.stopTestRun()


def read_checks(path: pathlib.Path, results: Results) -> None:
    """Add the lines of tools/lib/checks.sh."""
    for line in path.read_text().splitlines():
        results.add(*line.split('\t', 1))


def read_libtest(path: pathlib.Path, results: Results) -> None:
    """Add the tests of each program that ``cargo test`` ran."""
    text = path.read_text(errors='replace')
    for found in _LIBTEST.findall(text):
        results.counts.update(
            dict(zip((PASSED, FAILED, SKIPPED), map(int, found))))
    results.failures.extend(_LIBTEST_FAILED.findall(text))


READERS = {'.subunit': read_subunit, '.checks': read_checks,
           '.libtest': read_libtest}


def read(directory: pathlib.Path) -> Results:
    """Add up what all files of a directory say."""
    results = Results()
    for path in sorted(directory.iterdir()):
        if path.suffix in READERS:
            READERS[path.suffix](path, results)
    return results


def main(names: list[str]) -> int:
    """Print the results of a directory; return the exit code."""
    if len(names) != 1:
        print('usage: results.py DIR', file=sys.stderr)
        return 2
    results = read(pathlib.Path(names[0]))
    print(*(results.counts[status] for status in (PASSED, FAILED, SKIPPED)))
    for failure in results.failures:
        print(failure)
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
