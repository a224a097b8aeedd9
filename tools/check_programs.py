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
"""Check that bindep.txt lists what the programs that the code calls are in.

Usage: check_programs.py

Python and Rust files are searched for programs that they start, scripts of the
shell for names of programs that are known here. What a command runs is found
from the files that it starts with and what they import; every package that it
needs has to be listed in bindep.txt with the command's profile. A program that
is not known here is a finding too: add it to a table below.
Prints one line for each finding, and exits with 1 if there was any.
"""

import ast
import collections.abc
import pathlib
import re
import sys

TREE = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = 'diffcache_openstack'

# What the essential packages of Debian have, and apt.
PRESENT = set(
    'apt-cache apt-get bash cat chown chroot cmp cp dd df dpkg dpkg-deb'
    ' dpkg-query du echo env fallocate false getent kill ldd ln mount mv nice'
    ' python python3 rm sed setpriv sh sha256sum sleep stat sync tail tar tee'
    ' test timeout true truncate umount unshare'
    ' useradd'.split())
# What this tree has, or its requirements.
OWN = {'diffcache', 'diffcached', 'diffcache-ssdcached', 'swift-ring-builder',
       'uv'}
# Programs and their packages.
PROGRAMS = {
    'apt-ftparchive': 'apt-utils',
    'blkid': 'util-linux',
    'busybox': 'busybox-static',
    'cargo': 'cargo',
    'cc': 'gcc',
    'debugfs': 'e2fsprogs',
    'dumpe2fs': 'e2fsprogs',
    'dmsetup': 'dmsetup',
    'e2fsck': 'e2fsprogs',
    'filefrag': 'e2fsprogs',
    'fio': 'fio',
    'fstrim': 'util-linux',
    'git': 'git',
    'grub-mkimage': 'grub-common',
    'ip': 'iproute2',
    'losetup': 'mount',
    'mariadb-install-db': 'mariadb-server',
    'mariadb': 'mariadb-server',
    'mariadb-dump': 'mariadb-server',
    'mariadbd': 'mariadb-server',
    'mcopy': 'mtools',
    'mke2fs': 'e2fsprogs',
    'mkfs.ext4': 'e2fsprogs',
    'mkfs.fat': 'dosfstools',
    'mkfs.xfs': 'xfsprogs',
    'mmdebstrap': 'mmdebstrap',
    'modprobe': 'kmod',
    'nbdkit': 'nbdkit',
    'openssl': 'openssl',
    'prometheus': 'prometheus',
    'promtool': 'prometheus',
    'qemu-img': 'qemu-utils',
    'qemu-io': 'qemu-utils',
    'qemu-nbd': 'qemu-utils',
    # qemu-system-x86 depends on the package that has it.
    'qemu-storage-daemon': 'qemu-system-x86',
    'qemu-system-x86_64': 'qemu-system-x86',
    'rabbitmq-server': 'rabbitmq-server',
    'rdiff': 'rdiff',
    'rsync': 'rsync',
    'sfdisk': 'fdisk',
    'ssh-keygen': 'openssh-client',
    'strace': 'strace',
    'syslinux': 'syslinux',
    'tc': 'iproute2',
    'virsh': 'libvirt-clients',
    'xfs_io': 'xfsprogs',
    'zsh': 'zsh',
}

# Where what a command runs begins; a directory stands for its files.
COMMANDS = {
    'quickstart': ('tools/quickstart', 'tools/lib/quickstart.py',
                   'tools/lib/preflight.sh', 'tools/images'),
    'test': ('diffcache_openstack', 'testing', 'tests', 'native'),
    'openstack': ('tools/openstack', 'tools/openstack.d',
                  'tests/functional/openstack'),
}
# Of these, what another command runs.
NOT_RUN = {'test': ('tests/functional/openstack/', 'native/fuzz/',
                    'native/target/',
                    # Names for the check of this check.
                    'tests/unit/tools/test_check_programs.py')}
# The profiles that each command installs besides its own.
BESIDES = {'quickstart': {'python', 'cc', 'rust'},
           'test': {'python', 'cc', 'rust', 'lint'},
           'openstack': {'python', 'cc', 'rust'}}
# Names of programs in a command's code that it does not run.
UNNEEDED = {
    # A codec that calls librsync, and a dialect of SQL.
    'quickstart': {'rdiff', 'mariadb'},
    # A test that is skipped where device mapper has no targets for caches.
    'test': {'dmsetup', 'modprobe'},
}

# The functions that start programs.
STARTERS = {'os.execvp', 'shell.run', 'shutil.which', 'subprocess.Popen',
            'subprocess.call', 'subprocess.check_call',
            'subprocess.check_output', 'subprocess.run'}
# In the source of a shell script and of Rust.
_WORD = re.compile(r'[a-z0-9_.-]+')
_COMMAND = re.compile(r'Command::new\("([^"]+)"\)')
_STRING = re.compile(r'"([^"\\]+)"')
_LISTED = re.compile(r'(?m)^([a-z0-9][a-z0-9.+-]+)(?: \[([^]]*)\])?$')

# Programs that are known or started, each with the files that name it.
Uses = dict[str, set[str]]


def is_python(path: pathlib.Path) -> bool:
    """Return whether a file is a module or a script of Python."""
    if path.suffix:
        return path.suffix == '.py'
    return path.read_bytes()[:64].startswith(b'#!/usr/bin/env python')


def python_programs(tree: ast.AST) -> collections.abc.Iterator[str]:
    """Find known programs among strings, and any in calls that start one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in PROGRAMS:
            yield node.value
        elif isinstance(node, ast.Call) \
                and ast.unparse(node.func) in STARTERS:
            yield from _first_words(node.args)


def _first_words(arguments: list[ast.expr]) -> collections.abc.Iterator[str]:
    """Return the program of each argument that is one, or a list of words."""
    # In tools/images, shell.run has the log before the words.
    for each in arguments[:2]:
        if isinstance(each, ast.List | ast.Tuple) and each.elts:
            each = each.elts[0]
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value.rpartition('/')[2]
            return
        if not (isinstance(each, ast.Name) and each.id == 'log'):
            return


def rust_programs(text: str) -> collections.abc.Iterator[str]:
    """Find known programs among strings, and any that are started."""
    yield from _COMMAND.findall(text)
    yield from PROGRAMS.keys() & set(_STRING.findall(text))


def shell_programs(text: str) -> collections.abc.Iterator[str]:
    """Find words that are known programs, but for those in comments."""
    for line in text.splitlines():
        if not line.lstrip().startswith('#'):
            yield from PROGRAMS.keys() & set(_WORD.findall(line))


def imported(tree: ast.AST, root: pathlib.Path,
             ) -> collections.abc.Iterator[pathlib.Path]:
    """Find the files of this tree that a module imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f'{node.module}.{alias.name}'
                                    for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            path = root.joinpath(*name.split('.'))
            for found in path.with_suffix('.py'), path / '__init__.py':
                if found.is_file():
                    yield found


def files_of(start: str, root: pathlib.Path) -> list[pathlib.Path]:
    """Return a file, or the files of a directory."""
    path = root / start
    if path.is_file():
        return [path]
    return [each for each in path.rglob('*') if each.is_file()]


def uses(command: str, root: pathlib.Path = TREE) -> Uses:
    """Find the programs that a command's code names."""
    found: Uses = {}
    left_out = tuple(f'{root}/{name}' for name in NOT_RUN.get(command, ()))
    waiting = [path for start in COMMANDS[command]
               for path in files_of(start, root)]
    seen = set()
    while waiting:
        path = waiting.pop()
        if path in seen or str(path).startswith(left_out):
            continue
        seen.add(path)
        for program in _programs(path, root, waiting):
            found.setdefault(program, set()).add(str(path.relative_to(root)))
    return found


def _programs(path: pathlib.Path, root: pathlib.Path,
              waiting: list[pathlib.Path]) -> collections.abc.Iterable[str]:
    if path.suffix == '.rs':
        return rust_programs(path.read_text())
    if is_python(path):
        tree = ast.parse(path.read_text())
        waiting += imported(tree, root)
        return python_programs(tree)
    if path.suffix == '.sh' or path.read_bytes()[:64].startswith(
            b'#!/usr/bin/env bash'):
        return shell_programs(path.read_text())
    return ()


def listed(command: str, bindep: str) -> set[str]:
    """Return the packages that a command installs, on any system."""
    profiles = {command} | BESIDES[command]
    found = set()
    for name, text in _LISTED.findall(bindep):
        words = {word for word in text.split()
                 if not word.startswith(('platform:', '!'))}
        if not words or words & profiles:
            found.add(name)
    return found


def findings(command: str, found: Uses, bindep: str,
             ) -> collections.abc.Iterator[str]:
    """Compare what a command's code names with what is listed for it."""
    packages = listed(command, bindep)
    for program, files in sorted(found.items()):
        where = f'{min(files)}: {program}'
        if program in PRESENT | OWN | UNNEEDED.get(command, set()):
            continue
        package = PROGRAMS.get(program)
        if package is None:
            yield f'{where} is not known: add it to tools/check_programs.py'
        elif package not in packages:
            yield (f'{where} is in {package}, which bindep.txt does not list'
                   f' with the profile {command}')


def main() -> int:
    """Print the findings of all commands; return the exit code."""
    bindep = (TREE / 'bindep.txt').read_text()
    status = 0
    for command in COMMANDS:
        for finding in findings(command, uses(command), bindep):
            print(finding)
            status = 1
    return status


if __name__ == '__main__':
    sys.exit(main())
