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
"""The first save of a raw disk and its restore, beside what limits them.

A save is limited by zstd on all cores, a restore by a durable write of the
disk. All are measured in turns, and the disk is read from memory.
"""

import os
import shutil

from bench.harness import errors
from bench.harness import processes
from bench.harness import runs
from bench.versions import disks
from diffcache_openstack.versions.blobs import file
from diffcache_openstack.versions import version_store

_LIMITS = {'save': 'zstd', 'restore': 'write'}


def first(run: runs.Run) -> None:
    """Measure the save, the restore, and what limits them.

    :raises BenchError: there is no disk, or the restored one is another
    """
    disk = disks.one(run)
    store, output = run.work / 'store', run.work / 'output'
    words = '--store', f'file://{store.resolve()}'

    def spent(*command: object) -> dict[str, float]:
        output.unlink(missing_ok=True)
        return processes.measured(command).figures()

    def save() -> dict[str, float]:
        shutil.rmtree(store, ignore_errors=True)
        return spent(*processes.own('diffcache', '-q', 'version', 'save', disk,
                                    '--series', 'a', *words))

    def restore() -> dict[str, float]:
        if not store.exists():
            save()
        version, = version_store.VersionStore.open(
            file.FileStore(store)).versions()
        found = spent(*processes.own('diffcache', '-q', 'version', 'restore',
                                     version.id, output, *words))
        if not processes.same(disk, output):
            raise errors.BenchError('what is restored is not the disk')
        return found

    found = run.rounds({
        'zstd': lambda: spent('zstd', '-q', '-3', f'-T{os.cpu_count()}', disk,
                              '-o', output),
        'save': save,
        'write': lambda: spent('dd', f'if={disk}', f'of={output}', 'bs=4M',
                               'conv=sparse,fsync', 'status=none'),
        'restore': restore}, run.options.rounds)
    size = disk.stat().st_size
    rows = []
    for way, each in found.items():
        limit = found[_LIMITS[way]]['wall_s'] if way in _LIMITS else None
        rows.append((
            way, f'{each["wall_s"]:.2f}', f'{size / each["wall_s"] / 1e6:.0f}',
            f'{each["cpu_s"]:.2f}', f'{each["peak_mb"]:.0f}',
            f'{limit / each["wall_s"]:.2f}' if limit else ''))
    run.table(f'A disk of {size / 1e6:.0f} MB', (
        '', 's', 'MB/s', 'CPU s', 'MB of memory', 'Of the rate of the limit'),
        rows)
