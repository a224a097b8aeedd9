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
"""``diffcache version``: versions of disks in a store."""

import argparse
import pathlib
from typing import Any


from diffcache_openstack.blocks import operands
from diffcache_openstack.cmd.toolbox import progress
from diffcache_openstack.cmd.toolbox import quick
from diffcache_openstack.common.commands import cells
from diffcache_openstack.common.commands import cli
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import units
from diffcache_openstack.versions.blobs import registry
from diffcache_openstack.versions.guests import snapshots
from diffcache_openstack.versions.restore import restoring
from diffcache_openstack.versions.store.access import store_access
from diffcache_openstack.versions.store.keys import key_files
from diffcache_openstack.versions.store.upkeep import pruning
from diffcache_openstack.versions.store.upkeep import retention
from diffcache_openstack.versions import version_store

_AUTO = 'auto'
RATE = cli.rate(bare=units.MB)


STORE = (
    cli.Argument('--store', metavar='URI', required=True,
                 help='Version store: file:///directory, or glance:DRIVER for'
                      ' a store of glance_store.'),
    cli.Argument('--store-config', metavar='FILE', action='append',
                 help='Configuration file with the group [glance_store].'),
    cli.Argument('--key-file', metavar='FILE', type=pathlib.Path,
                 help='File with the key that blocks are encrypted with: 32'
                      ' bytes or 64 hexadecimal digits.'))


def open_store(args: argparse.Namespace, **options: Any
               ) -> version_store.VersionStore:
    """Open the store that the options name."""
    store = registry.open_store(args.store, args.store_config)
    return version_store.VersionStore.open(store, _key(args), **options)


def open_to_read(args: argparse.Namespace) -> version_store.VersionStore:
    """Open the store that the options name; create and change nothing.

    :raises NotFound: its directory does not exist
    """
    directory = registry.directory_of(args.store)
    if directory is not None and not directory.is_dir():
        raise exceptions.NotFound(
            f'There is no directory {directory}: check --store, or save a'
            f' version to create it.')
    store = registry.open_to_read(args.store, args.store_config)
    return version_store.VersionStore.open(store, _key(args))


def _key(args: argparse.Namespace) -> bytes | None:
    return key_files.read_key(args.key_file) if args.key_file else None


_SHARE = cli.real(0, 1)


def _alpha(text: str) -> float | str:
    try:
        return text if text == _AUTO else _SHARE(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f'{error}, nor {_AUTO}') from error


def _block_size(text: str) -> int:
    size = cli.size()(text)
    if size not in store_access.BLOCK_SIZES:
        raise argparse.ArgumentTypeError(
            f'{text!r} is not a power of two from 512 to 65536')
    return size


cli.measured('size', _block_size)


def _series(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError('the name of a series is not empty')
    return text


class _Disk(quick.ShowOne):
    """Options of the commands that read a disk."""

    arguments: cli.Arguments = (
        *STORE,
        cli.Argument('--base', metavar='IMAGE', type=pathlib.Path,
                     help='Base image of the disk. Blocks that equal it are'
                          ' not stored.'),
        cli.Argument('--disk-format', choices=restoring.FORMATS,
                     help='Format of the disk. Default: the format that its'
                          ' series records. A new series detects it by the'
                          ' first bytes; since the guest of a raw disk can'
                          ' write these, a qcow2 header that names a backing'
                          ' file is refused.'),
        cli.Argument('--rate', type=RATE, metavar='RATE',
                     help='Limit how fast the disk is read, such as 20MBps (a'
                          ' bare number: MB per second).'),
        cli.Argument('--scan', action='store_true',
                     help='Compare the whole disk instead of taking an'
                          ' internal snapshot. Nothing may write to the disk'
                          ' meanwhile.'))

    @staticmethod
    def disk_of(args: argparse.Namespace, series: str, **options: Any
                ) -> version_store.Disk:
        """Return the disk that the command reads.

        :raises NotFound: it, or its base, does not exist
        :raises InvalidInput: it is neither a file nor a device
        """
        operands.check_disk(str(args.disk), 'disk')
        if args.base is not None:
            operands.check_readable(str(args.base), 'base')
        return version_store.Disk(
            args.disk, series, args.base, without_snapshot=args.scan,
            format=args.disk_format, **options)


class Save(_Disk):
    """Save a disk as a new version."""

    examples = (
        '--store file:///srv/versions web-1.qcow2 --series web-1',
        '--store file:///srv/versions web-1.qcow2 --series web-1 --base '
        'debian-12.raw --qmp /run/web-1.qmp')
    arguments = (
        cli.Argument('disk', metavar='DISK', type=pathlib.Path,
                     help='Disk to save: raw or qcow2.'),
        cli.Argument('--series', metavar='NAME', required=True, type=_series,
                     help='Series of the disk: the name that all its versions'
                          ' share.'),
        cli.Argument('--parent', metavar='VERSION',
                     help='Version to store the difference to (default: the'
                          ' newest of the series).'),
        cli.Argument('--alpha', type=_alpha, default=0.0, metavar='A',
                     help='Share of the data to store as difference to the'
                          ' first version: 0 (default) takes the least space,'
                          ' 1 restores fastest, auto keeps restores fast'
                          ' enough.'),
        cli.Argument('--snapshot', metavar='NAME',
                     help='Internal snapshot to save; created if it does not'
                          ' exist.'),
        cli.Argument('--qmp', metavar='SOCKET', type=pathlib.Path,
                     help='QMP monitor of the running guest that uses the'
                          ' disk; takes the snapshot.'),
        cli.Argument('--guest-agent', metavar='SOCKET', type=pathlib.Path,
                     help='Socket of the guest agent of that guest, to freeze'
                          ' its filesystems meanwhile.'),
        cli.Argument('--block-size', type=_block_size, metavar='SIZE',
                     default=store_access.BLOCK_SIZE,
                     help='Size of a block if the store is created: a power of'
                          ' two from 512 to 65536 (default: 4096).'),
        cli.Argument('--level', type=cli.whole(1, 19), metavar='N',
                     default=store_access.LEVEL,
                     help='Compression level, 1 to 19: higher is smaller and'
                          ' slower (default: 3).'))

    def fields(self, args: argparse.Namespace) -> dict[str, Any]:
        guest = (snapshots.Guest(args.qmp, args.guest_agent) if args.qmp
                 else None)
        disk = self.disk_of(args, args.series, parent=args.parent,
                            snapshot=args.snapshot)
        store = open_store(args, block_size=args.block_size, level=args.level)
        with progress.of(self, 'save') as bar:
            [version] = store.save([disk], guest, args.alpha,
                                   version_store.Job(bar, args.rate))
        return version.summary()


_ALL_COLUMNS = ['version', 'series', 'parent', 'created_at', 'size',
                'blocks_changed', 'bytes_stored']
# What fits into 100 columns.
_NARROW = ['version', 'series', 'created_at', 'size', 'bytes_stored']
_SIZES = ('size', 'bytes_stored')


class List(quick.Lister):
    """List versions, oldest first."""

    examples = ('--store file:///srv/versions --series web-1',)
    arguments = (
        *STORE,
        cli.Argument('--series', metavar='NAME',
                     help='List only versions of this series.'),
        cli.Argument('--long', action='store_true',
                     help='Show parents and changed blocks in the table, too;'
                          ' other formats always have them.'))

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        is_narrow = parsed_args.formatter == 'table' and not parsed_args.long
        names = _NARROW if is_narrow else _ALL_COLUMNS
        rows = [version.summary() for version
                in open_to_read(parsed_args).versions(parsed_args.series)]
        return names, [[cells.Size(row[name]) if name in _SIZES else row[name]
                        for name in names] for row in rows]


class _OfVersion(quick.ShowOne):
    """Arguments of the commands about one version of a store."""

    arguments: cli.Arguments = (
        *STORE,
        cli.Argument('version', metavar='VERSION',
                     help='ID of a version, or its first digits.'))


class Show(_OfVersion):
    """Show a version."""

    examples = ('--store file:///srv/versions 114926f1',)

    def fields(self, args: argparse.Namespace) -> dict[str, Any]:
        version = open_to_read(args).version(args.version)
        return version.summary() | {
            'number': version.number, 'disk_format': version.disk_format,
            'base_id': version.base.id if version.base else None,
            'snapshots': [each.name for each in version.snapshots]}


class Verify(quick.ShowOne):
    """Read a whole store and list damaged objects and versions."""

    examples = ('--store file:///srv/versions',)
    arguments = STORE

    def run(self, parsed_args: argparse.Namespace) -> int:
        self._intact = True
        return super().run(parsed_args) or (0 if self._intact else 1)

    def fields(self, args: argparse.Namespace) -> dict[str, Any]:
        with progress.of(self, 'verify') as bar:
            result = open_to_read(args).verify(version_store.Job(bar))
        self._intact = result.intact
        for damage in result.damage:
            self.app.LOG.error('%s: %s', damage.object, damage.reason)
        for version in result.versions_damaged:
            self.app.LOG.error('version %s cannot be restored; save its disk '
                               'again, or restore the damaged objects from '
                               'a copy of the store', version)
        return {
            'intact': result.intact,
            'packs_checked': result.packs_checked,
            'bytes_checked': result.bytes_checked,
            'packs_damaged': sorted({damage.object
                                     for damage in result.damage}),
            'versions_damaged': result.versions_damaged,
            'orphans': result.orphans}


class Delete(quick.Lister):
    """Delete versions; prune frees their space."""

    examples = ('--store file:///srv/versions 114926f1',)
    arguments = (
        *STORE,
        cli.Argument('versions', metavar='VERSION', nargs='+',
                     help='ID of a version, or its first digits.'))

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        gone = open_store(parsed_args).delete(parsed_args.versions)
        return ['version'], [[version] for version in gone]


_KEPT = {
    'last': 'the last N versions',
    'hourly': 'the last version of each of the last N hours with versions',
    'daily': 'the last version of each of the last N days with versions',
    'weekly': 'the last version of each of the last N weeks with versions',
    'monthly': 'the last version of each of the last N months with versions'}


class Prune(quick.ShowOne):
    """Delete versions by age and free unused space."""

    examples = (
        '--store file:///srv/versions --series web-1 --keep-daily 7 '
        '--dry-run',)
    arguments = (
        *STORE,
        cli.Argument('--series', metavar='NAME',
                     help='Delete only versions of this series.'),
        *(cli.Argument(f'--keep-{name}', metavar='N', type=cli.whole(0),
                       default=0, help=f'Keep {kept}. Without any --keep'
                       ' option no version is deleted.')
          for name, kept in _KEPT.items()),
        cli.Argument('--dead-share', type=_SHARE, default=pruning.DEAD_SHARE,
                     metavar='S', help='Rewrite packs in which more than this'
                                       ' share of the blocks is unused'
                                       ' (default: 0.2).'),
        cli.Argument('--level', type=cli.whole(1, 19), default=0, metavar='N',
                     help='Recompress packs of a lower level at this level, 1'
                          ' to 19: higher is smaller and slower (default:'
                          ' off).'),
        cli.Argument('--dry-run', action='store_true',
                     help='Only report what would be done.'))

    def fields(self, args: argparse.Namespace) -> dict[str, Any]:
        policy = retention.Policy(
            args.keep_last, args.keep_hourly, args.keep_daily,
            args.keep_weekly, args.keep_monthly)
        store = open_store(args)
        if args.series is not None and not store.versions(args.series):
            raise exceptions.NotFound(
                f'The store has no series {args.series!r}: list its versions.')
        with progress.of(self, 'prune') as bar:
            return store.prune(
                {args.series: policy},
                pruning.PruneRule(args.dead_share, args.level), args.dry_run,
                version_store.Job(bar)).to_dict()


class Diff(quick.ShowOne):
    """Show how much two versions differ."""

    examples = ('--store file:///srv/versions 114926f1 9e07ab54',)
    arguments = (
        *STORE,
        cli.Argument('old', metavar='OLD',
                     help='ID of a version, or its first digits.'),
        cli.Argument('new', metavar='NEW', help='ID of another version.'))

    def fields(self, args: argparse.Namespace) -> dict[str, Any]:
        found = open_to_read(args).diff(args.old, args.new)
        return {
            'old': found.old, 'new': found.new, 'blocks': found.blocks,
            'bytes': found.bytes, 'ranges': found.ranges}


def _check_output(args: argparse.Namespace) -> None:
    """Refuse an output that cannot be written, before the store is read."""
    inputs = {} if args.base is None else {'base': str(args.base)}
    operands.check_output(str(args.output), **inputs)


class Restore(_OfVersion):
    """Write a version to a new file."""

    examples = ('--store file:///srv/versions 114926f1 web-1.raw',)
    # Format of the file; -f selects the format of the command's output.
    conflict_handler = 'resolve'
    arguments = (
        cli.Argument('output', metavar='OUTPUT', type=pathlib.Path,
                     help='File to write; it appears when it is complete.'),
        cli.Argument('--format', dest='disk_format',
                     choices=restoring.FORMATS,
                     help='Format of the file (default: raw; qcow2 with'
                          ' --base).'),
        cli.Argument('--base', metavar='IMAGE', type=pathlib.Path,
                     help='Base image of the version. A qcow2 file gets it as'
                          ' its backing file.'))

    def fields(self, args: argparse.Namespace) -> dict[str, Any]:
        _check_output(args)
        with progress.of(self, 'restore') as bar:
            return open_to_read(args).restore(
                args.version, args.output, args.disk_format, args.base,
                job=version_store.Job(bar)).to_dict()


class Manifest(_OfVersion):
    """Create the manifest of a version: the hashes of all its leaves."""

    examples = ('--store file:///srv/versions 114926f1 web-1.manifest',)
    arguments = (
        cli.Argument('output', metavar='OUTPUT', type=pathlib.Path,
                     help='Manifest to write; the file appears when it is'
                          ' complete.'),
        cli.Argument('--base', metavar='IMAGE', type=pathlib.Path,
                     help='Base image of the version, if it has one.'),
        cli.Argument('--keep', action='store_true',
                     help='Keep it in the store, too. Later versions then get'
                          ' one as well, computed from what changed.'))

    def fields(self, args: argparse.Namespace) -> dict[str, Any]:
        _check_output(args)
        store = open_store(args) if args.keep else open_to_read(args)
        with progress.of(self, 'manifest') as bar:
            made = store.create_manifest(args.version, args.output, args.base,
                                         job=version_store.Job(bar))
        if args.keep:
            store.keep_manifest(args.version, args.output)
        return made


class Rollback(_Disk):
    """Restore a disk in place, writing only what differs."""

    examples = ('--store file:///srv/versions 114926f1 web-1.qcow2 --dry-run',)
    arguments = (
        cli.Argument('version', metavar='VERSION',
                     help='ID of a version, or its first digits.'),
        cli.Argument('disk', metavar='DISK', type=pathlib.Path,
                     help='Disk of a stopped guest.'),
        cli.Argument('--dry-run', action='store_true',
                     help='Only report what would be written.'),
        cli.Argument('--discard-current', action='store_true',
                     help='Do not save the current state as a version first.'))

    def fields(self, args: argparse.Namespace) -> dict[str, Any]:
        store = open_store(args)
        version = store.version(args.version)
        disk = self.disk_of(args, version.series)
        with progress.of(self, 'rollback') as bar:
            job = version_store.Job(bar, args.rate)
            if args.dry_run:
                plan = store.plan_rollback(version.id, disk, job)
                return plan.summary()
            return store.roll_back(
                version.id, disk, not args.discard_current, job).to_dict()
