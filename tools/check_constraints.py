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
"""Check that constraint files pin what the requirement files name.

constraints.txt is for the tests, and tools/openstack.d/series has one file for
each series of OpenStack.

Usage: check_constraints.py

Every requirement must have exactly one constraint, and one that satisfies its
lower bound. Prints one line for each finding, and exits with 1 if there was
any.
"""

import pathlib
import sys
import typing

from packaging import requirements
from packaging import utils

TREE = pathlib.Path(__file__).resolve().parent.parent
FILES = ('requirements.txt', 'plugins/requirements.txt',
         'test-requirements.txt',
         'lint-requirements.txt', 'doc/requirements.txt',
         'plugins/dashboard-requirements.txt',
         'plugins/graphs-requirements.txt',
         'tests/unit/dashboard/requirements.txt', 'release-requirements.txt',
         'plugins/tracing-requirements.txt')


SERIES = TREE / 'tools/openstack.d/series'
OPENSTACK = ('tools/openstack.d/requirements.txt',
             'plugins/requirements.txt')


def read(text: str) -> typing.Iterator[requirements.Requirement]:
    """Yield the requirements of a file's text."""
    for line in text.splitlines():
        wanted = line.partition('#')[0].strip()
        if wanted:
            yield requirements.Requirement(wanted)


def pins(text: str) -> dict[str, str]:
    """Version for each canonical name that a constraints file pins.

    :raises ValueError: a line is no pin, or a name is pinned twice
    """
    pinned: dict[str, str] = {}
    for requirement in read(text):
        name = utils.canonicalize_name(requirement.name)
        specifiers = list(requirement.specifier)
        if len(specifiers) != 1 or specifiers[0].operator != '==':
            raise ValueError(f'{requirement}: not pinned with ==')
        if name in pinned:
            raise ValueError(f'{requirement}: pinned before')
        pinned[name] = specifiers[0].version
    return pinned


def problems(text: str, pinned: dict[str, str],
             where: str = 'constraints.txt') -> typing.Iterator[str]:
    """Find what is wrong with one requirement file.

    :param text: the file's content
    :param pinned: what :func:`pins` returned
    :param where: the file that pins them
    """
    for requirement in read(text):
        version = pinned.get(utils.canonicalize_name(requirement.name))
        if version is None:
            yield f'{requirement}: not in {where}'
        elif version not in requirement.specifier:
            yield f'{requirement}: {where} has {version}'


def main() -> int:
    """Print the findings in all requirement files; the exit code."""
    status = 0
    for path, names in ((TREE / 'constraints.txt', FILES),
                        *((path, OPENSTACK)
                          for path in sorted(SERIES.glob('*.txt')))):
        try:
            pinned = pins(path.read_text())
        except ValueError as error:
            print(f'{path.name}: {error}')
            return 1
        for name in names:
            for problem in problems((TREE / name).read_text(), pinned,
                                    path.name):
                print(f'{name}: {problem}')
                status = 1
    return status


if __name__ == '__main__':
    sys.exit(main())
