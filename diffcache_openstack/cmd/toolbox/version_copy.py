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
"""``diffcache version``: copies of stores."""

import argparse
from typing import Any

from diffcache_openstack.cmd.toolbox import progress
from diffcache_openstack.cmd.toolbox import quick
from diffcache_openstack.cmd.toolbox import version
from diffcache_openstack.common.commands import cli
from diffcache_openstack.versions.blobs import base
from diffcache_openstack.versions.blobs import registry
from diffcache_openstack.versions import version_store

_RATE = cli.Argument(
    '--rate', type=version.RATE, metavar='RATE',
    help='Limit how fast blobs are copied, on average, such as 20MBps (a bare'
         ' number: MB per second).')


class _Copy(quick.ShowOne):
    """Options of the commands about a store and its copy."""

    arguments: cli.Arguments = (
        *version.STORE,
        cli.Argument('--copy', metavar='URI', required=True,
                     help='Copy of the store: file:///directory, or'
                          ' glance:DRIVER.'),
        cli.Argument('--copy-config', metavar='FILE', action='append',
                     help='Configuration file with the group [glance_store],'
                          ' for the copy.'))

    @staticmethod
    def copy_of(args: argparse.Namespace) -> base.BlobStore:
        """Open the copy that the options name."""
        return registry.open_store(args.copy, args.copy_config)


class Replicate(_Copy):
    """Have a copy follow a store, by what it lacks.

    Blobs are verified before they count. When the command is interrupted, the
    copy has its former versions, and the next run resumes.
    """

    examples = ('--store file:///srv/versions --copy file:///mnt/far/versions'
                ' --rate 20MBps',)
    arguments = (
        _RATE,
        cli.Argument('--dry-run', action='store_true',
                     help='Only report what the copy lacks.'))

    def fields(self, args: argparse.Namespace) -> dict[str, Any]:
        store = version.open_to_read(args)
        if args.dry_run:
            return store.lag(self.copy_of(args)).to_dict()
        with progress.of(self, 'replicate') as bar:
            return store.replicate(
                self.copy_of(args),
                version_store.Job(bar, args.rate)).to_dict()


class Repair(_Copy):
    """Read a whole store, and replace what is damaged by what a copy has."""

    examples = ('--store file:///srv/versions --copy file:///mnt/far/'
                'versions',)

    def fields(self, args: argparse.Namespace) -> dict[str, Any]:
        store = version.open_store(args)
        with progress.of(self, 'verify') as bar:
            damage = store.verify(version_store.Job(bar)).damage
        names = sorted({each.object for each in damage})
        repaired = store.repair(self.copy_of(args), names)
        return {'repaired': repaired,
                'damaged': sorted(set(names) - set(repaired))}


class Rebuild(_Copy):
    """Create a store that was lost of its copy.

    The store must be empty. It is then the first one again: saves continue in
    it, and the copy follows it.
    """

    examples = ('--store file:///srv/versions --copy file:///mnt/far/'
                'versions',)
    arguments = (_RATE,)

    def fields(self, args: argparse.Namespace) -> dict[str, Any]:
        copy = version.open_to_read(argparse.Namespace(
            store=args.copy, store_config=args.copy_config,
            key_file=args.key_file))
        with progress.of(self, 'rebuild') as bar:
            return copy.rebuild(
                registry.open_store(args.store, args.store_config),
                version_store.Job(bar, args.rate)).to_dict()
