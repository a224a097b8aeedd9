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
"""Write archives whose bytes depend on nothing but their content.

Order, times, owners and modes of the members, and the header of the
compression, are the same for all builders and directories. Only another zlib
may compress the same content to other bytes.
"""

import base64
import csv
import gzip
import hashlib
import io
import pathlib
import tarfile
import time
import zipfile

# The first time that the zip format can express, in seconds since 1970.
_FIRST_ZIP_TIME = 315532800

Files = dict[str, bytes]


def normalize_sdist(source: pathlib.Path, target: pathlib.Path, epoch: int,
                    added: Files) -> None:
    """Rewrite a source distribution.

    :param epoch: time of each member, in seconds since 1970
    :param added: contents by names below the distribution's folder
    """
    with tarfile.open(source) as archive:
        members = {member.name: (member, archive.extractfile(member))
                   for member in archive.getmembers() if not member.isdir()}
        contents = {name: (stream.read(), bool(member.mode & 0o100))
                    for name, (member, stream) in members.items()}
    folder = source.name.removesuffix('.tar.gz')
    for name, content in added.items():
        contents[f'{folder}/{name}'] = content, False
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode='w',
                      format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(contents):
            content, executable = contents[name]
            member = tarfile.TarInfo(name)
            member.size = len(content)
            member.mtime = epoch
            member.mode = 0o755 if executable else 0o644
            archive.addfile(member, io.BytesIO(content))
    with target.open('wb') as stream, gzip.GzipFile(
            filename='', fileobj=stream, mode='wb', mtime=epoch) as output:
        output.write(packed.getvalue())


def normalize_wheel(source: pathlib.Path, target: pathlib.Path, epoch: int,
                    added: Files) -> None:
    """Rewrite a wheel.

    :param epoch: time of each member, in seconds since 1970
    :param added: contents by names below the ``.dist-info`` folder
    """
    with zipfile.ZipFile(source) as archive:
        infos = [info for info in archive.infolist() if not info.is_dir()]
        contents = {info.filename: (archive.read(info),
                                    bool(info.external_attr >> 16 & 0o100))
                    for info in infos}
    [record] = [name for name in contents
                if name.endswith('.dist-info/RECORD')]
    folder = record.removesuffix('/RECORD')
    for name, content in added.items():
        contents[f'{folder}/{name}'] = content, False
    del contents[record]
    # Metadata at the end, as the wheel format recommends.
    names = sorted(contents, key=lambda name: (name.startswith(folder), name))
    contents[record] = _record(contents, names, record), False
    stamp = time.gmtime(max(epoch, _FIRST_ZIP_TIME))[:6]
    with zipfile.ZipFile(target, 'w') as archive:
        for name in [*names, record]:
            content, executable = contents[name]
            info = zipfile.ZipInfo(name, stamp)
            info.create_system = 3
            info.external_attr = (0o100755 if executable else 0o100644) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content, compresslevel=9)


def _record(contents: dict[str, tuple[bytes, bool]], names: list[str],
            record: str) -> bytes:
    """Return the list of names, digests and sizes that a wheel ends with."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator='\n')
    for name in names:
        content, _ = contents[name]
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest())
        writer.writerow((name, f'sha256={digest.decode().rstrip("=")}',
                         len(content)))
    writer.writerow((record, '', ''))
    return text.getvalue().encode()
