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
"""Reads of a whole image through ``diffcache lazy serve``.

Beside them those of the plain file and of the FUSE export of
qemu-storage-daemon: with O_DIRECT, and through the page cache in a second
pass. The file itself is in the page cache, so that the disk is not measured.
CPU is that of all processes that read and serve.
"""

import collections.abc
import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess

from bench.harness import processes
from bench.harness import runs


@dataclasses.dataclass(frozen=True)
class Job:
    """How fio reads."""

    bytes: int
    options: tuple[str, ...]
    buffered: bool = False


JOBS = {
    '4 KiB at random, 32': Job(4 << 10, (
        '--rw=randread', '--direct=1', '--ioengine=libaio', '--iodepth=32')),
    '1 MiB in sequence, 4': Job(1 << 20, (
        '--rw=read', '--direct=1', '--ioengine=libaio', '--iodepth=4')),
    '1 MiB, second buffered pass': Job(1 << 20, (
        '--rw=read', '--direct=0', '--ioengine=psync', '--invalidate=0'),
        buffered=True),
}


def fio(path: str, job: Job, seconds: int) -> dict[str, float]:
    """Return reads per second, and microseconds of CPU for each."""
    if job.buffered:
        with open(path, 'rb') as file, open(os.devnull, 'wb') as out:
            shutil.copyfileobj(file, out, 1 << 20)
    cpu = processes.cpu_of_descendants()
    found = json.loads(processes.run(
        'fio', '--name=read', f'--filename={path}', '--readonly',
        *job.options, f'--bs={job.bytes}', '--time_based',
        f'--runtime={seconds}', '--randrepeat=1', '--output-format=json',
    ))['jobs'][0]['read']
    cpu = processes.cpu_of_descendants() - cpu
    return {'reads': found['iops'], 'cpu_us': 1e6 * cpu / found['total_ios']}


@contextlib.contextmanager
def lazy(folder: pathlib.Path, image: pathlib.Path,
         ) -> collections.abc.Iterator[str]:
    """Serve an image lazily until all of it is there; yield its path."""
    manifest, mount, state = (folder / name for name in
                              ('manifest', 'mount', 'state'))
    mount.mkdir()
    processes.run(*processes.own('diffcache', 'image', 'manifest', image,
                                 manifest))
    with processes.running(*processes.own(
            'diffcache', 'lazy', 'serve', image, '--manifest', manifest,
            '--mount', mount, '--state', state, '--hydrate', 'idle'),
            stdout=subprocess.PIPE) as process:
        path = processes.answer(process)['path']
        processes.until(lambda: json.loads(processes.run(*processes.own(
            'diffcache', 'lazy', 'status', '--state', state, '-f', 'json')
        ))['complete'], 'hydration', 600)
        yield path


@contextlib.contextmanager
def qemu(folder: pathlib.Path, image: pathlib.Path,
         ) -> collections.abc.Iterator[str]:
    """Export an image with qemu-storage-daemon; yield its path."""
    target = folder / 'export'
    target.touch()
    with processes.running(
            'qemu-storage-daemon', '--blockdev',
            f'driver=file,node-name=image,filename={image},read-only=on',
            '--export', 'type=fuse,id=export,node-name=image,writable=off,'
            f'mountpoint={target}'):
        processes.until(lambda: target.stat().st_size == image.stat().st_size,
                        'qemu-storage-daemon')
        yield str(target)


def fuse(run: runs.Run) -> None:
    """Read in all ways, in turns."""
    options, image = run.options, run.work / 'image'
    processes.write_random(image, options.size << 20)
    os.sync()
    rows = []
    with lazy(run.work, image) as served, qemu(run.work, image) as export:
        paths = {'plain file': str(image), 'lazy': served, 'qemu': export}
        for kind, job in JOBS.items():
            found = run.rounds({f'{kind}, {name}': lambda path=path, job=job:
                                fio(path, job, options.seconds)
                                for name, path in paths.items()},
                               options.rounds)
            for what, field in (('reads/s', 'reads'),
                                ('CPU us for a read', 'cpu_us')):
                plain, ours, theirs = (row[field] for row in found.values())
                rows.append((f'{kind}: {what}', *(
                    f'{value:,.0f}' for value in (plain, ours, theirs)),
                    f'{ours / plain:.2f}', f'{ours / theirs:.2f}'))
    run.table('Reads of a whole image; medians', (
        'Reads', 'Plain file', 'Lazy', 'qemu-storage-daemon', 'Lazy / plain',
        'Lazy / qemu'), rows)
