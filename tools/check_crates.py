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
"""Check that the Rust of a supported distribution compiles what is locked.

A crate says which Rust it needs, and a new release of one may need a newer one
than ``rust-version`` of ``native/Cargo.toml``. Prints one line for each such
crate, and exits with 1 if there is one.
"""

import json
import pathlib
import subprocess
import sys
import tomllib
import typing

NATIVE = pathlib.Path(__file__).resolve().parent.parent / 'native'
PLATFORM = 'x86_64-unknown-linux-gnu'


def version_of(text: str) -> tuple[int, ...]:
    """Return the first two numbers of a release of Rust."""
    return tuple(map(int, text.split('.')[:2]))


def too_new(metadata: dict[str, typing.Any], oldest: str) -> list[str]:
    """List crates that need a newer Rust.

    :param metadata: what ``cargo metadata`` prints
    :param oldest: the release of Rust that has to do
    """
    used = {node['id'] for node in metadata['resolve']['nodes']}
    return sorted(
        f'{crate["name"]} {crate["version"]} needs Rust'
        f' {crate["rust_version"]}, and rust-version is {oldest}: cargo'
        f' update --package {crate["name"]} --precise OLDER'
        for crate in metadata['packages']
        if crate['id'] in used and crate['rust_version']
        and version_of(crate['rust_version']) > version_of(oldest))


def main() -> int:
    """Check the crates of the workspace."""
    manifest = tomllib.loads((NATIVE / 'Cargo.toml').read_text())
    metadata = json.loads(subprocess.run(
        ['cargo', 'metadata', '--locked', '--format-version', '1',
         '--filter-platform', PLATFORM], cwd=NATIVE, check=True,
        stdout=subprocess.PIPE).stdout)
    found = too_new(metadata, manifest['workspace']['package'][
        'rust-version'])
    print('\n'.join(found), end='\n' if found else '')
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main())
