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

from cliff import show

from diffcache_openstack.blocks import manifest
from diffcache_openstack.blocks import trim
from diffcache_openstack.cmd import progress


class Manifest(show.ShowOne):
    """Create the manifest of an image: the hashes of all its leaves."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('image', metavar='IMAGE',
                            help='Raw or qcow2 image; its content as a guest '
                                 'reads it is hashed.')
        parser.add_argument('output', metavar='OUTPUT',
                            help='Manifest to write; the file appears when '
                                 'it is complete.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[list[str], list[Any]]:
        with progress.of(self, 'manifest') as bar:
            made = manifest.create(parsed_args.image, parsed_args.output, bar)
        fields = dataclasses.asdict(made)
        return list(fields), list(fields.values())


class Trim(show.ShowOne):
    """Copy an image with the free blocks of its filesystems zeroed."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('image', metavar='IMAGE',
                            help='Raw or qcow2 image to read.')
        parser.add_argument('output', metavar='OUTPUT',
                            help='Image to write; the file appears when it '
                                 'is complete.')
        parser.add_argument('--output-format', choices=trim.FORMATS,
                            help='Format of the output; qcow2 is '
                                 'compressed (default: that of IMAGE).')
        return parser

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[list[str], list[Any]]:
        args = parsed_args
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
        return list(fields), list(fields.values())
