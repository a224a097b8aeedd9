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
"""Boots of a guest, recorded or synthetic, which are replayed."""

import dataclasses
import json
import pathlib
import random

from diffcache_openstack.blocks import file_map
from diffcache_openstack.common import profile_files
from diffcache_openstack.prefetch import scenarios

CHUNK = 256 << 10
SYNTHETIC_IMAGE = 2 << 30
RECORDED = pathlib.Path(__file__).with_name('boot.json')
# The program that replays one boot in real time.
READER = pathlib.Path(__file__).with_name('reader.py')
READ = 128 << 10
# Chunks of the rest of a file that diffcached prefetches.
REST = 8

# The two settings: chunks striped over the hosts of a cluster as in the
# paper, and an image that is only at the repository behind a WAN.
SETTINGS = {
    'striped': dict(striped=True, wan_mbps=100, wan_rtt_ms=20, lan_mbps=940,
                    lan_rtt_ms=0.2),
    'wan': dict(striped=False, wan_mbps=100, wan_rtt_ms=20, lan_mbps=200,
                lan_rtt_ms=0.2),
}

# Reads before jitter: seconds of thinking, offset, length, and the share of
# instances that read it.
Step = tuple[float, int, int, float]


@dataclasses.dataclass(frozen=True)
class Boot:
    """The reads of one boot, and the size of the image."""

    image_bytes: int
    steps: list[Step]

    def chunks(self) -> set[int]:
        """Return the chunks that are read."""
        return {chunk for _, offset, length, _ in self.steps for chunk in
                range(offset // CHUNK, (offset + length - 1) // CHUNK + 1)}

    def thinking(self) -> float:
        """Return the seconds of thinking."""
        return sum(step[0] for step in self.steps)


def synthetic_boot(seed: int) -> Boot:
    """Return reads that touch about 450 chunks in 25 s of thinking."""
    draw = random.Random(seed)
    steps: list[Step] = [(0.5, 0, 4096, 1.0)]
    for first, count in ((400, 30), (600, 120)):
        steps += [(0.002, first * CHUNK + at, READ, 1.0)
                  for at in range(0, count * CHUNK, READ)]
        steps.append((2.0, first * CHUNK, 4096, 1.0))
    files = draw.sample(range(1000, SYNTHETIC_IMAGE // CHUNK, 8), 130)
    for number, first in enumerate(files):
        share = 1.0 if number % 10 else 0.6
        # Programs start in bursts, with seconds between them.
        think = 1.5 if number % 13 == 0 else 0.02
        for at in range(draw.choice((1, 1, 2, 2, 3, 5))):
            for part in (0, READ):
                steps.append((think, (first + at) * CHUNK + part,
                              draw.choice((4096, 16384, READ)), share))
                think = 0.01
    return Boot(SYNTHETIC_IMAGE, steps)


def recorded_boot(path: str, speed: float = 1.0) -> Boot:
    """Return the reads of a scenario's first instance, think times divided."""
    scenario = scenarios.load(path)
    return Boot(scenario.image_bytes,
                [(think / 1e6 / speed, offset, length, 1.0)
                 for think, offset, length in scenario.reads[0]])


def with_jitter(steps: list[Step], start_us: float, draw: random.Random
                ) -> tuple[float, list[scenarios.ReadRow]]:
    """Return one instance's start and reads.

    An instance is up to 15 % slower or faster than others, each think time
    varies besides, and reads that only a share of instances does are left out
    by the rest.
    """
    speed = draw.uniform(0.85, 1.15)
    rows, left_out = [], {}
    for think, offset, length, share in steps:
        file = offset // (8 * CHUNK)
        if share < 1 and left_out.setdefault(file, draw.random() >= share):
            continue
        rows.append((round(think * 1e6 * speed * draw.lognormvariate(0, 0.3)),
                     offset, length))
    return start_us, rows


def files_of(image: pathlib.Path) -> list:
    """Return the extents of an image's files."""
    found = file_map.read(image)
    return [extent for extent in found.extents
            if found.entries[extent.entry].kind == file_map.FILE]


def make(boot: Boot, count: int, setting: str, seed: int,
         spread_s: float = 1.0) -> scenarios.Scenario:
    """Return the boots of ``count`` instances that start within a time."""
    draw = random.Random(seed)
    boots = [with_jitter(boot.steps, draw.uniform(0, spread_s * 1e6), draw)
             for _ in range(count)]
    return scenarios.Scenario(
        image_bytes=boot.image_bytes, chunk=CHUNK, threshold=0.1,
        starts_us=[start_us for start_us, _ in boots],
        reads=[reads for _, reads in boots], **SETTINGS[setting])


def profile(rows: list) -> str:
    """Return a profile as diffcached reads it."""
    return json.dumps(profile_files.document(CHUNK, rows))


def carried(profile, seed, chunks):
    """Return a profile as the block map carries it to the next build.

    15 % of what is read is new there, and 5 % of what the profile has is not
    read any more.
    """
    draw = random.Random(seed)
    kept = [tuple(row) for row in profile if draw.random() >= 0.15]
    known = {row[0] for row in profile}
    unread = [c for c in range(chunks) if c not in known]
    extra = draw.sample(unread, len(profile) // 20)
    return sorted(kept + [(c, profile[0][1], 1e7) for c in extra])
