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
"""One server's disk, and several servers', saved by each program.

This suite, and overlays of qcow2, have a disk that is written as a guest
would: before each save the blocks of 4 KiB that differ are written to it by
qemu-io. The others get the same content as a raw file of the same name.
"""

import collections.abc
import json
import os
import pathlib
import shutil
import sys
import tempfile

from bench.harness import errors
from bench.harness import processes
from bench.harness import runs
from bench.harness import tables
from bench.versions import disks
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions.store.commits import heads

DRIVER = pathlib.Path(__file__).with_name('cinder_driver.py')
CINDER = 'cinder==29.0.0'
# The level at which what was stored is compressed again.
AGAIN = 17
# The states that each of several servers goes through.
STATES = (0, 1, 3)


def write_blocks(disk: pathlib.Path,
                 blocks: collections.abc.Iterable[tuple[int, bytes]]) -> None:
    """Let QEMU write blocks to a qcow2 disk."""
    with tempfile.TemporaryDirectory() as directory:
        commands = pathlib.Path(directory, 'commands')
        with commands.open('w') as output:
            for number, (offset, block) in enumerate(blocks):
                source = pathlib.Path(directory, str(number))
                source.write_bytes(block)
                output.write(f'write -s {source} {offset} {len(block)}\n')
            output.write('flush\nquit\n')
        with commands.open() as source:
            processes.measured(['qemu-io', '-f', 'qcow2', disk], stdin=source,
                               stdout=open(os.devnull, 'wb'))


class Program:
    """One way to keep versions.

    :cvar needs: the program
    :cvar shares: whether servers share what they have in common
    """

    needs: str | None = None
    suffix = '.raw'
    shares = True

    def __init__(self, work: pathlib.Path) -> None:
        self.work = work
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        self.env = dict(os.environ, PYTHONPYCACHEPREFIX=str(work / 'cache'))
        self.env.pop('PYTHONDONTWRITEBYTECODE', None)
        self.use('vm')

    def use(self, server: str) -> None:
        """Save the disk of this server from now on."""
        self.server = server
        self.disk = self.work / f'{server}{self.suffix}'

    def measured(self, *words: object, **options: object) -> processes.Spent:
        """Run a command of the program."""
        return processes.measured(words, env=self.env, **options)

    def to_file(self, output: pathlib.Path, *words: object,
                **options: object) -> dict:
        """Run a command whose output is a disk."""
        with open(output, 'wb') as stream:
            return self.measured(*words, stdout=stream, **options).figures()

    def change(self, _old: pathlib.Path | None, new: pathlib.Path) -> None:
        """Make the disk be the next state; not measured."""
        processes.copy(new, self.disk)

    def read_whole(self, spent: processes.Spent) -> dict:
        """Return the figures of a save that reads all of the disk."""
        return spent.figures() | {'bytes_read': self.disk.stat().st_size}

    def stored(self) -> int:
        """Return the bytes that the program takes now."""
        return sum(each.stat().st_size for each in (
            self.work / 'repo').rglob('*') if each.is_file())

    def extras(self, _middle: int) -> dict[str, dict]:
        """Measure what only this program does."""
        return {}


class DiffCache(Program):
    """This suite, on a qcow2 disk."""

    alpha, level = '0', '3'
    suffix = '.qcow2'
    extra = True

    def __init__(self, work: pathlib.Path) -> None:
        super().__init__(work)
        self.store = f'file://{work.resolve()}/repo'
        self.versions: list[str] = []
        self.measured(*processes.own('diffcache', 'version', 'save', '--help'))

    def change(self, old: pathlib.Path | None, new: pathlib.Path) -> None:
        if old is None:
            processes.run('qemu-img', 'convert', '-O', 'qcow2', new, self.disk)
        else:
            write_blocks(self.disk, disks.changed(old, new))

    def command(self, *arguments: object) -> tuple[dict, dict]:
        """Run a command; return its answer and what it took."""
        spent = self.measured(*processes.own(
            'diffcache', '-q', 'version', *arguments, '--store', self.store,
            '-f', 'json'))
        return json.loads(spent.output), spent.figures()

    def save(self, _number: int) -> dict:
        answer, figures = self.command(
            'save', self.disk, '--series', self.server, '--alpha', self.alpha,
            '--level', self.level)
        self.versions.append(answer['version'])
        return figures | {each: answer[each] for each in (
            'blocks_changed', 'bytes_read', 'bytes_stored', 'pause_ms')}

    def restore(self, number: int, output: pathlib.Path) -> dict:
        return self.command('restore', self.versions[number], output,
                            '--format', 'raw')[1]

    def extras(self, middle: int) -> dict[str, dict]:
        answer, figures = self.command('rollback', self.versions[middle],
                                       self.disk)
        found = {'rollback': figures | {each: answer[each] for each in (
            'bytes_differing', 'bytes_written', 'bytes_read')}}
        if self.extra:
            answer, figures = self.command('prune', '--level', AGAIN)
            head = heads.load(file.FileStore(self.work / 'repo'))
            first = sum(pack.data_bytes + pack.index_bytes
                        for pack in head.packs.values() if pack.origin == 1)
            found['compressed again'] = figures | {
                'stored': answer['bytes_after'] - first - head.maps[1].bytes}
        return found


class DiffCacheAuto(DiffCache):
    """The same, keeping every version's restore fast."""

    alpha = 'auto'
    extra = False


class DiffCacheQuick(DiffCache):
    """The same, compressing less at first."""

    level = '1'


class DiffCacheRaw(DiffCache):
    """The same on raw disks, which have to be read whole."""

    suffix = '.raw'
    extra = False
    change = Program.change


class Restic(Program):
    """restic, with its own chunks and compression."""

    needs = 'restic'

    def __init__(self, work: pathlib.Path) -> None:
        super().__init__(work)
        self.snapshots: list[str] = []
        self.options = ['restic', '-r', str(work / 'repo'), '-q']
        self.env |= {'RESTIC_PASSWORD': 'x',
                     'RESTIC_CACHE_DIR': str(work / 'cache')}
        self.measured(*self.options, 'init', '--repository-version', '2')

    def save(self, _number: int) -> dict:
        spent = self.measured(*self.options, 'backup', self.disk)
        listed = self.measured(*self.options, 'snapshots', '--json').output
        self.snapshots = [each['id'] for each in json.loads(listed)]
        return self.read_whole(spent)

    def restore(self, number: int, output: pathlib.Path) -> dict:
        return self.to_file(output, *self.options, 'dump',
                            self.snapshots[number], self.disk.resolve())


class Borg(Program):
    """borg, with fixed chunks of 64 KiB and zstd at level 3."""

    needs = 'borg'
    options: tuple[str, ...] = ('--chunker-params', 'fixed,65536', '-C',
                                'zstd,3')

    def __init__(self, work: pathlib.Path) -> None:
        super().__init__(work)
        self.env |= {'BORG_BASE_DIR': str(work / 'base'),
                     'BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK': 'yes'}
        self.archive = f'{work.resolve()}/repo::v'
        self.measured('borg', 'init', '-e', 'none', work / 'repo')

    def save(self, number: int) -> dict:
        return self.read_whole(self.measured(
            'borg', 'create', *self.options, f'{self.archive}{number}',
            self.disk.name, cwd=self.work))

    def restore(self, number: int, output: pathlib.Path) -> dict:
        return self.to_file(output, 'borg', 'extract', '--stdout',
                            f'{self.archive}{number}', cwd=self.work)


class BorgDefaults(Borg):
    """borg as it is without options: chunks cut by content, and lz4."""

    options = ()


class Overlays(Program):
    """External snapshots: each version is frozen under a new overlay."""

    suffix = '.qcow2'
    shares = False
    change = DiffCache.change

    def use(self, server: str) -> None:
        self.server = server
        self.disk = self.work / 'repo' / f'{server}-0.qcow2'
        self.disk.parent.mkdir(exist_ok=True)

    def save(self, number: int) -> dict:
        above = self.disk.with_name(f'{self.server}-{number + 1}.qcow2')
        spent = self.measured('qemu-img', 'create', '-f', 'qcow2', '-b',
                              self.disk.name, '-F', 'qcow2', above)
        self.disk = above
        return spent.figures() | {'bytes_read': 0}

    def restore(self, number: int, output: pathlib.Path) -> dict:
        kept = self.disk.with_name(f'{self.server}-{number}.qcow2')
        return self.measured('qemu-img', 'convert', '-O', 'raw', kept,
                             output).figures()


class Cinder(Program):
    """Cinder's chunked backup driver: a full backup, then increments."""

    shares = False
    compression = 'zlib'

    def __init__(self, work: pathlib.Path) -> None:
        super().__init__(work)
        environment = work.with_name('cinder-environment')
        self.command = [environment / 'bin/python', DRIVER, work,
                        self.compression]
        if not environment.exists():
            processes.run(sys.executable, '-m', 'venv', environment)
            processes.run(environment / 'bin/python', '-m', 'pip', 'install',
                          '-q', CINDER)

    def save(self, number: int) -> dict:
        return self.read_whole(self.measured(
            *self.command, 'backup', number, self.disk))

    def restore(self, number: int, output: pathlib.Path) -> dict:
        return self.measured(*self.command, 'restore', number,
                             output).figures()


PROGRAMS = {'diffcache': DiffCache, 'diffcache-auto': DiffCacheAuto,
            'diffcache-quick': DiffCacheQuick, 'diffcache-raw': DiffCacheRaw,
            'restic': Restic, 'borg': Borg, 'borg-defaults': BorgDefaults,
            'qcow2-external': Overlays, 'cinder': Cinder}


Programs = collections.abc.Mapping[str, type[Program]]


def installed(run: runs.Run, known: Programs = PROGRAMS) -> list[str]:
    """Return the chosen programs that are there."""
    found, missing = [], []
    for name in run.options.programs:
        needs = known[name].needs
        (found if needs is None or shutil.which(needs) else missing).append(
            name)
    if missing:
        run.say(f'not installed, left out: {", ".join(missing)}')
    return found


def save(program: Program, number: int, old: pathlib.Path | None,
         state: pathlib.Path) -> dict:
    """Make the disk be a state, and save it; return the figures."""
    before = program.stored()
    program.change(old, state)
    figures = program.save(number)
    return figures | {'stored': program.stored() - before}


def total(saves: list[dict], field: str) -> float:
    """Return what some saves took together."""
    return sum(each[field] for each in saves)


def measure(run: runs.Run, name: str, states: list[pathlib.Path],
            known: Programs = PROGRAMS) -> dict:
    """Measure all saves, some restores and further functions of a program.

    :raises BenchError: what was restored is not what was saved
    """
    program = known[name](run.work / name)
    saves = []
    for number, state in enumerate(states):
        saves.append(save(program, number,
                          states[number - 1] if number else None, state))
        run.say(f'{name}: saved {number + 1} of {len(states)}')
    count = len(states)
    numbers = (range(count) if run.options.restore_all
               else (0, count // 2, count - 1))
    restores, output = [], run.work / 'restored'
    for number in numbers:
        restores.append(program.restore(number, output))
        if not processes.same(output, states[number]):
            raise errors.BenchError(f'{name}: version {number + 1} differs')
        output.unlink()
    extras = program.extras(count // 2)
    shutil.rmtree(program.work)
    return {'saves': saves, 'restores': restores, 'extras': extras}


def chain(run: runs.Run) -> None:
    """Measure one server's disk with each program."""
    states = disks.states(run)
    found = {name: run.keep(name, lambda name=name: measure(
        run, name, states)) for name in installed(run)}
    rows = []
    for name, each in found.items():
        later = each['saves'][1:]
        rows.append((
            name, tables.megabytes(total(later, 'stored')),
            f'{total(later, "cpu_s"):.1f}', f'{total(later, "wall_s"):.1f}',
            f'{total(later, "bytes_read") / 1e9:.2f}',
            ' '.join(f'{one["cpu_s"]:.1f}' for one in each['restores'])))
        for what, extra in each['extras'].items():
            rows.append((
                f'{name}, {what}', tables.megabytes(
                    extra.get('stored', extra.get('bytes_written', 0))),
                f'{extra["cpu_s"]:.1f}', f'{extra["wall_s"]:.1f}',
                f'{extra.get("bytes_read", 0) / 1e9:.2f}', ''))
    run.table(f'{len(states) - 1} increments', (
        'Program', 'Stored, MB', 'CPU s', 's', 'Read, GB',
        'Restores of the first, the middle, the last, CPU s'), rows)
    run.chart(lambda axes: plot_programs(axes, found), columns=2)
    run.chart(lambda axes: plot_saves(axes, found), columns=2,
              suffix='-saves.svg')


def plot_programs(axes: list, found: dict[str, dict]) -> None:
    """Plot bars of bytes and CPU seconds, one for each program."""
    def value(name: str, field: str) -> float:
        return total(found[name]['saves'][1:], field)

    names = sorted(found, key=lambda name: value(name, 'stored'))
    for axis, title, unit, field, scale in (
            (axes[0], 'Increments', 'MB', 'stored', 1e6),
            (axes[1], 'CPU of their saves', 'seconds (logarithmic)', 'cpu_s',
             1)):
        axis.bar_label(axis.barh(names, [value(name, field) / scale
                                         for name in names]), fmt='%.1f')
        axis.set(title=title, xlabel=unit)
        if field == 'cpu_s':
            axis.set_xscale('log')
        # The numbers are beside the bars.
        axis.set_xlim(right=axis.get_xlim()[1] * (5 if scale == 1 else 1.2))


def plot_saves(axes: list, found: dict[str, dict]) -> None:
    """Plot figure 17 of CloudVS: how long each save takes."""
    # The library takes a while.
    from bench.harness import charts
    for axis, field, unit in ((axes[0], 'wall_s', 'seconds'),
                              (axes[1], 'cpu_s', 'CPU seconds')):
        charts.lines(axis, 'Save', unit, {
            name: list(enumerate((one[field] for one in each['saves']), 1))
            for name, each in found.items()
            if name in ('diffcache', 'diffcache-raw', 'qcow2-external')},
            xlabel='version')


def several(run: runs.Run, name: str, states: list[pathlib.Path]) -> dict:
    """Measure several servers' saves; return those of each round."""
    program = PROGRAMS[name](run.work / name)
    own = 20 if run.quick else disks.OWN_BLOCKS
    rounds, saved = [], 0
    for number, which in enumerate(STATES):
        rounds.append([])
        for server in range(run.options.servers):
            program.use(f'vm-{server}')
            state, old = run.work / 'state', None
            disks.own_state(states[which], server, number, state, own)
            if number:
                old = run.work / 'old'
                disks.own_state(states[STATES[number - 1]], server,
                                number - 1, old, own)
            rounds[-1].append(save(program, saved, old, state))
            saved += 1
    shutil.rmtree(program.work)
    return {'rounds': rounds}


def servers(run: runs.Run) -> None:
    """Measure servers that get the same upgrades, and write blocks besides."""
    states = disks.states(run)
    rows = []
    for name in installed(run):
        if not PROGRAMS[name].shares:
            continue
        rounds = run.keep(name, lambda name=name: several(
            run, name, states))['rounds']
        later = [each for saves in rounds[1:] for each in saves]
        rows.append((
            name, tables.megabytes(total(later, 'stored')),
            f'{total(later, "cpu_s"):.1f}',
            tables.megabytes(total(rounds[0] + later, 'stored'))))
    run.table(f'{run.options.servers} servers, the second and third round', (
        'Program', 'Stored, MB', 'CPU s', 'Stored in all rounds, MB'), rows)
