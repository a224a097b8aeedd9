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
"""The version of this tree: one, in pyproject.toml and what repeats it.

usage: version.py [VERSION]

Without an argument, print the version of pyproject.toml, and fail if a file
that has to repeat it, because its own tools read no other, has another one.
With an argument, write that version into all of them.
"""

import argparse
import pathlib
import re
import sys

TREE = pathlib.Path(__file__).resolve().parent.parent
SOURCE = 'pyproject.toml'
# Where each file has it: the second group of each match is the version.
PLACES = {
    SOURCE: r'(?m)^(\[project\]\n(?:[^\[].*\n)*?version = ")(.*)(")',
    'plugins/pyproject.toml':
        r'(?m)^(\[project\]\n(?:[^\[].*\n)*?version = ")(.*)(")',
    'plugins-requirements.txt':
        r'(?m)^(diffcache-openstack-plugins==)(\S+)( )',
    'native/Cargo.toml':
        r'(?m)^(\[workspace\.package\]\n(?:[^\[].*\n)*?version = ")(.*)(")',
    'native/Cargo.lock': r'(?m)^(name = "diffcache-.*"\nversion = ")(.*)(")',
    'native/fuzz/Cargo.toml':
        r'(?m)^(\[package\]\n(?:[^\[].*\n)*?version = ")(.*)(")',
    'native/fuzz/Cargo.lock':
        r'(?m)^(name = "diffcache-.*"\nversion = ")(.*)(")',
    'debian/changelog': r'\A(diffcache \()(.*)(\) )',
    'plugins/debian/changelog':
        r'\A(diffcache-openstack-plugins \()(.*)(\) )',
}
# What Python, Cargo and Debian write alike.
VERSION = re.compile(r'\d+\.\d+\.\d+')


def found(tree: pathlib.Path) -> dict[str, set[str]]:
    """Return the versions that each file has; an empty set if it has none."""
    return {name: {match[2] for match in re.finditer(
        place, (tree / name).read_text())} for name, place in PLACES.items()}


def differing(versions: dict[str, set[str]]) -> list[str]:
    """Return a line for each file whose version is not that of the source."""
    wanted = versions[SOURCE]
    if len(wanted) != 1:
        return [f'{SOURCE}: no version in [project]']
    return [f'{name}: version {", ".join(sorted(has)) or "missing"}, not '
            f'{", ".join(wanted)}: run tools/version.py {", ".join(wanted)}'
            for name, has in versions.items() if has != wanted]


def write(tree: pathlib.Path, version: str) -> None:
    """Have all files say a version."""
    for name, place in PLACES.items():
        path = tree / name
        path.write_text(re.sub(
            place, lambda match: f'{match[1]}{version}{match[3]}',
            path.read_text()))


def _version(text: str) -> str:
    if not VERSION.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f'{text!r} is no version such as 1.0.0')
    return text


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(
        description='Print and check the version of this tree, or change it.')
    parser.add_argument('version', nargs='?', metavar='VERSION', type=_version,
                        help='write this version, such as 1.0.1')
    wanted = parser.parse_args().version
    if wanted is not None:
        write(TREE, wanted)
    versions = found(TREE)
    wrong = differing(versions)
    print('\n'.join(wrong or versions[SOURCE]))
    return bool(wrong)


if __name__ == '__main__':
    sys.exit(main())
