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
"""Tiny bootable images for tests: a family of five, as images are.

Each is an MBR disk with syslinux, Debian's cloud kernel and a busybox
initramfs on a FAT partition, and an ext4 partition with files of real
packages. The members are made as operators make images: by copying a disk
and adding or exchanging files on the copy, so that blocks stay where they
were. A guest says on its serial console which image it is, how often this
disk was booted, and which disks it sees.
"""

import collections.abc
import dataclasses
import hashlib
import os
import pathlib
import shutil

from onemachine import errors
from onemachine import shell

MARKER = 'DIFFCACHE-GUEST-READY'

_META_PACKAGE = 'linux-image-cloud-amd64'
_SYSLINUX = pathlib.Path('/usr/lib/syslinux')
_SECTOR = 512
_MIB = 1 << 20
_BOOT_START = 1 * _MIB
_BOOT_SIZE = 40 * _MIB
# Unused sectors between the MBR and the first partition.
_NAME_SECTOR = 64
_COUNT_SECTOR = 65
# In the order in which they need each other.
_MODULES = ('virtio/virtio_ring', 'virtio/virtio',
            'virtio/virtio_pci_legacy_dev', 'virtio/virtio_pci_modern_dev',
            'virtio/virtio_pci', 'block/virtio_blk',
            'virtio/virtio_balloon')

_INIT = f'''#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t devtmpfs devtmpfs /dev
for module in {" ".join(name.rpartition("/")[2] for name in _MODULES)}; do
    /bin/busybox insmod /modules/$module.ko
done
until [ -b /dev/vda ]; do /bin/busybox usleep 50000; done
sector() {{ /bin/busybox dd if=/dev/vda bs={_SECTOR} skip=$1 count=1 \\
    2>/dev/null | /bin/busybox tr -d '\\000\\n'; }}
name=$(sector {_NAME_SECTOR})
count=$(sector {_COUNT_SECTOR})
count=$((${{count:-0}} + 1))
printf '%-511s\\n' $count | /bin/busybox dd of=/dev/vda bs={_SECTOR} \\
    seek={_COUNT_SECTOR} count=1 conv=notrunc,fsync 2>/dev/null
echo "{MARKER} name=$name boot=$count" >/dev/ttyS0
for disk in /sys/block/vd*; do
    echo "disk ${{disk##*/}} $(/bin/busybox cat $disk/size)" >/dev/ttyS0
done
while :; do
    /bin/busybox sleep 3600
done
'''

_BOOT_MENU = '''\
SERIAL 0 115200
DEFAULT guest
LABEL guest
    KERNEL vmlinuz
    APPEND initrd=initrd console=ttyS0 quiet panic=5
'''


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A member of the family.

    :ivar name: of the image
    :ivar base: the member whose disk is copied; None starts afresh
    :ivar parts: groups of files that are added
    """

    name: str
    base: str | None
    parts: tuple[str, ...]


FAMILY = (
    Recipe('guest-base', None, ('system',)),
    Recipe('guest-web', 'guest-base', ('web',)),
    Recipe('guest-database', 'guest-base', ('database',)),
    Recipe('guest-both', 'guest-web', ('database',)),
    Recipe('guest-update', 'guest-base', ('update',)),
)


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How much of the real files each group gets, in bytes."""

    system: int = 72 * _MIB
    web: int = 9 * _MIB
    database: int = 12 * _MIB
    update: int = 4 * _MIB

    @property
    def disk(self) -> int:
        """A disk with room for the largest member."""
        content = self.system + self.web + self.database + self.update
        return _BOOT_START + _BOOT_SIZE + _round_up(content + content // 4)


def _round_up(size: int) -> int:
    return -(-size // (8 * _MIB)) * 8 * _MIB


class Guests:
    """Builds the family into a folder."""

    def __init__(self, folder: pathlib.Path,
                 say: collections.abc.Callable[[str], None],
                 sizes: Sizes = Sizes(),
                 family: collections.abc.Sequence[Recipe] = FAMILY) -> None:
        """Name the folder and the images; nothing is built yet.

        :param folder: for the images; what they are made from is in
            ``parts`` below it
        :param say: gets a line for each image built
        :param family: what to build; each after its base
        """
        self._folder = folder
        self._work = folder / 'parts'
        self._say = say
        self._sizes = sizes
        self._family = family

    def path(self, name: str) -> pathlib.Path:
        """Return the raw file of an image."""
        return self._folder / f'{name}.raw'

    def ensure(self) -> dict[str, pathlib.Path]:
        """Build what is missing.

        :returns: raw files by name
        """
        self._work.mkdir(parents=True, exist_ok=True)
        parts = (self._family, self._sizes, _INIT, _BOOT_MENU)
        recipe = hashlib.sha256(repr(parts).encode()).hexdigest()
        mark = self._folder / 'recipe'
        if not mark.exists() or mark.read_text() != recipe:
            self._build()
            shell.write(mark, recipe)
        return {one.name: self.path(one.name) for one in self._family}

    def _build(self) -> None:
        kernel = self._kernel()
        boot = self._boot_partition(kernel)
        groups = self._groups(kernel)
        for recipe in self._family:
            self._image(recipe, boot, groups)
            self._say(f'image {recipe.name}')

    def _kernel(self) -> pathlib.Path:
        """Debian's kernel package, unpacked."""
        target = self._work / 'kernel'
        if (target / 'done').exists():
            return target
        depends = shell.run('apt-cache', 'depends', _META_PACKAGE)
        name = next((line.split()[-1] for line in depends.splitlines()
                     if 'Depends: linux-image-' in line), None)
        if name is None:
            raise errors.OpenStackError(
                f'apt knows no {_META_PACKAGE}: run apt-get update')
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        shell.run('sh', '-c', 'cd "$0" && apt-get download -qq "$1" &&'
                  ' dpkg-deb -x ./*.deb . && rm ./*.deb && touch done',
                  target, name)
        return target

    def _initramfs(self, kernel: pathlib.Path) -> pathlib.Path:
        root = self._work / 'initramfs'
        shutil.rmtree(root, ignore_errors=True)
        (root / 'bin').mkdir(parents=True)
        (root / 'modules').mkdir()
        shutil.copy('/bin/busybox', root / 'bin/busybox')
        drivers = next(kernel.glob('lib/modules/*/kernel/drivers'))
        for name in _MODULES:
            shutil.copy(drivers / f'{name}.ko', root / 'modules')
        (root / 'init').write_text(_INIT)
        (root / 'init').chmod(0o755)
        made = self._work / 'initrd'
        shell.run('sh', '-c', 'cd "$0" && find . | busybox cpio -o -H newc'
                  ' 2>/dev/null | gzip -1 >"$1"', root, made)
        return made

    def _boot_partition(self, kernel: pathlib.Path) -> pathlib.Path:
        made = self._work / 'boot.fat'
        made.unlink(missing_ok=True)
        with open(made, 'wb') as file:
            file.truncate(_BOOT_SIZE)
        shell.run('mkfs.fat', '-n', 'BOOT', '-i', 'd1ffcac4', '-h',
                  _BOOT_START // _SECTOR, made)
        menu = shell.write(self._work / 'syslinux.cfg', _BOOT_MENU)
        for source, name in (
                (next(kernel.glob('boot/vmlinuz-*')), 'vmlinuz'),
                (self._initramfs(kernel), 'initrd'),
                (menu, 'syslinux.cfg'),
                (_SYSLINUX / 'modules/bios/ldlinux.c32', 'ldlinux.c32')):
            shell.run('mcopy', '-D', 'o', '-i', made, source, f'::{name}')
        shell.run('syslinux', '--install', made)
        return made

    def _groups(self, kernel: pathlib.Path
                ) -> dict[str, list[pathlib.Path]]:
        """Return files by group: the kernel's modules, then /usr."""
        sources = [kernel / 'lib/modules', pathlib.Path('/usr/lib'),
                   pathlib.Path('/usr/share'), pathlib.Path('/usr/bin')]
        files = (pathlib.Path(folder, name) for source in sources
                 for folder, folders, names in _walk(source)
                 for name in names)
        groups = {}
        for field in dataclasses.fields(self._sizes):
            wanted = getattr(self._sizes, field.name)
            groups[field.name] = _take(files, wanted)
        return groups

    def _image(self, recipe: Recipe, boot: pathlib.Path,
               groups: dict[str, list[pathlib.Path]]) -> None:
        new = self._folder / f'{recipe.name}.new'
        new.unlink(missing_ok=True)
        if recipe.base is None:
            self._format(new, boot)
        else:
            shell.run('cp', '--reflink=auto', '--sparse=always',
                      self.path(recipe.base), new)
        name_guest(new, recipe.name)
        for part in recipe.parts:
            self._add(new, part, groups[part])
        os.rename(new, self.path(recipe.name))

    def _format(self, new: pathlib.Path, boot: pathlib.Path) -> None:
        with open(new, 'wb') as file:
            file.truncate(self._sizes.disk)
        start, size = _BOOT_START // _SECTOR, _BOOT_SIZE // _SECTOR
        shell.run('sfdisk', '--quiet', new, data=(
            'label: dos\nlabel-id: 0xd1ffcac4\n'
            f'start={start}, size={size}, type=0c, bootable\n'
            f'start={start + size}, type=83\n'))
        for source, offset, length in (
                (_SYSLINUX / 'mbr/mbr.bin', 0, 440),
                (boot, _BOOT_START, _BOOT_SIZE)):
            shell.run('dd', f'if={source}', f'of={new}', 'bs=64K',
                      f'seek={offset}', f'count={length}',
                      'oflag=seek_bytes', 'iflag=count_bytes',
                      'conv=notrunc,sparse')
        shell.run('mkfs.ext4', '-q', '-F', '-L', 'content', '-b', 4096,
                  '-U', 'd1ffcac4-0000-4000-8000-000000000000', '-O',
                  '^has_journal', '-E', self._offset(), new,
                  f'{(self._sizes.disk - _BOOT_START - _BOOT_SIZE) // 1024}k')

    @staticmethod
    def _offset() -> str:
        return f'offset={_BOOT_START + _BOOT_SIZE}'

    def _add(self, disk: pathlib.Path, part: str,
             files: list[pathlib.Path]) -> None:
        """Put files into the ext4 partition, in a folder of their own."""
        lines = [f'mkdir /{part}', f'cd /{part}']
        for number, path in enumerate(files):
            lines.append(f'write "{path}" {number:05d}')
        device = f'{disk}?{self._offset()}'
        shell.run('debugfs', '-w', '-f', '-', device,
                  data='\n'.join(lines) + '\n')


def name_guest(disk: pathlib.Path, name: str) -> None:
    """Write into a raw image what its guest calls itself."""
    with open(disk, 'r+b') as file:
        file.seek(_NAME_SECTOR * _SECTOR)
        file.write(name.encode().ljust(_SECTOR, b'\0'))


def _walk(source: pathlib.Path):
    """As os.walk, in an order that does not depend on the file system."""
    for folder, folders, names in os.walk(source):
        folders.sort()
        yield folder, folders, sorted(names)


def _take(files: collections.abc.Iterator[pathlib.Path], size: int
          ) -> list[pathlib.Path]:
    """Return files of this many bytes together, at least.

    :raises OpenStackError: there are not enough
    """
    taken, total = [], 0
    for path in files:
        if path.is_symlink() or not path.is_file() or '"' in str(path):
            continue
        length = path.stat().st_size
        if 0 < length < 8 * _MIB:
            taken.append(path)
            total += length
        if total >= size:
            return taken
    raise errors.OpenStackError('too few files for the images below /usr')
