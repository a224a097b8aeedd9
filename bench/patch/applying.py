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
"""Applying patches, beside copying and ``rdiff patch``.

On an XFS in a file: ``cp`` of the target, ``rdiff patch``, and the block
codec: sharing blocks with the base and verifying every byte (reflink), sharing
with a base that was verified before (verified), and from another filesystem
(plain). Seconds are those until the command ends, and until its output is on
the disk; the best of some rounds, by either clock on its own.
"""

import contextlib
import os
import pathlib
import time

from bench.harness import processes
from bench.harness import runs
from bench.harness import tables
from bench.patch import codecs
from bench.patch import images

_VOLUME = 12 << 30


@contextlib.contextmanager
def volume(work: pathlib.Path):
    """Mount an XFS; yield a folder on it, and one on another filesystem."""
    here, elsewhere, image = (
        work / name for name in ('here', 'elsewhere', 'volume'))
    here.mkdir()
    elsewhere.mkdir()
    with open(image, 'wb') as stream:
        os.truncate(stream.fileno(), _VOLUME)
    processes.run('mkfs.xfs', '-q', image)
    processes.run('mount', '-o', 'loop', image, here)
    try:
        yield here, elsewhere
    finally:
        processes.run('umount', here)


def attempt(command: list[str], output: pathlib.Path) -> dict:
    """Run a command once; flush its output after the clock has stopped."""
    output.unlink(missing_ok=True)
    os.sync()
    row = processes.measured(command).figures()
    started = time.monotonic()
    with open(output, 'rb') as stream:
        os.fsync(stream.fileno())
    return row | {'durable_s': row['wall_s'] + time.monotonic() - started}


def compare(run: runs.Run, pair: str, here: pathlib.Path,
            elsewhere: pathlib.Path, source: pathlib.Path) -> dict:
    """Return the bytes of a pair's patch, and the best figures of each way."""
    base, target = (here / name for name in pair.split(':'))
    for path in (base, target):
        processes.copy(source / f'{path.name}.raw', path)
    patch, delta, out, manifest, signature = (
        here / name for name in ('patch', 'delta', 'out', 'manifest',
                                 'signature'))
    processes.measured(
        codecs.native('patch_create', base, target, patch, 3),
        codecs.native('manifest_create', base, manifest),
        ['rdiff', '-f', 'signature', base, signature],
        ['rdiff', '-f', 'delta', signature, target, delta])
    # A base on another filesystem cannot be shared with.
    processes.copy(base, elsewhere / 'base')
    ways = {
        'cp': ['cp', '--sparse=auto', '--reflink=never', target, out],
        'rdiff patch': ['rdiff', '-f', 'patch', base, delta, out],
        'reflink': codecs.native('patch_apply', base, patch, out),
        'verified': codecs.native('patch_apply_verified', base, manifest,
                                  patch, out),
        'plain': codecs.native('patch_apply', elsewhere / 'base', patch, out)}
    found = {'bytes': patch.stat().st_size}
    for name, command in ways.items():
        tries = [attempt(command, out) for _ in range(run.options.rounds)]
        found[name] = {field: min(row[field] for row in tries)
                       for field in ('wall_s', 'durable_s', 'cpu_s')}
    for file in (*here.iterdir(), elsewhere / 'base'):
        file.unlink()
    return found


def apply(run: runs.Run) -> None:
    """Apply patches in all ways."""
    source = images.folder(run, 'build-family')
    rows = []
    with volume(run.work) as (here, elsewhere):
        for pair in run.options.pairs:
            found = run.keep(pair, lambda pair=pair: compare(
                run, pair, here, elsewhere, source))
            size = tables.megabytes(found.pop('bytes'))
            rows += [(pair, size, way, *(f'{row[field]:.2f}' for field in row))
                     for way, row in found.items()]
    run.table('Applying patches', ('Pair', 'MB', 'Way', 's', 's on disk',
                                   'CPU-s'), rows)
