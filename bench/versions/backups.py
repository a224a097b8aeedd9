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
"""Daily backups of a volume, by cinder-backup's drivers and by restic.

The volume is a raw file. For this suite the agent's part is measured, which is
all but some calls of Cinder's.
"""

import json
import pathlib
import sys

from bench.harness import runs
from bench.harness import tables
from bench.versions import disks
from bench.versions import programs

AGENT = pathlib.Path(__file__).with_name('volume_store.py')


class VersionStore(programs.Program):
    """This suite's driver."""

    def __init__(self, work: pathlib.Path) -> None:
        super().__init__(work)
        self.versions: list[str] = []
        self.env['PYTHONPATH'] = str(pathlib.Path(__file__).parents[2])

    def save(self, _number: int) -> dict:
        spent = self.measured(sys.executable, AGENT, self.work / 'repo',
                              'backup', self.disk)
        answer = json.loads(spent.output)
        self.versions.append(answer.pop('id'))
        return spent.figures() | answer

    def restore(self, number: int, output: pathlib.Path) -> dict:
        return self.measured(sys.executable, AGENT, self.work / 'repo',
                             'restore', output,
                             self.versions[number]).figures()

    def extras(self, middle: int) -> dict[str, dict]:
        """Restore to the volume itself, which has the last state."""
        return {'in place': self.restore(middle, self.disk)}


class CinderZstd(programs.Cinder):
    """Cinder's chunked driver, with zstd in place of zlib."""

    compression = 'zstd'


PROGRAMS = {'version-store': VersionStore, 'restic': programs.Restic,
            'cinder-zlib': programs.Cinder, 'cinder-zstd': CinderZstd}


def backups(run: runs.Run) -> None:
    """Measure a backup of each state, and restores."""
    states = disks.states(run)
    found = {name: run.keep(name, lambda name=name: programs.measure(
        run, name, states, PROGRAMS)) for name in programs.installed(
            run, PROGRAMS)}
    rows = []
    for name, each in found.items():
        later = each['saves'][1:]
        rows.append((
            name, tables.megabytes(each['saves'][0]['stored']),
            tables.megabytes(programs.total(later, 'stored')),
            f'{programs.total(later, "cpu_s"):.1f}',
            f'{programs.total(later, "wall_s"):.1f}',
            ' '.join(f'{one["wall_s"]:.1f}' for one in each['restores'])))
        for what, extra in each['extras'].items():
            rows.append((f'{name}, {what}', '', '', f'{extra["cpu_s"]:.1f}',
                         f'{extra["wall_s"]:.1f}', ''))
    run.table(f'A first backup, and {len(states) - 1} more', (
        'Driver', 'First, MB', 'More, MB', 'CPU s of these', 's of these',
        'Restores of the first, the middle, the last, s'), rows)
