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
"""Build the source distributions and wheels of the commit checked out.

Usage: build.py [--wheel] [--out-dir DIR]

The files depend on the commit, on the Rust toolchain, on Python with its zlib
and on the tools of constraints.txt alone: with the same ones, two runs give
the same bytes, wherever they are. What is not committed is left out. All have
bills of materials in CycloneDX's format.

With --wheel there are wheels too, built from the source distributions. Native
parts are linked by Zig with the symbols of glibc 2.28, so that one wheel
serves Debian 10, Ubuntu 20.04, RHEL 8 and what is newer. This requires the
packages of release-requirements.txt, and takes minutes.
"""

import argparse
import contextlib
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import typing

import archives
import bills

TREE = pathlib.Path(__file__).resolve().parents[2]
GLIBC = '2.28'
# What replaces the paths of the build in the native parts.
SOURCES, CRATES = '/diffcache', '/crates'


class Project(typing.NamedTuple):
    """A distribution.

    :ivar name: of the distribution
    :ivar folder: where it is in the tree
    :ivar requirements: what it requires, a file of the tree
    """

    name: str
    folder: str
    requirements: str


PLUGINS = Project('diffcache-openstack-plugins', 'plugins',
                  'plugins/requirements.txt')
SERVICES = Project('diffcache-openstack', '.', 'requirements.txt')


class BuildError(Exception):
    """A tool is missing, or a file is not as it should be."""


def main(arguments: list[str]) -> int:
    """Build what the command line names; print the files' paths."""
    parser = argparse.ArgumentParser(
        description='Build the source distributions of the commit checked'
                    ' out, reproducibly.')
    parser.add_argument('--wheel', action='store_true',
                        help='build portable wheels from them too')
    parser.add_argument('--out-dir', type=pathlib.Path, metavar='DIR',
                        default=pathlib.Path('dist'),
                        help='directory of the files (default: %(default)s)')
    parsed = parser.parse_args(arguments)
    parsed.out_dir.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix='release-') as directory:
            for project in PLUGINS, SERVICES:
                work = pathlib.Path(directory, project.name)
                sdist = build_sdist(project, work, parsed.out_dir)
                print(sdist)
                if parsed.wheel:
                    print(build_wheel(project, sdist, work, parsed.out_dir))
    except (BuildError, subprocess.CalledProcessError) as error:
        print(f'build.py: {error}', file=sys.stderr)
        return 1
    return 0


def build_sdist(project: Project, work: pathlib.Path, out_dir: pathlib.Path
                ) -> pathlib.Path:
    """Build a source distribution of the commit that is checked out."""
    tree = work / 'tree'
    _run('git', 'clone', '--quiet', '--shared', str(TREE), str(tree))
    epoch = int(_output('git', 'log', '-1', '--format=%ct', cwd=tree))
    _uv_build('sdist', work, tree / project.folder, _environment(epoch))
    [built] = (work / 'sdist').glob('*.tar.gz')
    subject = _subject(project, built.name.removesuffix('.tar.gz'), epoch)
    target = out_dir / built.name
    bill = _python_bill(tree, project, subject)
    if project is SERVICES:
        bill |= _native_bill(tree, subject)
    archives.normalize_sdist(built, target, epoch, {
        f'sboms/{name}': content for name, content in bill.items()})
    return target


def build_wheel(project: Project, sdist: pathlib.Path, work: pathlib.Path,
                out_dir: pathlib.Path) -> pathlib.Path:
    """Build a portable wheel from a source distribution."""
    with tarfile.open(sdist) as archive:
        # Each member has the time of the commit.
        epoch = archive.getmembers()[0].mtime
        archive.extractall(work / 'sources', filter='data')
    stem = sdist.name.removesuffix('.tar.gz')
    tree = work / 'sources' / stem
    subject = _subject(project, stem, epoch)
    bill = _python_bill(work / 'tree', project, subject)
    if project is SERVICES:
        built = _build_native(tree, work, epoch)
        bill |= _native_bill(tree, subject, _runtimes())
    else:
        _uv_build('wheel', work, tree, _environment(epoch))
        [built] = (work / 'wheel').glob('*.whl')
    target = out_dir / built.name
    archives.normalize_wheel(built, target, epoch, {
        f'sboms/{name}': content for name, content in bill.items()})
    return target


def _build_native(tree: pathlib.Path, work: pathlib.Path, epoch: int
                  ) -> pathlib.Path:
    """Build the wheel with the native parts."""
    tag = f'manylinux_{GLIBC.replace(".", "_")}_{platform.machine()}'
    environment = _environment(epoch) | _zig() | {
        'CARGO_TARGET_DIR': str(work / 'target'),
        'CARGO_PROFILE_RELEASE_DEBUG': '0',
        'CARGO_PROFILE_RELEASE_STRIP': 'debuginfo',
    } | _remapping(tree, work / 'target')
    _uv_build('wheel', work, tree, environment,
              f'--config-setting=--build-option=--plat-name={tag}')
    [built] = (work / 'wheel').glob('*.whl')
    check_symbols(built, tag)
    return built


def check_symbols(wheel: pathlib.Path, tag: str) -> None:
    """Check that the wheel's native parts run where its tag says.

    :raises BuildError: they need newer libraries, or others
    """
    shown = _output(sys.executable, '-m', 'auditwheel', 'show', str(wheel))
    found = re.search(r'consistent with the following platform tag:\s+"'
                      r'manylinux_2_(\d+)_', shown)
    # What runs with an older glibc runs with this one too.
    if not found or int(found[1]) > int(GLIBC.partition('.')[2]):
        raise BuildError(
            f'{wheel.name} does not run everywhere that {tag} promises:\n'
            f'{shown}')


def _environment(epoch: int) -> dict[str, str]:
    return dict(os.environ) | {
        'SOURCE_DATE_EPOCH': str(epoch), 'LC_ALL': 'C.UTF-8', 'TZ': 'UTC',
        'PYTHONHASHSEED': '0'}


def _uv_build(kind: str, work: pathlib.Path, tree: pathlib.Path,
              environment: dict[str, str], *options: str) -> None:
    """Run the build backend in an environment with pinned versions."""
    _run('uv', 'build', '--quiet', '--no-create-gitignore', f'--{kind}',
         '--python', sys.executable,
         '--build-constraints', str(work / 'tree' / 'constraints.txt'),
         '--out-dir', str(work / kind), *options, str(tree), env=environment)


def _zig() -> dict[str, str]:
    """Return variables that link the native parts for an old glibc.

    :raises BuildError: a package of release-requirements.txt is missing
    """
    with contextlib.suppress(ImportError):
        import ziglang
        zig = pathlib.Path(ziglang.__file__).with_name('zig')
        if shutil.which('cargo-zigbuild'):
            return {
                'CARGO': str(pathlib.Path(__file__).with_name('zig-cargo')),
                'CARGO_ZIGBUILD_ZIG_PATH': str(zig),
                'CARGO_BUILD_TARGET': f'{_triple()}.{GLIBC}',
            }
    raise BuildError('Zig or cargo-zigbuild not found. Install them first'
                     ' (pip install -r release-requirements.txt)')


def _remapping(tree: pathlib.Path, target: pathlib.Path) -> dict[str, str]:
    """Return variables that keep the build's paths out of native parts."""
    home = pathlib.Path(os.environ.get('CARGO_HOME',
                                       pathlib.Path.home() / '.cargo'))
    # Creates the folder of the crates, whose name is not known before.
    _run('cargo', 'fetch', '--quiet', '--locked', '--manifest-path',
         str(tree / 'native' / 'Cargo.toml'))
    names = {str(tree): SOURCES, str(target): f'{SOURCES}/target'} | {
        str(folder): CRATES
        for folder in sorted((home / 'registry' / 'src').iterdir())}
    # The standard library has this name where it comes compiled; its sources
    # are only there with the component rust-src.
    library = f'{_output("rustc", "--print", "sysroot")}/lib/rustlib/src/rust'
    names[library] = f'/rustc/{_rust("commit-hash")}'
    return {
        'CARGO_ENCODED_RUSTFLAGS': '\x1f'.join(
            f'--remap-path-prefix={path}={name}'
            for path, name in names.items()),
        # The next one is split as a shell would.
        'CC_SHELL_ESCAPED_FLAGS': '1',
        'CFLAGS': shlex.join(f'-ffile-prefix-map={path}={name}'
                             for path, name in names.items()),
    }


def _triple() -> str:
    return f'{platform.machine()}-unknown-linux-gnu'


def _rust(key: str = 'release') -> str:
    """Return a line of the version that rustc reports."""
    lines = _output('rustc', '--version', '--verbose').splitlines()
    return dict(line.split(': ', 1) for line in lines if ': ' in line)[key]


def _runtimes() -> list[bills.Runtime]:
    """Return the compilers' libraries that are linked into a wheel."""
    rust, zig = _rust(), importlib.metadata.version('ziglang')
    return [
        bills.Runtime('rust-std', rust, f'pkg:generic/rust-std@{rust}',
                      'MIT OR Apache-2.0'),
        # Its own runtime, and libunwind of LLVM.
        bills.Runtime('ziglang', zig, f'pkg:pypi/ziglang@{zig}',
                      'MIT AND Apache-2.0 WITH LLVM-exception')]


def _subject(project: Project, stem: str, epoch: int) -> bills.Subject:
    return bills.Subject(project.name, stem.rpartition('-')[2], epoch)


def _python_bill(tree: pathlib.Path, project: Project, subject: bills.Subject
                 ) -> archives.Files:
    """Return the bill of what is required, by its file's name."""
    pins = _output(
        'uv', 'pip', 'compile', '--quiet', '--no-header', '--no-annotate',
        '--universal', '--python-version', '3.11',
        '--constraint', 'constraints.txt', project.requirements,
        cwd=tree).splitlines()
    return {f'{project.name}.python.cdx.json': bills.encode(
        bills.python_bill(subject, pins))}


def _native_bill(tree: pathlib.Path, subject: bills.Subject,
                 runtimes: typing.Iterable[bills.Runtime] = (),
                 ) -> archives.Files:
    """Return the bill of the native parts, by its file's name."""
    metadata = json.loads(_output(
        'cargo', 'metadata', '--locked', '--format-version', '1',
        '--filter-platform', _triple(), cwd=tree / 'native'))
    lock = (tree / 'native' / 'Cargo.lock').read_text()
    return {f'{SERVICES.name}.native.cdx.json': bills.encode(
        bills.native_bill(subject, metadata, lock, runtimes))}


def _run(*command: str, **options: typing.Any) -> None:
    subprocess.run(command, check=True, **options)


def _output(*command: str, **options: typing.Any) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE,
                          text=True, **options).stdout.strip()


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
