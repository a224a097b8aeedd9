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
"""The images that are compared."""

import itertools
import pathlib
import random

from bench.harness import errors
from bench.harness import runs

FAMILY = (*itertools.permutations(('system', 'database', 'java', 'both'), 2),
          ('system', 'rebuild'))
UPGRADES = (('server-old', 'server-new'), ('server-old', 'server-inplace'),
            ('services-old', 'services-new'),
            ('services-old', 'services-inplace'),
            ('server-old', 'server-updated'), ('server-old', 'server-kernel'))
HELD = (('held-old', 'held-new'), ('held-old', 'held-inplace'))
_QUICK_BLOCKS = 256


def folder(run: runs.Run, script: str) -> pathlib.Path:
    """Return the folder of the images; makes tiny ones with --quick.

    :param script: what builds them
    :raises BenchError: there are none
    """
    found = run.options.images
    if found is None and run.quick:
        found = run.work / 'images'
        found.mkdir()
        make(found, dict.fromkeys(('system', 'both') if 'family' in script
                                  else ('server-old', 'server-new'), 16))
    if found is None or not any(found.glob('*.raw')):
        raise errors.BenchError(
            f'no images: build them with bench/patch/{script} DIR, and give'
            ' --images DIR')
    return found


def make(where: pathlib.Path, changed: dict[str, int]
         ) -> list[pathlib.Path]:
    """Write images, each the one before with so many blocks changed."""
    chance, paths = random.Random(1), []
    blocks = [chance.randbytes(2048) * 2 for _ in range(_QUICK_BLOCKS)]
    for name, count in changed.items():
        for place in chance.sample(range(_QUICK_BLOCKS), count):
            blocks[place] = chance.randbytes(4096)
        paths.append(where / f'{name}.raw')
        paths[-1].write_bytes(b''.join(blocks))
    return paths


def pairs(run: runs.Run, where: pathlib.Path,
          known: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    """Return the pairs that are named, or all that have images."""
    return [tuple(pair.split(':')) for pair in run.options.pairs] or [
        pair for pair in known
        if all((where / f'{name}.raw').exists() for name in pair)]
