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
"""Saving the disk of a guest that runs, in a real QEMU.

QEMU has a qcow2 disk and no system: it writes itself, as its guest would. The
first save is of a disk with 1 GiB of data.
"""

import collections.abc
import contextlib
import json
import os
import pathlib
import random
import subprocess

from bench.harness import errors
from bench.harness import processes
from bench.harness import runs
from diffcache_openstack.versions.guests import snapshots

MIB = 1 << 20


class Guest:
    """A QEMU with one disk."""

    def __init__(self, stack: contextlib.ExitStack, work: pathlib.Path,
                 size: int) -> None:
        self._work = work
        self._disk = work / 'disk.qcow2'
        self._socket = work / 'qmp'
        processes.run('qemu-img', 'create', '-q', '-f', 'qcow2', self._disk,
                      f'{size}G')
        stack.enter_context(processes.running(
            'qemu-system-x86_64', '-accel', 'tcg', '-m', '256', '-display',
            'none', '-nodefaults', '-qmp',
            f'unix:{self._socket},server=on,wait=off', '-blockdev',
            'driver=qcow2,node-name=disk,discard=unmap,file.driver=file,'
            f'file.filename={self._disk}',
            '-device', 'virtio-blk-pci,id=disk0,drive=disk',
            stdout=subprocess.DEVNULL))
        processes.until(self._socket.exists, 'QEMU')

    def write(self, places: collections.abc.Iterable[tuple[int, int]]) -> None:
        """Write (offset, bytes) with a pattern each.

        :raises BenchError: QEMU complained
        """
        with snapshots.Monitor(self._socket) as monitor:
            for number, (offset, length) in enumerate(places):
                answer = monitor.command('human-monitor-command', **{
                    'command-line': (
                        'qemu-io -d /machine/peripheral/disk0/virtio-backend '
                        f'"write -P {number % 251 + 1} {offset} {length}"')})
                if answer:
                    raise errors.BenchError(f'QEMU: {answer}')

    def save(self) -> dict:
        """Save by the command; return what it says, and what it took."""
        spent = processes.measured(processes.own(
            'diffcache', '-q', 'version', 'save', self._disk, '--store',
            f'file://{self._work.resolve()}/store', '--series', 'vm', '--qmp',
            self._socket, '-f', 'json'))
        return json.loads(spent.output) | spent.figures()


def measure(run: runs.Run) -> dict[str, dict]:
    """Write and save in turns."""
    options, found = run.options, {}
    noise = random.Random(1)
    with contextlib.ExitStack() as stack:
        guest = Guest(stack, run.work, options.size)
        guest.write((at * 32 * MIB, 32 * MIB)
                    for at in range(1 if run.quick else 32))
        found['first'] = guest.save()
        # Each in a cluster of its own, so that what is read is the most.
        clusters = noise.sample(range(options.size << 14), options.scattered)
        guest.write(((at << 16) + (noise.randrange(16) << 12), 4096)
                    for at in clusters)
        found[f'{options.scattered} blocks at random'] = guest.save()
        guest.write(((2 << 30) + at * 32 * MIB, 32 * MIB)
                    for at in range(options.written // 32))
        found[f'{options.written} MiB in a row'] = guest.save()
    return found


def running(run: runs.Run) -> None:
    """Measure saves of a running guest's disk."""
    os.environ.pop('PYTHONDONTWRITEBYTECODE', None)
    os.environ['PYTHONPYCACHEPREFIX'] = str(run.work / 'cache')
    found = run.keep('saves', lambda: measure(run))
    run.table('Saves of a running guest', (
        'Written since the last save', 'Read, MB', 's in the save',
        's of the command', 'CPU s', 'Pause, ms'), [
            (name, f'{row["bytes_read"] / 1e6:.1f}', f'{row["seconds"]:.2f}',
             f'{row["wall_s"]:.2f}', f'{row["cpu_s"]:.2f}',
             f'{row["pause_ms"]:.0f}') for name, row in found.items()])
