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
"""``diffcache lazy files`` and ``carry``: profiles and files of images."""

import argparse
import json
import pathlib
import typing


from diffcache_openstack.blocks import file_map
from diffcache_openstack.blocks import image_tools
from diffcache_openstack.blocks import operands
from diffcache_openstack.cmd.toolbox import quick
from diffcache_openstack.common.commands import cli
from diffcache_openstack.common import files
from diffcache_openstack.common import profile_files
from diffcache_openstack.prefetch import by_file
from diffcache_openstack.prefetch import carry
from diffcache_openstack.prefetch import profiles
from diffcache_openstack.prefetch import scenarios


def _files_of(found: file_map.FileMap) -> by_file.Files:
    return by_file.Files(found.known_names(), found.extents)


class Files(quick.Lister):
    """Show which files of an image boots read, by first read."""

    examples = ('boots.json debian-12.raw',)
    arguments = (
        cli.Argument('boots', metavar='BOOTS.json',
                     help='What boots read: a scenario, as "diffcache lazy'
                          ' serve --record" writes it, or a profile.'),
        cli.Argument('image', metavar='IMAGE',
                     help='Raw or qcow2 image that was booted.'))

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        document = scenarios.read_json(parsed_args.boots)
        found = file_map.read(parsed_args.image)
        known = _files_of(found)
        if isinstance(document, dict) and 'image_bytes' in document:
            shares = by_file.of_scenario(
                scenarios.from_dict(document), known)
        else:
            rows, chunk = scenarios.profile_of(parsed_args.boots, document)
            shares = by_file.of_profile(profiles.of_means(rows), chunk, known)
        shares.sort(key=lambda share: share.first_us)
        return ('File', 'Partition', 'Size', 'Read', 'In Chunks',
                'Instances', 'First (s)'), [
            (found.entries[share.file].name,
             found.entries[share.file].partition,
             found.entries[share.file].size, share.read, share.chunks,
             share.instances, round(share.first_us / 1e6, 3))
            for share in shares]


class Carry(quick.ShowOne):
    """Carry a profile to another image: its next build, or one like it.

    A chunk's row goes to where its content is: first by blocks of 4 KiB that
    are equal, then to the files of the same paths.
    """

    examples = (
        'boots.json debian-12.raw debian-12.1.raw --output carried.json',)
    arguments = (
        cli.Argument('profile', metavar='PROFILE.json',
                     help='Profile of SOURCE: a JSON object with "format" 1,'
                          ' the bytes of a chunk as "chunk" and a list of'
                          ' [chunk, count, mean_us] as "profile", such as the'
                          ' output of diffcache lazy replay.'),
        cli.Argument('source', metavar='SOURCE',
                     help='Image that the profile is of; raw unless --by is'
                          ' files.'),
        cli.Argument('target', metavar='TARGET', help='Image to carry it to.'),
        cli.Argument('-o', '--output', required=True, metavar='FILE',
                     help='Profile to write; it appears when it is complete.'),
        cli.Argument('--by', choices=('blocks', 'paths', 'both'),
                     default='both',
                     help='How to find the same content: by equal blocks, by'
                          ' the same position in files of the same path, or by'
                          ' files where blocks find less than half of a chunk'
                          ' (default: both).'))

    def fields(self, args: argparse.Namespace) -> dict[str, typing.Any]:
        operands.check_output(args.output, profile=args.profile,
                              source=args.source, target=args.target)
        given, chunk = scenarios.profile_of(
            args.profile, scenarios.read_json(args.profile))
        rows = profiles.of_means(given)
        ways = [find_common(name, args.source, args.target, rows, chunk)
                for name in WAYS if args.by in (name, 'both')]
        carried = carry.carry_in_turn(rows, ways)
        with operands.translate_os_errors(args.output), files.replacing(
                args.output, durable=False) as part:
            part.write_text(json.dumps(profile_files.document(
                chunk, profiles.with_means(carried))))
        found = {'output': args.output, 'chunk': chunk,
                 'chunks': len(rows), 'carried_chunks': len(carried)}
        return found


def _by_blocks(source: str, target: str, rows: profiles.Rows, chunk: int
               ) -> carry.Way:
    sizes, found = image_tools.ImageTools().common_blocks(
        pathlib.Path(source), pathlib.Path(target), sorted(rows), chunk)
    return dict(sizes), [carry.Common(*each) for each in found]


def _by_paths(source: str, target: str, rows: profiles.Rows, chunk: int
              ) -> carry.Way:
    return carry.common_files(_files_of(file_map.read(source)),
                              _files_of(file_map.read(target)), rows, chunk)


WAYS = {'blocks': _by_blocks, 'paths': _by_paths}


def find_common(way: str, source: str, target: str, rows: profiles.Rows,
                chunk: int) -> carry.Way:
    """Find the content of a profile's chunks in another image.

    :param way: one of :data:`WAYS`
    :param chunk: bytes of a chunk
    :raises NotFound: an image does not exist or cannot be read
    :raises InvalidInput: an image is refused
    """
    operands.check_readable(source, 'source')
    operands.check_readable(target, 'target')
    return WAYS[way](source, target, rows, chunk)
