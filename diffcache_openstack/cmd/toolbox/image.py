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
"""``diffcache image``: work on single images."""

import argparse
import dataclasses
from typing import Any

from cliff import columns

from diffcache_openstack.blocks import file_map
from diffcache_openstack.blocks import manifest
from diffcache_openstack.blocks import operands
from diffcache_openstack.blocks import trim
from diffcache_openstack.cmd.toolbox import progress
from diffcache_openstack.cmd.toolbox import quick
from diffcache_openstack.common.commands import cli


class Manifest(quick.ShowOne):
    """Create the manifest of an image: the hashes of all its leaves."""

    examples = ('debian-12.raw debian-12.manifest',)
    arguments = (
        cli.Argument('image', metavar='IMAGE',
                     help='Raw or qcow2 image to hash, by its content as a'
                          ' guest reads it.'),
        cli.Argument('output', metavar='OUTPUT',
                     help='Manifest to write; the file appears when it is'
                          ' complete.'))

    def fields(self, args: argparse.Namespace) -> dict[str, Any]:
        operands.check_disk(args.image, 'image')
        with progress.of(self, 'manifest') as bar:
            made = manifest.create(args.image, args.output, bar)
        fields = dataclasses.asdict(made)
        return fields


class Trim(quick.ShowOne):
    """Copy an image with the free blocks of its filesystems zeroed."""

    examples = ('debian-12.raw debian-12-trimmed.qcow2 --output-format qcow2',)
    arguments = (
        cli.Argument('image', metavar='IMAGE',
                     help='Raw or qcow2 image to read.'),
        cli.Argument('output', metavar='OUTPUT',
                     help='Image to write; the file appears when it is'
                          ' complete.'),
        cli.Argument('--output-format', choices=trim.FORMATS,
                     help='Format of the output; qcow2 is compressed (default:'
                          ' that of IMAGE).'))

    def fields(self, args: argparse.Namespace) -> dict[str, Any]:
        operands.check_disk(args.image, 'image')
        with progress.of(self, 'trim') as bar:
            done = trim.trim(args.image, args.output, args.output_format,
                             bar)
        for found in done.filesystems:
            if found['free'] is None:
                self.app.LOG.warning(
                    'Could not trim the %s at byte %d of %s: %s',
                    found['kind'], found['offset'], args.image,
                    found['reason'])
        fields = dataclasses.asdict(done)
        fields['stale'] = done.data_before - done.data_after
        return fields


class _Spans(columns.FormattableColumn):
    """Numbers from the first to the last one, several times."""

    def human_readable(self) -> str:
        spans = [str(first) if first == last else f'{first}-{last}'
                 for first, last in self._value]
        more = len(spans) - _SHOWN_SPANS
        return ','.join(spans[:_SHOWN_SPANS]) + (
            f' and {more} more' if more > 0 else '')


_SHOWN_SPANS = 4


class Files(quick.Lister):
    """List the files of an image, and where it stores them.

    Reads partition tables and the filesystems ext2, ext3 and ext4. Space
    outside of files is listed by its use, in brackets. Every byte counts once.
    """

    examples = ('debian-12.raw',)
    arguments = (
        cli.Argument('image', metavar='IMAGE',
                     help='Raw or qcow2 image to read.'),
        cli.Argument('--chunk', type=cli.size(1), metavar='SIZE',
                     help='List numbers of chunks of this size instead of'
                          ' ranges of bytes; lazy boots fetch 256KiB.'))

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        args = parsed_args
        found = file_map.read(args.image)
        stored: list[list[file_map.Extent]] = [[] for _ in found.entries]
        for extent in found.extents:
            stored[extent.entry].append(extent)
        for entry, extents in zip(found.entries, stored):
            if entry.reason and extents:
                self.app.LOG.warning(
                    'Unknown content in the partition at byte %d of %s: %s',
                    entry.partition, args.image, entry.reason)
        rows = [(entry.name, entry.partition, entry.size,
                 sum(extent.end - extent.start for extent in extents),
                 _Spans(_spans(extents, args.chunk)))
                for entry, extents in zip(found.entries, stored)
                if extents or entry.kind in (file_map.FILE,
                                             file_map.DIRECTORY)]
        where = 'Chunks' if args.chunk else 'Ranges'
        return (('File', 'Partition', 'Size', 'Stored', where),
                sorted(rows, key=lambda row: row[:2]))


def _spans(extents: list[file_map.Extent], chunk: int | None
           ) -> list[list[int]]:
    """Return first and last byte of each extent, or first and last chunk."""
    size = chunk or 1
    spans: list[list[int]] = []
    for extent in extents:
        first, last = extent.start // size, (extent.end - 1) // size
        if chunk and spans and first <= spans[-1][1] + 1:
            spans[-1][1] = max(last, spans[-1][1])
        else:
            spans.append([first, last])
    return spans
