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
"""Making and applying patches with each tool."""

import collections.abc
import dataclasses
import os
import pathlib
import shutil
import sys
import tempfile

from bench.harness import errors
from bench.harness import processes
from bench.harness import runs
import bench.patch
from bench.patch import images
from bench.patch import report

ROOT = pathlib.Path(__file__).resolve().parents[2]

# The native module alone, as a process of its own: (function, *arguments).
NATIVE = '''
import importlib.util, sys
spec = importlib.util.spec_from_file_location('_native', sys.argv[1])
native = importlib.util.module_from_spec(spec)
spec.loader.exec_module(native)
arguments = [int(a) if a.isdigit() else a for a in sys.argv[3:]]
getattr(native, sys.argv[2])(*arguments)
'''

# Reads a file's data as fast as the system hands it out.
READ = '''
import os, sys
fd, at, buffer = os.open(sys.argv[1], os.O_RDONLY), 0, bytearray(1 << 18)
end = os.fstat(fd).st_size
while True:
    try:
        at = os.lseek(fd, at, os.SEEK_DATA)
    except OSError:
        break
    hole = os.lseek(fd, at, os.SEEK_HOLE)
    while at < hole:
        at += os.preadv(fd, [buffer], at)
'''


def native(function: str, *arguments: object) -> list[str]:
    """Return the command that calls a function of the native module."""
    module = next((ROOT / 'diffcache_openstack').glob('_native*.so'))
    return [sys.executable, '-c', NATIVE, str(module), function,
            *map(str, arguments)]


@dataclasses.dataclass
class Job:
    """The commands that make and apply a patch.

    :ivar files: what the patch consists of, besides what the store gains by
        the last command of create
    :ivar output: what the last command writes
    """

    create: list[list[str]]
    apply: list[list[str]]
    files: list[str]
    output: str
    store: str | None = None


def block(base: str, target: str, work: str, level: int) -> Job:
    patch, out = f'{work}/patch', f'{work}/out'
    return Job([native('patch_create', base, target, patch, level)],
               [native('patch_apply', base, patch, out)], [patch], out)


def rdiff(base: str, target: str, work: str) -> Job:
    signature, patch, out = (f'{work}/{name}'
                             for name in ('signature', 'patch', 'out'))
    return Job([['rdiff', '-f', 'signature', base, signature],
                ['rdiff', '-f', 'delta', signature, target, patch]],
               [['rdiff', '-f', 'patch', base, patch, out]],
               [patch], out)


def xdelta3(base: str, target: str, work: str, level: int) -> Job:
    patch, out = f'{work}/patch', f'{work}/out'
    common = ['xdelta3', '-f', f'-{level}', '-B',
              str(max(os.path.getsize(base), 1 << 20))]
    return Job([[*common, '-e', '-s', base, target, patch]],
               [[*common, '-d', '-s', base, patch, out]], [patch], out)


def zstd(base: str, target: str, work: str, level: int) -> Job:
    patch, out = f'{work}/patch', f'{work}/out'
    # -T1 would cut the target into jobs, whose patches are larger.
    common = ['zstd', '-q', '-f', '--single-thread', '--long=31',
              f'--patch-from={base}']
    return Job([[*common, f'-{level}', target, '-o', patch]],
               [[*common, '-d', patch, '-o', out]], [patch], out)


def chunks(program: str, base: str, target: str, work: str) -> Job:
    """Return the job of casync or desync."""
    store, out = f'{work}/store', f'{work}/out'
    os.symlink(base, f'{work}/base')
    os.mkdir(store)
    index = f'{work}/target.caibx'
    if program == 'casync':
        make, seed = ['casync', 'make', f'--store={store}'], base
        extract = ['casync', 'extract', f'--store={store}', f'--seed={seed}']
    else:
        make = ['desync', 'make', '-s', store]
        extract = ['desync', 'extract', '-s', store, '--seed',
                   f'{work}/base.caibx']
    return Job([[*make, f'{work}/base.caibx', base], [*make, index, target]],
               [[*extract, index, out]], [index], out, store)


#: The level of a tool whose name has none.
LEVELS = {'block': 3, 'zstd': 3, 'xdelta3': 3}
LEVELLED = {'block': block, 'xdelta3': xdelta3, 'zstd': zstd}


def parts(tool: str) -> tuple[str, int]:
    """Split a tool's name into its program and its level."""
    program, _, level = tool.partition('-')
    return ((program, int(level or LEVELS[program])) if program in LEVELS
            else (tool, 0))


def job(tool: str, base: str, target: str, work: str) -> Job:
    """Return the commands of a tool."""
    program, level = parts(tool)
    if program in LEVELLED:
        return LEVELLED[program](base, target, work, level)
    if program in ('casync', 'desync'):
        return chunks(program, base, target, work)
    return rdiff(base, target, work)


def is_installed(tool: str) -> bool:
    """Return whether a tool can be measured here."""
    program, _ = parts(tool)
    return program == 'block' or shutil.which(program) is not None


def warm(*paths: str) -> None:
    """Bring files into the page cache: no tool pays for the disk."""
    processes.measured(['cat', *paths], stdout=open(os.devnull, 'wb'))


def store_bytes(store: str | None) -> int:
    """Return the bytes of all files below a folder."""
    files = pathlib.Path(store).rglob('*') if store else ()
    return sum(file.stat().st_size for file in files if file.is_file())


def compare(tool: str, base: str, target: str, work: pathlib.Path) -> dict:
    """Make and apply a patch; return what that took.

    :raises BenchError: the outcome is not the target
    """
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    todo = job(tool, base, target, str(work))
    warm(base, target)
    create = processes.measured(*todo.create[:-1])
    before = store_bytes(todo.store)
    create.add(processes.measured(todo.create[-1]))
    row = {'create': create.figures(),
           'bytes': sum(map(os.path.getsize, todo.files))
           + store_bytes(todo.store) - before}
    if tool == 'rdiff':
        # Not through a pipe: a child's peak begins with what its parent has.
        packed = f'{work}/packed'
        create.add(processes.measured(
            ['zstd', '-1', '-T1', '-q', todo.files[0], '-o', packed]))
        row['zstd_1'] = {'create': create.figures(),
                         'bytes': os.path.getsize(packed)}
    warm(base, *todo.files)
    row['apply'] = processes.measured(*todo.apply).figures()
    if not processes.same(todo.output, target):
        raise errors.BenchError(f'{tool}: the outcome is not {target}')
    shutil.rmtree(work)
    return row


def limits(path: str) -> dict:
    """Return what reading, and reading and hashing, an image's data costs."""
    warm(path)
    with tempfile.NamedTemporaryFile() as empty:
        nothing = processes.measured(native('hash_file', empty.name)).cpu_s
    return {'bytes': os.stat(path).st_blocks * 512,
            'read': processes.measured(
                [sys.executable, '-c', READ, path]).cpu_s - nothing,
            'hash': processes.measured(
                native('hash_file', path)).cpu_s - nothing}


def measure(run: runs.Run, where: pathlib.Path,
            pairs: collections.abc.Iterable[tuple[str, str]],
            known: tuple[str, ...]) -> report.Rows:
    """Return figures by tool and pair; of all that was ever measured."""
    missing = {tool for tool in run.options.tools if not is_installed(tool)}
    if missing:
        run.say(f'not installed, left out: {", ".join(sorted(missing))}')
    rows: report.Rows = {}
    for base, target in pairs:
        paths = [str(where / f'{name}.raw') for name in (base, target)]
        for tool in known:
            key = f'{base} to {target}, {tool}'
            if tool in run.options.tools and tool not in missing:
                row = run.keep(key, lambda tool=tool, paths=paths: compare(
                    tool, *paths, run.work / 'job'))
            else:
                row = run.kept(key)
            if row:
                rows.setdefault(tool, {})[base, target] = row
            if row and 'zstd_1' in row:
                rows.setdefault('rdiff, zstd -1', {})[base, target] = (
                    row | row['zstd_1'])
    return rows


def family(run: runs.Run) -> None:
    """Measure images that differ by what is installed."""
    where = images.folder(run, 'build-family')
    pairs = images.pairs(run, where, images.FAMILY)
    with processes.on_one_core():
        costs = {name: run.keep(f'reading {name}', lambda name=name: limits(
            str(where / f'{name}.raw')))
            for name in sorted(set(sum(pairs, ())))}
        rows = measure(run, where, pairs, bench.patch.FAMILY_TOOLS)
    report.totals(run, rows)
    report.limits(run, rows, costs)
    report.each(run, rows)


def upgrades(run: runs.Run) -> None:
    """Measure images before and after an upgrade."""
    where = images.folder(run, 'build-upgrades')
    known = images.UPGRADES + (images.HELD if run.options.held else ())
    pairs = images.pairs(run, where, known)
    with processes.on_one_core():
        rows = measure(run, where, pairs, bench.patch.UPGRADE_TOOLS)
    report.each(run, rows)
