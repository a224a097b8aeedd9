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
"""Many versions of a disk, and figures 11 and 15 of the CloudVS paper."""

import pathlib
import random
import shutil

from bench.harness import errors
from bench.harness import processes
from bench.harness import runs
from bench.harness import tables
from bench.versions import disks
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions import version_store

ALPHAS = (0.0, 0.5, 1.0, 'auto')
STATES = 5
TRIES = 3


def open_store(path: pathlib.Path) -> version_store.VersionStore:
    """Return a new store."""
    return version_store.VersionStore.open(file.FileStore(path))


def restore(store: version_store.VersionStore, version, output: pathlib.Path,
            ) -> dict[str, float]:
    """Restore a version; return the seconds that took."""
    with processes.spending() as spent:
        store.restore(version.id, output, 'raw')
    output.unlink()
    return spent.figures()


# -- a hundred versions


def used_blocks(disk: pathlib.Path) -> list[int]:
    """Return the numbers of a raw disk's blocks that are not all zeroes."""
    with open(disk, 'rb') as stream:
        return [number for number in range(disk.stat().st_size // disks.BLOCK)
                if stream.read(disks.BLOCK) != bytes(disks.BLOCK)]


def write(disk: pathlib.Path, noise: random.Random, places, count: int,
          ) -> None:
    """Change some blocks, four of five of them in a tenth of the places."""
    with open(disk, 'r+b') as stream:
        for _ in range(count):
            room = (len(places) // 10 if noise.random() < 0.8
                    else len(places))
            stream.seek(places[noise.randrange(room)] * disks.BLOCK)
            stream.write(disks.block(noise))


def save_and_restore(run: runs.Run, start: pathlib.Path, text: str) -> dict:
    """Save all versions, and restore the oldest, a middle and the newest.

    :raises BenchError: the newest is not what was saved
    """
    options, work = run.options, run.work / 'hundred'
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    disk, output = work / 'disk', work / 'restored'
    processes.copy(start, disk)
    store, noise, increments = open_store(work / 'store'), random.Random(1), 0
    places = (used_blocks(disk) if options.places == 'used'
              else range(disk.stat().st_size // disks.BLOCK))
    saved = []
    for number in range(options.versions):
        if number:
            write(disk, noise, places, options.writes)
        saved += store.save([version_store.Disk(disk, 'a')],
                            alpha=text if text == 'auto' else float(text))
        increments += saved[-1].bytes_stored if number else 0
    store.restore(saved[-1].id, output, 'raw')
    if not processes.same(output, disk):
        raise errors.BenchError('the newest version is not what was saved')
    tries = {label: [restore(store, saved[at], output) for _ in range(TRIES)]
             for label, at in (('oldest', 0), ('middle', len(saved) // 2),
                               ('newest', -1))}
    return {'stored': store.bytes_stored(), 'increments': increments,
            'restores': {label: {field: min(one[field] for one in every)
                                 for field in ('wall_s', 'cpu_s')}
                         for label, every in tries.items()}}


def hundred(run: runs.Run) -> None:
    """Save many versions of a disk, with each alpha.

    :raises BenchError: there is no disk to start from
    """
    start = disks.one(run)
    rows = []
    for text in run.options.alpha:
        found = run.keep(f'alpha {text}', lambda text=text: save_and_restore(
            run, start, text))
        rows.append((
            text, tables.megabytes(found['stored']),
            tables.megabytes(found['increments']),
            *(' '.join(f'{one[field]:.2f}' for one in found[
                'restores'].values()) for field in ('cpu_s', 'wall_s'))))
    run.table(f'{run.options.versions} versions', (
        'Alpha', 'Stored, MB', 'Increments, MB', 'Restore of the oldest,'
        ' a middle and the newest, CPU s', 'The same, s'), rows)


# -- figures of the paper


def series(values: list[float], unit: float = 1e6) -> list[tuple[int, float]]:
    """Return points of a chart, by the number of the version."""
    return [(number, value / unit) for number, value in enumerate(values, 1)]


def save_chain(run: runs.Run, states: list[pathlib.Path], alpha) -> dict:
    """Save all states of a disk, and restore each."""
    work = run.work / 'alpha'
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    store, disk, sizes = open_store(work / 'store'), work / 'disk', []
    for state in states:
        processes.copy(state, disk)
        store.save([version_store.Disk(disk, 'vm')], alpha=alpha)
        sizes.append(store.bytes_stored())
    return {'stored': sizes, 'restore_cpu_s': [
        restore(store, version, work / 'out')['cpu_s']
        for version in store.versions('vm')]}


def alpha(run: runs.Run) -> None:
    """Restore time and storage, by alpha."""
    states = disks.states(run)
    found = {f'alpha {value}': run.keep(
        f'alpha {value}', lambda value=value: save_chain(run, states, value))
        for value in ALPHAS}
    run.table('All versions', ('Alpha', 'Stored, MB',
                               'Restore of the last, CPU s'), [
        (name, tables.megabytes(each['stored'][-1]),
         f'{each["restore_cpu_s"][-1]:.2f}') for name, each in found.items()])

    def plot(axes: list) -> None:
        from bench.harness import charts
        charts.lines(axes[0], 'Restore', 'CPU seconds', {
            name: series(each['restore_cpu_s'], 1)
            for name, each in found.items()}, xlabel='version')
        charts.lines(axes[1], 'Storage', 'MB', {
            name: series(each['stored']) for name, each in found.items()},
            xlabel='version')
    run.chart(plot, columns=2)


def save_together(run: runs.Run, states: list[pathlib.Path]) -> dict:
    """Save several servers' disks to a store each, and to one."""
    work, count = run.work / 'redundancy', run.options.servers
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    one = open_store(work / 'one')
    each = [open_store(work / str(server)) for server in range(count)]
    found: dict[str, list[int]] = {
        name: [] for name in ('alone', 'together', 'sent_alone',
                              'sent_together')}
    servers = [version_store.Disk(work / f'disk-{server}', f'vm-{server}')
               for server in range(count)]
    for number, state in enumerate(states[:STATES]):
        for server, disk in enumerate(servers):
            disks.own_state(state, server, number, disk.path,
                            20 if run.quick else disks.OWN_BLOCKS)
        alone = [each[server].save([disk])[0]
                 for server, disk in enumerate(servers)]
        found['sent_alone'].append(sum(item.bytes_stored for item in alone))
        found['sent_together'].append(sum(
            item.bytes_stored for item in one.save(servers)))
        found['alone'].append(sum(store.bytes_stored() for store in each))
        found['together'].append(one.bytes_stored())
    return found


def redundancy(run: runs.Run) -> None:
    """Measure storage and transfer of servers with the same upgrades."""
    states = disks.states(run)
    found = run.keep('servers', lambda: save_together(run, states))
    run.table(f'{run.options.servers} servers, after each version', (
        'Version', 'Stored, a store each, MB', 'One store, MB',
        'Sent, a store each, MB', 'One store, MB'), [
            (number, *map(tables.megabytes, row)) for number, row in enumerate(
                zip(found['alone'], found['together'], found['sent_alone'],
                    found['sent_together']), 1)])

    def plot(axes: list) -> None:
        from bench.harness import charts
        for axis, title, before in ((axes[0], 'Storage', ''),
                                    (axes[1], 'Sent', 'sent_')):
            charts.lines(axis, title, 'MB', {
                'a store each': series(found[f'{before}alone']),
                'one store': series(found[f'{before}together'])},
                xlabel='version')
    run.chart(plot, columns=2)
