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
"""Requests to volumes, as traces that DiffCache reads and as logs of fio."""

import dataclasses
import struct

import numpy

BLOCK = 4096
RECORD = numpy.dtype([('time', '<u8'), ('offset', '<u8'), ('length', '<u4'),
                      ('volume', '<u4')])
WRITE = 1 << 31
_US = 1e6


@dataclasses.dataclass(frozen=True)
class Stream:
    """Requests of one volume for a block each, at a constant rate.

    :ivar blocks: numbers of blocks, in the order of the requests
    :ivar per_second: requests
    :ivar begin_s: time of the first
    :ivar writes: whether they write
    """

    blocks: numpy.ndarray
    per_second: float
    begin_s: float = 0.0
    writes: bool = False


def normal(generator, count, deviation, blocks):
    """Return blocks around the middle of a volume, normally distributed."""
    found = numpy.empty(0, dtype=numpy.int64)
    while len(found) < count:
        more = numpy.rint(generator.normal(
            (blocks - 1) / 2, deviation, count)).astype(numpy.int64)
        found = numpy.append(found, more[(more >= 0) & (more < blocks)])
    return found[:count]


def uniform(generator, count, blocks):
    """Return blocks, each as likely as any other."""
    return generator.integers(0, blocks, count)


def zipf(generator, count, blocks, first=0):
    """Return blocks, the n-th as likely as 1 / n, in an order by chance."""
    sums = numpy.cumsum(1 / numpy.arange(1, blocks + 1))
    ranks = numpy.searchsorted(sums, generator.random(count) * sums[-1])
    return first + generator.permutation(blocks)[ranks]


def sequence(count, blocks, first=0):
    """Return blocks in their order, again and again."""
    return (first + numpy.arange(count, dtype=numpy.int64)) % blocks


def merge(volumes):
    """Return the requests of volumes in the order of their times.

    :param volumes: streams by the names of the volumes
    :returns: names, and an array of :data:`RECORD`
    """
    parts = []
    for number, streams in enumerate(volumes.values()):
        for stream in streams:
            part = numpy.empty(len(stream.blocks), RECORD)
            # Shifted by volume, so that none is always the first of all.
            at = (numpy.arange(len(part)) + (number + 1) / (len(volumes) + 1)
                  ) / stream.per_second + stream.begin_s
            part['time'] = (at * _US).astype(numpy.uint64)
            part['offset'] = stream.blocks.astype(numpy.uint64) * BLOCK
            part['length'] = BLOCK
            part['volume'] = number | (WRITE if stream.writes else 0)
            parts.append(part)
    requests = numpy.concatenate(parts)
    return list(volumes), requests[numpy.argsort(requests['time'],
                                                 kind='stable')]


def write(path, names, requests):
    """Write a trace in the binary form."""
    text = ''.join(f'{name}\n' for name in names).encode()
    with open(path, 'wb') as output:
        output.write(b'DCTRACE1')
        output.write(struct.pack('<II', len(names), len(text)) + text)
        requests.tofile(output)


def write_log(path, requests):
    """Write requests, all to one volume, as a log that fio replays."""
    kinds = numpy.where(requests['volume'] & WRITE, 'write', 'read')
    with open(path, 'w') as output:
        output.write('fio version 2 iolog\nnbd add\nnbd open\n')
        output.writelines(
            f'nbd {kind} {offset} {length}\n' for kind, offset, length in zip(
                kinds, requests['offset'], requests['length']))
        output.write('nbd close\n')
