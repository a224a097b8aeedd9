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
"""Estimated patch sizes for every ordered pair of images."""

import dataclasses
import os
import time
from typing import Sequence

from diffcache_openstack.blocks.codecs import codec_base
from diffcache_openstack.blocks import operands
from diffcache_openstack.blocks import sketches


@dataclasses.dataclass(frozen=True)
class Pair:
    """A possible patch. Sizes in bytes."""

    base: str
    target: str
    estimated_size: int
    #: What the target has in blocks that are not zero, uncompressed.
    target_data_size: int


@dataclasses.dataclass(frozen=True)
class Estimates:
    """Estimates for all pairs, and the time they took."""

    pairs: list[Pair]
    images: int
    sketch_seconds: float
    sketch_cpu_seconds: float
    pair_seconds: float

    def cost_line(self) -> str:
        """Return the time that the estimates took, by image and by pair."""
        return (
            f'{self.images} images sketched in {self.sketch_seconds:.2f} s '
            f'({self.sketch_cpu_seconds / self.images:.2f} CPU-s each), '
            f'{len(self.pairs)} pairs estimated in {self.pair_seconds:.3f} s '
            f'({self.pair_seconds / len(self.pairs) * 1000:.3f} ms each)')


class _Total:
    """Adds up the progress of one image after the other.

    Images count by their size; a sparse one may be done before all of its
    bytes are reported.
    """

    def __init__(self, progress: codec_base.Progress | None,
                 sizes: Sequence[int]) -> None:
        self._progress = progress
        self._total = sum(sizes)
        self._before = 0

    def report(self, share: float, size: int) -> None:
        """Report a share of the image of ``size`` bytes as done."""
        if self._progress is not None:
            self._progress(self._before + int(share * size), self._total)

    def finish(self, size: int) -> None:
        """Report an image of ``size`` bytes as done."""
        self.report(1.0, size)
        self._before += size


def estimate(images: Sequence[str],
             progress: codec_base.Progress | None = None) -> Estimates:
    """Estimate the block patch size of every ordered pair of ``images``.

    :param images: paths of raw or qcow2 images, at least two
    :raises: what :meth:`diffcache_openstack.blocks.sketches.Sketch.of` raises
    """
    sizes = [operands.check_readable(image, 'image') for image in images]
    total = _Total(progress, sizes)
    started, cpu_before = time.monotonic(), _cpu_seconds()
    samples = []
    for image, size in zip(images, sizes):
        samples.append(sketches.Sketch.of(
            image,
            lambda done, of, size=size:  # type: ignore[misc]
            total.report(done / of, size)))
        total.finish(size)
    sketched, cpu_after = time.monotonic(), _cpu_seconds()
    rows = sketches.matrix(samples)
    ended = time.monotonic()
    return Estimates(
        pairs=[
            Pair(images[base], images[target], row[target],
                 samples[target].data_size)
            for base, row in enumerate(rows)
            for target in range(len(images)) if target != base],
        images=len(images),
        sketch_seconds=sketched - started,
        sketch_cpu_seconds=cpu_after - cpu_before,
        pair_seconds=ended - sketched)


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system
