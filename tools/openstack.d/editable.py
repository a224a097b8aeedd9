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
"""Make a wheel that points to this checkout, without building anything.

The checkout was installed once, editable, into the environment that runs
this. Another environment gets the same with the wheel that is made here; to
build it again for another Python would have Cargo compile everything again.

usage: editable.py CHECKOUT FOLDER
"""

import base64
import hashlib
import importlib.metadata
import pathlib
import sys
import zipfile

DISTRIBUTION = 'diffcache-openstack'
_WHEEL = '''\
Wheel-Version: 1.0
Generator: editable.py
Root-Is-Purelib: true
Tag: py3-none-any
'''


def contents(checkout: pathlib.Path) -> tuple[str, dict[str, str]]:
    """Return the wheel's name and its files, all but RECORD."""
    installed = importlib.metadata.distribution(DISTRIBUTION)
    stem = f'{DISTRIBUTION.replace("-", "_")}-{installed.version}'
    info = f'{stem}.dist-info'
    # Where a wheel was built in the checkout, what that left is found first;
    # it has the same fields under another name.
    metadata = (installed.read_text('METADATA')
                or installed.read_text('PKG-INFO'))
    return f'{stem}-py3-none-any.whl', {
        f'{stem}.pth': f'{checkout}\n',
        f'{info}/METADATA': metadata,
        f'{info}/entry_points.txt': installed.read_text('entry_points.txt'),
        f'{info}/WHEEL': _WHEEL,
    }


def record(files: dict[str, str], name: str) -> str:
    """RECORD: each file with its checksum and size."""
    lines = []
    for path, text in files.items():
        data = text.encode()
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
        lines.append(f'{path},sha256={digest.decode().rstrip("=")},'
                     f'{len(data)}\n')
    return ''.join(lines) + f'{name},,\n'


def make(checkout: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Write the wheel; returns its path."""
    name, files = contents(checkout)
    listing = next(path for path in files if path.endswith('/WHEEL'))
    listing = listing.replace('/WHEEL', '/RECORD')
    with zipfile.ZipFile(folder / name, 'w') as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
        wheel.writestr(listing, record(files, listing))
    return folder / name


if __name__ == '__main__':
    print(make(pathlib.Path(sys.argv[1]).resolve(),
               pathlib.Path(sys.argv[2])))
