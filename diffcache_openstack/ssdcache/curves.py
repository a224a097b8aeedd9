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
"""Miss-ratio curves of the volumes of a trace, found by native/simulation."""

import collections.abc
import dataclasses
import os
import pathlib
import re
import time
import typing

from diffcache_openstack import _native
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files

EXACT, SHARDS = 'exact', 'shards'
METHODS = (EXACT, SHARDS)
BLOCK = 4096
# Of a volume with --method shards: see Waldspurger et al. (FAST 2015).
SAMPLES = 8192
MAX_SAMPLES = 1 << 32
MAX_BLOCK = 1 << 30
MAX_SIZES = 1 << 20
MAX_SIZE = (1 << 63) - 1
# Sizes that are shown of each volume, at most, unless some are named.
SHOWN = 100
# Of fewer sampled blocks, a curve may be anything.
FEWEST_SAMPLES = 100

_Progress = collections.abc.Callable[[int, int], None]


class TraceError(exceptions.InvalidInput):
    """A trace cannot be analysed; the message names the file and the line."""


@dataclasses.dataclass(frozen=True)
class Analysis:
    """How to analyse a trace; native code reads the attributes.

    :ivar block: bytes
    :ivar writes: whether writes are references
    :ivar rate: the part of all blocks to sample; none for all of them
    :ivar samples: the most blocks of a volume to sample
    """

    block: int = BLOCK
    writes: bool = True
    rate: float | None = None
    samples: int | None = None

    @property
    def method(self) -> str:
        """One of :data:`METHODS`."""
        exact = self.rate is None and self.samples is None
        return EXACT if exact else SHARDS


@dataclasses.dataclass(frozen=True)
class Volume:
    """A volume of a trace.

    :ivar curve: hits of an LRU cache of any size that it has for itself
    :ivar sampled: the part of its blocks that the curve is from
    """

    curve: _native.HitCurve
    sampled: float


def read(trace: str | os.PathLike[str], analysis: Analysis,
         progress: _Progress | None = None) -> dict[str, Volume]:
    """Return the volumes of a trace by name, in the order of their requests.

    :param progress: called with bytes read, and all bytes
    :raises TraceError: the trace cannot be read
    """
    try:
        found = _native.trace_curves(trace, analysis, progress)
    except _native.FormatError as error:
        raise TraceError(str(error)) from error
    except OSError as error:
        raise TraceError(f'{os.fspath(trace)}: {error.strerror}; name a file'
                         f' with a trace') from error
    return {name: Volume(curve, rate) for name, rate, curve in found}


def analyse(trace: str | os.PathLike[str], analysis: Analysis,
            sizes: list[int] | None = None,
            progress: _Progress | None = None) -> dict[str, typing.Any]:
    """Return the hits of LRU caches of many sizes, for each volume alone.

    :param sizes: sizes in blocks; none for those where the hits change
    :param progress: called with bytes read, and all bytes
    :returns: a JSON document, see ``doc/source/user/ssd-cache-traces.rst``
    :raises TraceError: the trace cannot be read
    """
    started = time.monotonic()
    volumes = read(trace, analysis, progress)
    seconds = time.monotonic() - started
    references = sum(each.curve.references for each in volumes.values())
    return {
        'block': analysis.block, 'method': analysis.method,
        'references': references, 'seconds': seconds,
        'references_per_second': references / seconds if seconds else 0.0,
        'peak_rss_bytes': _peak_bytes(),
        'volumes': {name: _document(each, sizes)
                    for name, each in volumes.items()},
    }


def _peak_bytes() -> int:
    """Return the most memory that this process ever had.

    What getrusage(2) returns includes that of the process which started it.
    """
    status = pathlib.Path('/proc/self/status').read_text()
    found = re.search(r'^VmHWM:\s+(\d+) kB$', status, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _document(volume: Volume, sizes: list[int] | None
              ) -> dict[str, typing.Any]:
    curve = volume.curve
    hits = [(size, curve.hits(size)) for size in sizes] \
        if sizes is not None else curve.thinned(SHOWN)
    return {'references': curve.references, 'distinct': curve.distinct,
            'cold': curve.distinct, 'sampled': volume.sampled,
            'hits': [list(step) for step in hits]}


def pack(trace: str | os.PathLike[str], packed: str | os.PathLike[str],
         progress: _Progress | None = None) -> int:
    """Write a trace in its binary form, which is read several times faster.

    :param packed: the file to write; one of this name is replaced
    :returns: the number of requests
    :raises TraceError: the trace cannot be read, or the file not be written
    """
    try:
        with files.replacing(packed, durable=False) as part:
            return _native.trace_pack(trace, part, progress)
    except _native.FormatError as error:
        raise TraceError(str(error)) from error
    except OSError as error:
        raise TraceError(
            f'{error.filename}: {error.strerror}; name a file with a trace'
        ) from error
