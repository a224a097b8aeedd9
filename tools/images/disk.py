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

"""A raw disk that a BIOS boots: MBR, GRUB in the gap, one ext4 partition.

GRUB's core image sits between the partition table and the partition, where
its boot sector expects it by default, so that nothing has to be installed
from within the guest.
"""

import collections.abc
import contextlib
import os
import pathlib
import struct
import uuid

import family
import shell

SECTOR = 512
PARTITION_OFFSET = 1 << 20

_GRUB = pathlib.Path('/usr/lib/grub/i386-pc')
_GRUB_MODULES = (
    'biosdisk', 'part_msdos', 'ext2', 'normal', 'configfile', 'linux', 'boot',
)
_BOOT_CODE_BYTES = 440
_LINUX_PARTITION = 0x83
_ACTIVE = 0x80
# CHS fields that tell every reader to use the LBA fields instead.
_NO_CHS = b'\xfe\xff\xff'


def master_boot_record(disk_size: int) -> bytes:
    """Return sector 0: GRUB's boot code, a table with one partition."""
    first = PARTITION_OFFSET // SECTOR
    count = disk_size // SECTOR - first
    entry = struct.pack(
        '<B3sB3sII', _ACTIVE, _NO_CHS, _LINUX_PARTITION, _NO_CHS, first, count
    )
    code = (_GRUB / 'boot.img').read_bytes()[:_BOOT_CODE_BYTES]
    signature = os.urandom(4) + bytes(2)
    return code + signature + entry + bytes(48) + b'\x55\xaa'


def create(
    disk: pathlib.Path, tree: pathlib.Path, log: pathlib.Path
) -> None:
    """Make a bootable disk of a tree of files.

    The tree gets its fstab and GRUB configuration; it is otherwise left as
    it is.

    :raises BuildError: a tool failed, or GRUB does not fit
    """
    identity = str(uuid.uuid4())
    (tree / 'etc/fstab').write_text(
        f'UUID={identity} / ext4 errors=remount-ro,discard 0 1\n'
    )
    (tree / 'boot/grub').mkdir(parents=True, exist_ok=True)
    (tree / 'boot/grub/grub.cfg').write_text(
        family.GRUB_CONFIG % {'uuid': identity}
    )
    with disk.open('wb') as output:
        output.truncate(family.DISK_SIZE)
        output.write(master_boot_record(family.DISK_SIZE))
        output.write(_grub_core(disk.with_suffix('.grub'), log))
    blocks = (family.DISK_SIZE - PARTITION_OFFSET) // 1024
    shell.run(
        log, 'mke2fs', '-q', '-F', '-t', 'ext4', '-L', 'root', '-U', identity,
        # GRUB 2.06 cannot read these two.
        '-O', '^metadata_csum_seed,^orphan_file',
        '-J', 'size=16', '-m', '1', '-E', f'offset={PARTITION_OFFSET}',
        '-d', tree, disk, f'{blocks}k',
    )
    dig_holes(disk, log)


def dig_holes(disk: pathlib.Path, log: pathlib.Path) -> None:
    """Give ranges of zeroes back to the file system."""
    shell.run(log, 'fallocate', '--dig-holes', disk)


def _grub_core(scratch: pathlib.Path, log: pathlib.Path) -> bytes:
    shell.run(
        log, 'grub-mkimage', '-O', 'i386-pc', '-d', _GRUB, '-o', scratch,
        '-p', '(hd0,msdos1)/boot/grub', *_GRUB_MODULES,
    )
    core = scratch.read_bytes()
    scratch.unlink()
    if SECTOR + len(core) > PARTITION_OFFSET:
        raise shell.BuildError(
            f'GRUB needs {len(core)} bytes before the partition: more than '
            'there are; raise PARTITION_OFFSET'
        )
    return core


@contextlib.contextmanager
def mounted(
    disk: pathlib.Path, where: pathlib.Path, log: pathlib.Path
) -> collections.abc.Iterator[pathlib.Path]:
    """Mount the partition at a folder; trim free space at the end.

    :raises BuildError: this machine has no loop devices, or the disk no
        readable file system
    """
    where.mkdir(parents=True, exist_ok=True)
    options = f'loop,offset={PARTITION_OFFSET},discard'
    shell.run(log, 'mount', '-t', 'ext4', '-o', options, disk, where)
    try:
        yield where
        shell.run(log, 'fstrim', where)
    finally:
        shell.run(log, 'umount', where)
        where.rmdir()
