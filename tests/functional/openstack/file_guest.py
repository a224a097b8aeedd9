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
"""A guest that changes files of its disk, and says what their checksum is.

It is one of the family whose first program does more: each time that it comes
up it tells the checksum of the files that it finds, writes a new one, changes
a part of an old one, removes another, and tells the checksum of what it
leaves. Then it writes no more.
"""

import pathlib
import shutil
import subprocess
import tempfile

# Where the boot partition of a guest's disk begins.
_BOOT = '@@1M'
_LOOP = 'while :; do'
_WORK = '''
b=/bin/busybox
until [ -b /dev/vda2 ]; do $b usleep 50000; done
$b mkdir -p /files
$b mount -t ext4 /dev/vda2 /files
cd /files
sum() { $b find web changed -type f | $b sort | $b xargs $b sha256sum \\
    | $b sha256sum | $b cut -c1-64; }
$b mkdir -p changed
found=$(sum)
$b head -c 300000 /dev/urandom >changed/$count
$b dd if=/dev/urandom of=web/00000 bs=512 count=1 conv=notrunc 2>/dev/null
$b rm -f changed/$((count - 2))
$b sync
$b mount -o remount,ro /files
echo 3 >/proc/sys/vm/drop_caches
echo "files found=$found left=$(sum)" >/dev/ttyS0
'''


def make(raw: pathlib.Path, target: pathlib.Path) -> None:
    """Write its disk.

    :param raw: the disk of one of the family that has the folder ``web``
    """
    make_working(raw, target, _WORK)


def make_working(raw: pathlib.Path, target: pathlib.Path, work: str) -> None:
    """Write the disk of a guest that does more after its marker.

    :param raw: the disk of one of the family
    :param work: lines for its shell
    """
    shutil.copy(raw, target)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        initrd = folder / 'initrd'
        _run('mcopy', '-i', f'{target}{_BOOT}', '::initrd', initrd)
        _run('sh', '-c', 'cd "$0" && zcat initrd | busybox cpio -i init'
             ' 2>/dev/null', folder)
        init = folder / 'init'
        first, loop, rest = init.read_text().partition(_LOOP)
        init.write_text(first + work + loop + rest)
        # What comes later in it takes the place of what came before.
        _run('sh', '-c', 'cd "$0" && echo init | busybox cpio -o -H newc'
             ' 2>/dev/null | gzip -1 >>initrd', folder)
        _run('mcopy', '-D', 'o', '-i', f'{target}{_BOOT}', initrd,
             '::initrd')


def _run(*command: str | pathlib.Path) -> None:
    subprocess.run(command, check=True, capture_output=True)
