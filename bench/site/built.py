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
"""The case of images that a host builds from a base that it holds.

Its yardstick is what no build can do without: to decompress, hash and write
the bytes that changed, by zstd and by the native module.
"""

import contextlib
import os
import pathlib
import random

from bench.harness import processes
from bench.harness import runs
from bench.site import data_plane
from diffcache_openstack import _native
from diffcache_openstack.agent.data_plane import native_plane
from diffcache_openstack.agent.data_plane import orders
from diffcache_openstack.sites import views

_PIECE = 1 << 20
_BLOCK = 4096


class Images:
    """A base, its next build, and what of that is new.

    :ivar paths: base and next build
    :ivar changed: the bytes that changed, one extent after the other
    """

    def __init__(self, folder: pathlib.Path, megabytes: int, percent: float,
                 extent: int) -> None:
        chance = random.Random(megabytes)
        self.paths = [folder / name for name in ('base.raw', 'next.raw')]
        self.changed = folder / 'changed'
        with self.paths[0].open('wb') as base:
            for _ in range(megabytes * 10**6 // _PIECE + 1):
                base.write(_text(chance, _PIECE))
        processes.run('cp', '--reflink=auto', *self.paths)
        blocks = self.paths[0].stat().st_size // _BLOCK
        count = round(megabytes * 10**6 * percent / 100 / extent)
        # One in each stratum, so that no two overlap.
        stratum = blocks // count
        with self.paths[1].open('r+b') as file, \
                self.changed.open('wb') as changed:
            for number in range(count):
                data = _text(chance, extent)
                file.seek((number * stratum + chance.randrange(
                    max(1, stratum - extent // _BLOCK))) * _BLOCK)
                file.write(data)
                changed.write(data)


def _text(chance: random.Random, size: int) -> bytes:
    """Return bytes that can be compressed to a half."""
    return chance.randbytes(size // 2).hex().encode()


def built(run: runs.Run) -> None:
    """Time builds from what a host holds, beside their parts."""
    rows = []
    for percent in run.options.percent:
        images = Images(run.work, run.options.size, percent,
                        run.options.extent << 10)
        found = _measure(run, images, f'{percent:g} % changed')
        bound = sum(found[name]['cpu'] for name in (
            'decompress and write', 'hash'))
        for name, each in found.items():
            rows.append((f'{percent:g} %', name,
                         f'{1e3 * each["seconds"]:.1f}',
                         f'{1e3 * each["cpu"]:.1f}',
                         f'{each["cpu"] / bound:.2f}'))
        for path in (*images.paths, images.changed):
            path.unlink()
    run.table(f'{run.options.size} MB, extents of {run.options.extent} KiB', (
        'Changed', 'What', 'ms', 'CPU, ms', 'Of the bound'), rows)


def _measure(run: runs.Run, images: Images, label: str
             ) -> dict[str, dict[str, float]]:
    packed, plain = run.work / 'changed.zst', run.work / 'plain'
    processes.run('zstd', '-q', '-f', '-3', images.changed, '-o', packed)

    def decompress() -> dict[str, float]:
        plain.unlink(missing_ok=True)
        spent = processes.measured(('zstd', '-q', '-d', packed, '-o', plain))
        return {'seconds': spent.wall_s, 'cpu': spent.cpu_s}

    def digest() -> dict[str, float]:
        with processes.spending() as spent:
            _native.hash_file(str(images.changed))
        return {'seconds': spent.wall_s, 'cpu': spent.cpu_s}

    with contextlib.closing(native_plane.DataPlane(
            run.work / 'host', 'host', '127.0.0.1:0', data_plane.KEY)
            ) as plane:
        build = _Build(plane, run.work, images)
        ways = {f'{label}: {way}': measure for way, measure in (
            ('decompress and write', decompress), ('hash', digest),
            ('built from a known base', build.from_known),
            ('built from a file', build.from_file))}
        os.sync()
        found = run.rounds(ways, run.options.rounds)
    return {name.partition(': ')[2]: each for name, each in found.items()}


class _Build:
    """Builds the next build of a base at a host that has base and patch."""

    def __init__(self, plane: native_plane.DataPlane, work: pathlib.Path,
                 images: Images) -> None:
        self._plane = plane
        self._output, self._patch = work / 'output', work / 'patch'
        self._base, wanted = images.paths
        self._manifests = [path.with_suffix('.manifest')
                           for path in images.paths]
        ids = [_native.manifest_create(str(path), str(manifest))['content_id']
               for path, manifest in zip(images.paths, self._manifests)]
        self._key = views.Key(views.IMAGES, ids[1])
        _native.patch_create(str(self._base), str(wanted), str(self._patch))

    def from_known(self) -> dict[str, float]:
        """Build from a base that has its seal."""
        return self._build(orders.KnownFile(self._base, self._manifests[0]))

    def from_file(self) -> dict[str, float]:
        """Build from a file of which nothing is known."""
        return self._build(self._base)

    def _build(self, base: orders.Place) -> dict[str, float]:
        self._output.unlink(missing_ok=True)
        with processes.spending() as spent:
            delivery = self._plane.deliver(orders.Order(
                self._key, self._output,
                (orders.BuildSource(base, self._patch),), self._manifests[1],
                durable=False), self._plane.new_handle())
        if delivery.source is None:
            raise delivery.failures[-1].error
        return {'seconds': spent.wall_s, 'cpu': spent.cpu_s}
