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
"""Make a wheel that points to a checkout, with nothing compiled.

Cargo builds the native parts, in one call and with the profile that is wanted;
an editable installation by the build backend would call it for each of them,
and again for each environment that is to have the same checkout.

usage: editable.py CHECKOUT FOLDER
"""

import base64
import contextlib
import hashlib
import io
import pathlib
import sys
import tempfile
import zipfile

from setuptools import build_meta

_WHEEL = '''\
Wheel-Version: 1.0
Generator: editable.py
Root-Is-Purelib: true
Tag: py3-none-any
'''


def contents(checkout: pathlib.Path) -> tuple[str, dict[str, str]]:
    """Return the wheel's name and its files, all but RECORD."""
    with tempfile.TemporaryDirectory() as folder:
        info = _metadata(checkout, folder)
        path = pathlib.Path(folder, info)
        files = {f'{info}/{name}': (path / name).read_text()
                 for name in ('METADATA', 'entry_points.txt')}
    stem = info.removesuffix('.dist-info')
    return f'{stem}-py3-none-any.whl', {
        f'{stem}.pth': f'{checkout}\n', **files, f'{info}/WHEEL': _WHEEL}


def _metadata(checkout: pathlib.Path, folder: str) -> str:
    """Have the build backend write the metadata; return where."""
    # It takes the project from the working directory.
    said = io.StringIO()
    with contextlib.chdir(checkout), contextlib.redirect_stdout(said), \
            contextlib.redirect_stderr(said):
        try:
            return build_meta.prepare_metadata_for_build_editable(folder)
        except Exception:
            print(said.getvalue(), file=sys.__stderr__)
            raise


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
