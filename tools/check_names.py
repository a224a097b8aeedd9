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
"""Check that tests and benchmarks use names that modules still have.

Usage: check_names.py

Many tests run only where Nova, libvirt or a server is installed: a name that
was moved would be noticed there alone. mypy finds it everywhere; its other
findings in tests are left out, since doubles are typed as what they stand for.
Prints one line for each finding, and exits with 1 if there was any.
"""

import pathlib
import re
import subprocess
import sys
import typing

TREE = pathlib.Path(__file__).resolve().parent.parent
COMMAND = ('mypy', '--no-error-summary', '--package', 'tests',
           '--package', 'bench')
MISSING = re.compile(r'error: Module (?:".*" )?has no attribute ')


def problems(output: str) -> typing.Iterator[str]:
    """Yield the lines of mypy's output on names that a module lacks."""
    for line in output.splitlines():
        if MISSING.search(line):
            yield line


def main() -> int:
    """Print the findings; the exit code."""
    run = subprocess.run(COMMAND, cwd=TREE, stdout=subprocess.PIPE, text=True)
    if run.returncode not in (0, 1):
        print(run.stdout, end='')
        return run.returncode
    found = list(problems(run.stdout))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main())
