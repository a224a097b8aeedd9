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


from diffcache_openstack.cmd.toolbox import progress
from diffcache_openstack.cmd.toolbox import quick
from diffcache_openstack.cmd.toolbox import version
from diffcache_openstack.common.commands import cli
from diffcache_openstack.versions.store.keys import key_files
from diffcache_openstack.versions import version_store


class _Key(quick.ShowOne):
    """Options of the commands about keys."""

    arguments: cli.Arguments = version.STORE


class Show(_Key):
    """Show the keys of a store, and how much former keys still encrypt."""

    examples = ('--store file:///srv/versions --key-file key',)

    def fields(self, args: argparse.Namespace) -> dict[str, Any]:
        return version.open_to_read(args).keys().to_dict()


class Rotate(_Key):
    """Replace the key: what is saved from now on is encrypted with a new one.

    The store contains the former key, encrypted with the new one, until packs
    are rewritten. Keep the file with the former key until then.
    """

    examples = (
        '--store file:///srv/versions --key-file key --new-key-file '
        'next-key',)
    arguments = (
        cli.Argument('--new-key-file', metavar='FILE', type=pathlib.Path,
                     required=True,
                     help='File with the new key: 32 bytes or 64 hexadecimal'
                          ' digits.'),)

    def fields(self, args: argparse.Namespace) -> dict[str, Any]:
        new = key_files.read_key(args.new_key_file)
        store = version.open_store(args).rotate_key(new)
        return store.keys().to_dict()


class Rewrite(_Key):
    """Re-encrypt packs that have a former key with the present one.

    It can be interrupted at any time; the next run does the rest.
    """

    examples = ('--store file:///srv/versions --key-file key --rate 20MBps',)
    arguments = (
        cli.Argument('--rate', type=version.RATE, metavar='RATE',
                     help='Limit how fast packs are rewritten, such as 20MBps'
                          ' (a bare number: MB per second); saves are'
                          ' possible in the pauses.'),)

    def fields(self, args: argparse.Namespace) -> dict[str, Any]:
        with progress.of(self, 'rewrite') as bar:
            now = version.open_store(args).rewrite_all_keys(
                version_store.Job(bar, args.rate))
        return now.to_dict()


class Retire(_Key):
    """Drop former keys from a store of which all packs are rewritten."""

    examples = ('--store file:///srv/versions --key-file key',)

    def fields(self, args: argparse.Namespace) -> dict[str, Any]:
        return version.open_store(args).retire_keys().to_dict()
