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
"""``diffcache version key``: replacing the key of a store of versions."""

import argparse
import pathlib
from typing import Any

from cliff import show

from diffcache_openstack.cmd.toolbox import progress
from diffcache_openstack.cmd.toolbox import quick
from diffcache_openstack.cmd.toolbox import version
from diffcache_openstack.versions import version_store


class _Key(quick.Quick, show.ShowOne):
    """Options of the commands about keys."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        version.add_store_options(parser)
        return parser


class Show(_Key):
    """Show which keys a store has, and what former keys still seal."""

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[list[str], list[Any]]:
        return version.columns(
            version.open_to_read(parsed_args).keys().to_dict())


class Rotate(_Key):
    """Replace the key: what is saved from now on is encrypted with a new one.

    The store contains the former key, encrypted with the new one, until packs
    are rewritten. Keep the file with the former key until then.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--new-key-file', metavar='FILE', type=pathlib.Path,
            required=True, help='File with the new key: 32 bytes or 64 '
            'hexadecimal digits.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[list[str], list[Any]]:
        new = version_store.read_key(parsed_args.new_key_file)
        store = version.open_store(parsed_args).rotate_key(new)
        return version.columns(store.keys().to_dict())


class Rewrite(_Key):
    """Encrypt packs that have a former key with the present one.

    It can be interrupted at any time; the next run does the rest.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--rate', type=version.parse_rate, metavar='MB/s',
            help='Rewrite at most so many megabytes per second; saves are '
                 'possible in the pauses.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[list[str], list[Any]]:
        with progress.of(self, 'rewrite') as bar:
            now = version.open_store(parsed_args).rewrite_all_keys(
                version_store.Job(bar, parsed_args.rate))
        return version.columns(now.to_dict())


class Retire(_Key):
    """Drop former keys from a store of which all packs are rewritten."""

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[list[str], list[Any]]:
        return version.columns(
            version.open_store(parsed_args).retire_keys().to_dict())
