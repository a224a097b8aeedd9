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
"""Disks whose content is known, raw or qcow2, as guests write to them."""

import dataclasses
import pathlib
import shutil
import subprocess
import tempfile

from diffcache_openstack.versions import version_store
from tests import waiting


def has_qemu() -> bool:
    """Whether qcow2 disks can be used here."""
    return all(map(shutil.which, ('qemu-img', 'qemu-io', 'qemu-nbd')))


@dataclasses.dataclass
class Series:
    """A disk, whose content is known."""

    disk: version_store.Disk

    @property
    def path(self) -> pathlib.Path:
        """The file."""
        return self.disk.path

    def content(self) -> bytes:
        """Return what a guest reads."""
        return read_disk(self.path, self.disk.format or 'raw')

    def write(self, offset: int, data: bytes) -> None:
        """Write as a guest does."""
        if self.disk.format == 'raw':
            with open(self.path, 'r+b') as stream:
                stream.seek(offset)
                stream.write(data)
            return
        with tempfile.NamedTemporaryFile() as pattern:
            pattern.write(data)
            pattern.flush()
            subprocess.run(
                ['qemu-io', '-f', 'qcow2', '-c', f'write -q -s {pattern.name}'
                 f' {offset} {len(data)}', str(self.path)], check=True)


def read_disk(path: pathlib.Path, disk_format: str) -> bytes:
    """Return what a guest reads of a disk, as QEMU has it."""
    if disk_format == 'raw':
        return path.read_bytes()
    subprocess.run(['qemu-img', 'check', '-q', '-r', 'leaks', str(path)],
                   check=True, stdout=subprocess.DEVNULL)
    with tempfile.NamedTemporaryFile(dir=path.parent) as raw:
        subprocess.run(['qemu-img', 'convert', '-f', disk_format, '-O', 'raw',
                        str(path), raw.name], check=True)
        return pathlib.Path(raw.name).read_bytes()


def await_unlocked(series: Series) -> None:
    """Wait until programs that were killed have left a disk."""
    if series.disk.format != 'qcow2':
        return
    waiting.until(lambda: 'lock' not in subprocess.run(
        ['qemu-img', 'check', '-q', str(series.path)],
        capture_output=True, text=True).stderr, 'the lock of a disk')
