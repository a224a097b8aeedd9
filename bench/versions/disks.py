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
"""The disks that are saved."""

import collections.abc
import pathlib
import random

from bench.harness import errors
from bench.harness import processes
from bench.harness import runs

BLOCK = 4096
# Blocks that each of several servers writes alone before each save.
OWN_BLOCKS = 3000
_CHUNK = 4 << 20
_QUICK_BLOCKS = 512


def states(run: runs.Run) -> list[pathlib.Path]:
    """Return the states of a disk; makes tiny ones with --quick.

    :raises BenchError: there are none
    """
    folder = run.options.chain
    if folder is None and run.quick:
        folder = run.work / 'chain'
        folder.mkdir()
        chance = random.Random(1)
        blocks = [block(chance) for _ in range(_QUICK_BLOCKS)]
        for number in range(1, 5):
            (folder / f'v{number:02}.raw').write_bytes(b''.join(blocks))
            for place in chance.sample(range(_QUICK_BLOCKS), 32):
                blocks[place] = block(chance)
    found = sorted(folder.glob('v*.raw')) if folder else []
    if not found:
        raise errors.BenchError('no states: build them with bench/versions/'
                                'build-chain DIR, and give --chain DIR')
    return found


def one(run: runs.Run) -> pathlib.Path:
    """Return the raw disk that a run has; makes a tiny one with --quick.

    :raises BenchError: there is none
    """
    disk = run.options.disk
    if disk is None and run.quick:
        disk = run.work / 'disk'
        noise = random.Random(1)
        disk.write_bytes(b''.join(block(noise) for _ in range(_QUICK_BLOCKS)))
    if disk is None:
        raise errors.BenchError('give --disk, a raw disk')
    return disk


def block(noise: random.Random) -> bytes:
    """Return a block that zstd makes about half as long."""
    data = noise.randbytes(BLOCK // 2)
    return b''.join(data[at:at + 64] + data[:64]
                    for at in range(0, len(data), 64))


def changed(old: pathlib.Path, new: pathlib.Path,
            ) -> collections.abc.Iterator[tuple[int, bytes]]:
    """Yield the blocks (offset, bytes) of a raw file that differ."""
    with open(old, 'rb') as before, open(new, 'rb') as after:
        offset = 0
        while data := after.read(_CHUNK):
            was = before.read(_CHUNK).ljust(len(data), b'\0')
            if data != was:
                for at in range(0, len(data), BLOCK):
                    if data[at:at + BLOCK] != was[at:at + BLOCK]:
                        yield offset + at, data[at:at + BLOCK]
            offset += len(data)


def own_state(state: pathlib.Path, server: int, past: int,
              output: pathlib.Path, count: int = OWN_BLOCKS) -> None:
    """Write a state, and what one server has written besides so far.

    :param past: states before this one
    """
    processes.copy(state, output)
    blocks = state.stat().st_size // BLOCK
    with open(output, 'r+b') as stream:
        for number in range(past + 1):
            noise = random.Random(server * 1000 + number)
            for _ in range(count):
                stream.seek(noise.randrange(blocks) * BLOCK)
                stream.write(noise.randbytes(BLOCK))
