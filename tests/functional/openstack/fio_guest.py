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
"""A guest in which fio writes to a volume, and verifies what it wrote.

One process of fio works as long as the guest runs: it writes all blocks in
random order, reads each, compares checksums, and begins again. It ends at the
first error. After a reboot another one first verifies what is there.
"""

import pathlib
import shutil
import subprocess
import tempfile
import typing

from tests.functional.openstack import file_guest

# What is written and verified, over and over, in bytes.
SIZE = 4 << 20
_LOADER = '/lib64/ld-linux-x86-64.so.2'
_MIB = 1 << 20
# Fields of fio's terse output, version 3: errno, KiB read, KiB written.
_WORK = f'''
b=/bin/busybox
(
until [ -b /dev/vda3 ]; do $b usleep 50000; done
# Its libraries want more memory than they touch.
echo 1 >/proc/sys/vm/overcommit_memory
$b mkdir -p /fio
$b mount -t ext4 -o ro /dev/vda3 /fio
fio() {{ what=$1; shift
    /fio/{pathlib.Path(_LOADER).name} --library-path /fio /fio/fio \\
    --name=volume --filename=/dev/vdb --bs=4k --direct=1 --thread \\
    --verify=crc32c --verify_fatal=1 --minimal "$@" 2>/dev/ttyS0 \\
    | $b awk -F';' -v "what=fio boot=$count $what" '$1 == 3 {{
        print what, "error=" $5, "read=" $6, "written=" $47; fflush() }}' \\
    >/dev/ttyS0
    echo "fio boot=$count $what ended" >/dev/ttyS0; }}
until [ -b /dev/vdb ]; do $b usleep 100000; done
($b dd if=/dev/vdb bs=4096 count=1 2>/dev/null | $b tr -d '\\000' \\
    | $b grep -q .) && fio left --rw=read --size={SIZE}
fio work --rw=randwrite --size={SIZE} --loops=1000000 --do_verify=1 \\
    --fsync=256 --rate_iops=200 --status-interval=2 &
was=$($b cat /sys/block/vdb/size)
while :; do
    now=$($b cat /sys/block/vdb/size)
    [ "$now" = "$was" ] ||
        fio grown --rw=randwrite --offset=$((was * 512)) --size={_MIB} \\
            --do_verify=1
    was=$now
    $b usleep 500000
done) &
'''


class Said(typing.NamedTuple):
    """A line of the guest about fio, in KiB."""

    error: int
    read: int
    written: int


def parse(line: str) -> Said:
    """Return the figures in a line of the guest."""
    found = dict(word.partition('=')[::2] for word in line.split())
    return Said(*(int(found[name]) for name in Said._fields))


def make(raw: pathlib.Path, target: pathlib.Path) -> None:
    """Write the disk of a guest with fio.

    :param raw: the disk of one of the family
    """
    with tempfile.TemporaryDirectory() as name:
        programs = pathlib.Path(name, 'programs')
        programs.mkdir()
        _collect(programs)
        disk = pathlib.Path(name, 'disk')
        shutil.copy(raw, disk)
        _add_partition(disk, programs)
        file_guest.make_working(disk, target, _WORK)


def _collect(folder: pathlib.Path) -> None:
    """Copy this machine's fio, and its libraries."""
    program = shutil.which('fio')
    assert program, 'needs the package fio'
    listed = _run('ldd', program)
    libraries = {word for word in listed.split() if word.startswith('/')}
    for path in (program, *libraries):
        shutil.copy(path, folder)


def _add_partition(disk: pathlib.Path, folder: pathlib.Path) -> None:
    """Give a disk a third partition with the files of a folder."""
    start = -(-disk.stat().st_size // _MIB)
    size = sum(path.stat().st_size for path in folder.iterdir()) // _MIB + 16
    with open(disk, 'r+b') as file:
        file.truncate((start + size) * _MIB)
    _run('mkfs.ext4', '-q', '-F', '-O', '^has_journal', '-d', folder,
         '-E', f'offset={start * _MIB}', disk, f'{size}M')
    subprocess.run(['sfdisk', '--quiet', '--append', disk], check=True,
                   capture_output=True,
                   input=f'start={start}MiB, type=83\n'.encode())


def _run(*command: str | pathlib.Path) -> str:
    return subprocess.run(command, check=True, capture_output=True,
                          text=True).stdout
