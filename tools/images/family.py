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

"""What the images of the family contain, and what each is made from.

Five images as an operator has them: a minimal Debian system; the same
with a database server, with a Java application server, and with both, each
made by copying an image and installing packages on the copy, so that blocks
stay where they were; and a second, independent build of the first, in which
the same files lie elsewhere.
"""

import dataclasses
import hashlib
import pathlib

# Roomy enough for the largest; the free space is a hole in the file.
DISK_SIZE = 704 << 20

MARKER = 'DIFFCACHE-GUEST-READY'

SYSTEM = (
    'e2fsprogs',
    'ifupdown',
    'initramfs-tools',
    'iproute2',
    'linux-image-cloud-amd64',
    'netbase',
    'procps',
    'systemd-sysv',
    'udev',
    'zstd',
)
DATABASE = ('postgresql',)
JAVA = ('default-jre-headless', 'tomcat10')

# Modules of the kernel: below /lib, and since Debian 13 below /usr/lib.
_MODULES = tuple(
    f'path-{what}={place}/modules/*/kernel/{names}'
    for place in ('/lib', '/usr/lib')
    for what, names in (
        ('exclude', 'drivers/*'),
        ('include', 'drivers/block/*'),
        ('include', 'drivers/char/*'),
        ('include', 'drivers/net/*virtio*'),
        ('include', 'drivers/scsi/*'),
        ('include', 'drivers/virtio/*'),
        ('exclude', 'fs/*'),
        ('include', 'fs/ext4/*'),
        ('include', 'fs/fuse/*'),
        ('include', 'fs/jbd2/*'),
        ('include', 'fs/mbcache*'),
        ('include', 'fs/overlayfs/*'),
    )
)

# What these guests have no use for: documentation and translations, drivers
# of hardware that no virtual machine has, what PostgreSQL (its just-in-time
# compiler) and Java (its class archives) do without when it is absent.
DPKG_OPTIONS = (
    'path-exclude=/usr/share/doc/*',
    'path-include=/usr/share/doc/*/copyright',
    'path-exclude=/usr/share/i18n/locales/*',
    'path-exclude=/usr/share/info/*',
    'path-exclude=/usr/share/locale/*',
    'path-exclude=/usr/share/man/*',
    *_MODULES,
    'path-exclude=/lib/udev/hwdb.d/*',
    'path-exclude=/usr/lib/udev/hwdb.d/*',
    'path-exclude=/usr/lib/jvm/*/lib/server/*.jsa',
    'path-exclude=/usr/lib/postgresql/*/lib/bitcode/*',
    'path-exclude=/usr/lib/postgresql/*/lib/llvmjit*',
    'path-exclude=/usr/lib/x86_64-linux-gnu/libLLVM*',
    'path-exclude=/usr/lib/x86_64-linux-gnu/libz3*',
)

# Waiting for a service that an image lacks is no wait at all.
READY_UNIT = f"""\
[Unit]
Description=Tell the serial console that this guest has started
After=multi-user.target postgresql@15-main.service \
postgresql@17-main.service tomcat10.service

[Service]
Type=oneshot
ExecStart=/bin/sh -c 'echo {MARKER} $(cat /etc/hostname)'
StandardOutput=tty
TTYPath=/dev/ttyS0

[Install]
WantedBy=multi-user.target
"""

GRUB_CONFIG = """\
linux /vmlinuz root=UUID=%(uuid)s ro console=tty0 console=ttyS0,115200
initrd /initrd.img
boot
"""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """One image: packages on top of another image, or from nothing."""

    name: str
    packages: tuple[str, ...]
    base: str | None = None


FAMILY = (
    Recipe('system', SYSTEM),
    Recipe('rebuild', SYSTEM),
    Recipe('database', DATABASE, base='system'),
    Recipe('java', JAVA, base='system'),
    Recipe('both', JAVA, base='database'),
)


def fingerprint(recipe: Recipe, release: str) -> str:
    """Return a hash that changes when the image should be built again.

    It covers the source of the builder, the release of Debian, and the recipes
    of the image and of all the images below it.
    """
    digest = hashlib.sha256(release.encode())
    here = pathlib.Path(__file__).parent
    for source in sorted((here / 'build', *here.glob('*.py'))):
        digest.update(source.read_bytes())
    by_name = {member.name: member for member in FAMILY}
    step: Recipe | None = recipe
    while step is not None:
        digest.update(repr(step).encode())
        step = by_name[step.base] if step.base else None
    return digest.hexdigest()
