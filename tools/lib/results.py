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
"""Count the results that a stage of tools/test left.

Usage: results.py DIR

Prints how many tests and checks passed, failed and were skipped. The files of
DIR are read by their ending:

``.subunit``
    The stream of a run of stestr. A test that began and did not end failed.
``.checks``
    One line for each check of tools/lib/checks.sh: ``passed``, ``failed`` or
    ``skipped``, a tabulator, and its name.
``.libtest``
    What ``cargo test`` printed. Stable Rust has no other format for tests (its
    JSON needs a nightly compiler); the line that ends each test program is
    counted, and here alone.
"""

import collections
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

Counts = typing.Counter[str]


def count_subunit(path: pathlib.Path) -> Counts:
    """Count the tests of a stream of subunit."""
    counts: Counts = collections.Counter()

    def add(test: dict[str, typing.Any]) -> None:
        # What is no test, such as a worker's output, has no such status.
        if test['status'] in _STATUSES:
            counts[_STATUSES[test['status']]] += 1

    summary = testtools.StreamToDict(add)
    summary.startTestRun()
    with open(path, 'rb') as stream:
        subunit.ByteStreamToStreamResult(
            stream, non_subunit_name='stdout').run(summary)
    summary.stopTestRun()
    return counts


def count_checks(path: pathlib.Path) -> Counts:
    """Count the lines of tools/lib/checks.sh."""
    return collections.Counter(
        line.split('\t')[0] for line in path.read_text().splitlines())


def count_libtest(path: pathlib.Path) -> Counts:
    """Count the tests of each program that ``cargo test`` ran."""
    counts: Counts = collections.Counter()
    for found in _LIBTEST.findall(path.read_text(errors='replace')):
        counts.update(dict(zip((PASSED, FAILED, SKIPPED), map(int, found))))
    return counts


READERS = {'.subunit': count_subunit, '.checks': count_checks,
           '.libtest': count_libtest}


def count(directory: pathlib.Path) -> Counts:
    """Count what all files of a directory say."""
    counts: Counts = collections.Counter()
    for path in sorted(directory.iterdir()):
        if path.suffix in READERS:
            counts += READERS[path.suffix](path)
    return counts


def main(names: list[str]) -> int:
    """Print the counts of a directory; return the exit code."""
    if len(names) != 1:
        print('usage: results.py DIR', file=sys.stderr)
        return 2
    counts = count(pathlib.Path(names[0]))
    print(counts[PASSED], counts[FAILED], counts[SKIPPED])
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
