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
"""``diffcache patch``: patches between two disk images, on files."""

import argparse
import dataclasses
import time
from typing import Any

from cliff import columns

from diffcache_openstack.blocks.codecs import auto
from diffcache_openstack.blocks.codecs import codec_base
from diffcache_openstack.blocks.codecs import registry
from diffcache_openstack.blocks import matrix
from diffcache_openstack.blocks import operands
from diffcache_openstack.cmd.toolbox import progress
from diffcache_openstack.cmd.toolbox import quick
from diffcache_openstack.common.commands import cli
from diffcache_openstack.common import exceptions

_AUTO = 'auto'


class _Attempts(columns.FormattableColumn):
    """What became of each codec, a line each."""

    def human_readable(self) -> str:
        return '\n'.join(
            f'{attempt.codec}: '
            + (attempt.reason if attempt.size is None
               else f'{attempt.size} bytes')
            for attempt in self._value)

    def machine_readable(self) -> list[dict[str, Any]]:
        return [dataclasses.asdict(attempt) for attempt in self._value]


class Create(quick.ShowOne):
    """Create a patch that turns one image into another."""

    examples = ('debian-12.raw debian-12.1.raw to-12.1.patch',)
    arguments = (
        cli.Argument('base', metavar='BASE',
                     help='Image the patch starts from.'),
        cli.Argument('target', metavar='TARGET',
                     help='Image the patch builds.'),
        cli.Argument('patch', metavar='PATCH', help='Patch file to write.'),
        cli.Argument('--codec', choices=[_AUTO] + registry.names(),
                     default=_AUTO,
                     help='Format of the patch; auto tries those that may be'
                          ' the smallest and keeps the smallest (default:'
                          ' auto).'),
        cli.Argument('--level', type=cli.whole(1, 19), metavar='N',
                     help='Compression level of the patch, 1 to 19: higher is'
                          ' smaller and slower.'))

    def fields(self, args: argparse.Namespace) -> dict[str, Any]:
        started = time.monotonic()
        operands.check_disk(args.base, 'base')
        operands.check_disk(args.target, 'target')
        with progress.of(self, 'create') as bar:
            if args.codec == _AUTO:
                choice = auto.create(args.base, args.target, args.patch,
                                     args.level, bar)
            else:
                info = registry.get(args.codec).create(
                    args.base, args.target, args.patch, args.level, bar)
                choice = auto.Choice(info, [auto.Attempt(
                    args.codec, info.patch_size, 'requested')])
        return choice.info.to_dict() | {
            'tried': _Attempts(choice.attempts),
            'seconds': round(time.monotonic() - started, 3)}


class Apply(quick.ShowOne):
    """Build the target of a patch from its base and verify it."""

    examples = ('debian-12.raw to-12.1.patch debian-12.1.raw',)
    arguments = (
        cli.Argument('base', metavar='BASE',
                     help='Image the patch starts from.'),
        cli.Argument('patch', metavar='PATCH', help='Patch file.'),
        cli.OneOf(cli.Argument('output', metavar='OUTPUT', nargs='?',
                               help='Image to write; it appears once it is'
                                    ' complete and verified.'),
                  cli.Argument('--in-place', action='store_true',
                               help='Turn BASE itself into the target. A'
                                    ' journal next to it records the changes;'
                                    ' after a crash, run the same command'
                                    ' again.'),
                  required=True),
        cli.Argument('--base-manifest', metavar='FILE',
                     help='Manifest of BASE, written by "diffcache image'
                          ' manifest": BASE is not verified again, and where'
                          ' OUTPUT can share blocks with it, only the'
                          ' differing blocks are read. A BASE that was changed'
                          ' since is refused.'))

    def fields(self, args: argparse.Namespace) -> dict[str, Any]:
        started = time.monotonic()
        output = args.base if args.in_place else args.output
        with progress.of(self, 'apply') as bar:
            info = self._apply(args, bar)
        if info.target_hash is None:
            self.app.LOG.warning(
                '%s is not verified: patch %s has no hash of its target',
                output, args.patch)
        return {
            'output': output,
            'codec': info.codec,
            'target_hash': info.target_hash,
            'target_size': info.target_size,
            'seconds': round(time.monotonic() - started, 3)}

    def _apply(self, args: argparse.Namespace, bar: progress.Bar
               ) -> codec_base.PatchInfo:
        if args.in_place and args.base_manifest:
            raise exceptions.InvalidInput(
                '--in-place reads all of the base; omit --base-manifest.')
        codec = registry.detect(args.patch)
        if args.in_place:
            return codec.apply_in_place(args.base, args.patch, bar)
        if args.base_manifest:
            base = codec_base.VerifiedBase(args.base, args.base_manifest)
            return codec.apply_verified(base, args.patch, args.output, bar)
        return codec.apply(args.base, args.patch, args.output, bar)


class Show(quick.ShowOne):
    """Describe a patch."""

    examples = ('to-12.1.patch',)
    arguments = (cli.Argument('patch', metavar='PATCH', help='Patch file.'),)

    def fields(self, args: argparse.Namespace) -> dict[str, Any]:
        patch = args.patch
        return registry.detect(patch).info(patch).to_dict()


class Verify(quick.ShowOne):
    """Check that a patch applies to a base, without writing anything."""

    examples = ('debian-12.raw to-12.1.patch',)
    arguments = (
        cli.Argument('base', metavar='BASE',
                     help='Image the patch starts from.'),
        cli.Argument('patch', metavar='PATCH', help='Patch file.'))

    def fields(self, args: argparse.Namespace) -> dict[str, Any]:
        codec = registry.detect(args.patch)
        with progress.of(self, 'verify') as bar:
            info = codec.verify(args.base, args.patch, bar)
        return {
            'patch': args.patch,
            'base': args.base,
            'codec': info.codec,
            'target_hash': info.target_hash,
            'verified': True}


class Matrix(quick.Lister):
    """Estimate the patch size of each ordered pair of images."""

    examples = ('debian-12.raw debian-12.1.raw debian-13.raw',)
    arguments = (
        cli.Argument('images', metavar='IMAGE', nargs='+',
                     help='Images to compare, at least two.'),)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        if len(parsed_args.images) < 2:
            raise exceptions.InvalidInput(
                'A matrix needs at least two images; name more.')
        for image in parsed_args.images:
            operands.check_disk(image, 'image')
        with progress.of(self, 'sketch') as bar:
            estimates = matrix.estimate(parsed_args.images, bar)
        self.app.LOG.info(estimates.cost_line())
        columns = ['base', 'target', 'estimated_size', 'target_data_size']
        return columns, [
            [pair.base, pair.target, pair.estimated_size,
             pair.target_data_size] for pair in estimates.pairs]
