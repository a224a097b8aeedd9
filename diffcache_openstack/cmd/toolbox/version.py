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
import math
import pathlib
from typing import Any

from cliff import columns as cliff_columns
from cliff import lister
from cliff import show

from diffcache_openstack.blocks import operands
from diffcache_openstack.cmd.toolbox import numbers
from diffcache_openstack.cmd.toolbox import progress
from diffcache_openstack.cmd.toolbox import quick
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import units
from diffcache_openstack.versions.blobs import registry
from diffcache_openstack.versions.guests import snapshots
from diffcache_openstack.versions.restore import restoring
from diffcache_openstack.versions.store import retention
from diffcache_openstack.versions.store import store_access
from diffcache_openstack.versions.store import upkeep
from diffcache_openstack.versions import version_store

_AUTO = 'auto'
_MB = 1e6


def columns(fields: dict[str, Any]) -> tuple[list[str], list[Any]]:
    """Return names and values, as cliff shows them."""
    return list(fields), list(fields.values())


def add_store_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which store, and its key."""
    parser.add_argument(
        '--store', metavar='URI', required=True,
        help='Version store: file:///directory, or glance:DRIVER for a store '
             'of glance_store.')
    parser.add_argument(
        '--store-config', metavar='FILE', action='append',
        help='Configuration file with the group [glance_store].')
    parser.add_argument(
        '--key-file', metavar='FILE', type=pathlib.Path,
        help='File with the key that blocks are encrypted with: 32 bytes or '
             '64 hexadecimal digits.')


def open_store(args: argparse.Namespace, **options: Any
               ) -> version_store.VersionStore:
    """Open the store that the options name."""
    store = registry.open_store(args.store, args.store_config)
    return version_store.VersionStore.open(store, _key(args), **options)


def open_to_read(args: argparse.Namespace) -> version_store.VersionStore:
    """Open the store that the options name; create and change nothing."""
    store = registry.open_to_read(args.store, args.store_config)
    return version_store.VersionStore.open(store, _key(args))


def _key(args: argparse.Namespace) -> bytes | None:
    return version_store.read_key(args.key_file) if args.key_file else None


_SHARE = numbers.real(0, 1)


def _alpha(text: str) -> float | str:
    try:
        return text if text == _AUTO else _SHARE(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f'{error}, nor {_AUTO}') from error


def parse_rate(text: str) -> float:
    """Return bytes per second.

    :raises ArgumentTypeError: the text is no rate
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(
            f'{text!r} is not a rate: write MB per second')
    return value * _MB


def _block_size(text: str) -> int:
    try:
        size = units.parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if size not in store_access.BLOCK_SIZES:
        raise argparse.ArgumentTypeError(
            f'{text!r} is not a power of two from 512 to 65536')
    return size


def _series(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError('the name of a series is not empty')
    return text


class _Disk(quick.Quick, show.ShowOne):
    """Options of the commands that read a disk."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        add_store_options(parser)
        parser.add_argument(
            '--base', metavar='IMAGE', type=pathlib.Path,
            help='Base image of the disk. Blocks that equal it are not '
                 'stored.')
        parser.add_argument(
            '--disk-format', choices=restoring.FORMATS,
            help='Format of the disk. By default the one that its series '
                 'records; or else it is detected by the first bytes, which '
                 'the guest of a raw disk can write, and a qcow2 header that '
                 'names a backing file is refused.')
        parser.add_argument(
            '--rate', type=parse_rate, metavar='MB/s',
            help='Read at most so many megabytes per second.')
        parser.add_argument(
            '--scan', action='store_true',
            help='Compare the whole disk instead of taking an internal '
                 'snapshot. Nothing may write to it meanwhile.')
        return parser

    @staticmethod
    def disk_of(args: argparse.Namespace, series: str, **options: Any
                ) -> version_store.Disk:
        """Return the disk that the command reads.

        :raises NotFound: it, or its base, does not exist
        :raises InvalidInput: it is neither a file nor a device
        """
        operands.check_readable(str(args.disk), 'disk')
        if args.base is not None:
            operands.check_readable(str(args.base), 'base')
        return version_store.Disk(
            args.disk, series, args.base, without_snapshot=args.scan,
            format=args.disk_format, **options)


class Save(_Disk):
    """Save a disk as a new version."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('disk', metavar='DISK', type=pathlib.Path,
                            help='Disk to save: raw or qcow2.')
        parser.add_argument(
            '--series', metavar='NAME', required=True, type=_series,
            help='Series of the disk: the name that all its versions share.')
        parser.add_argument(
            '--parent', metavar='VERSION',
            help='Version to store the difference to (default: the newest '
                 'of the series).')
        parser.add_argument(
            '--alpha', type=_alpha, default=0.0, metavar='A',
            help='Part of the chunk groups to store as differential: 0 '
                 '(default) takes the least storage, 1 restores fastest, auto '
                 'keeps restores fast enough.')
        parser.add_argument(
            '--snapshot', metavar='NAME',
            help='Internal snapshot to save; created if it does not exist.')
        parser.add_argument(
            '--qmp', metavar='SOCKET', type=pathlib.Path,
            help='QMP monitor of the running guest that uses the disk; takes '
                 'the snapshot.')
        parser.add_argument(
            '--guest-agent', metavar='SOCKET', type=pathlib.Path,
            help='Socket of its guest agent, which freezes the filesystems '
                 'meanwhile.')
        parser.add_argument(
            '--block-size', type=_block_size, metavar='BYTES',
            default=store_access.BLOCK_SIZE,
            help='Size of a block if the store is created: a power of two '
                 'from 512 to 65536 (default: 4096).')
        parser.add_argument(
            '--level', type=int, default=store_access.LEVEL, metavar='N',
            choices=range(1, 20), help='Compression level, 1 to 19: higher '
            'is smaller and slower (default: 3).')
        return parser

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[list[str], list[Any]]:
        args = parsed_args
        guest = (snapshots.Guest(args.qmp, args.guest_agent) if args.qmp
                 else None)
        disk = self.disk_of(args, args.series, parent=args.parent,
                            snapshot=args.snapshot)
        store = open_store(args, block_size=args.block_size, level=args.level)
        with progress.of(self, 'save') as bar:
            [version] = store.save([disk], guest, args.alpha,
                                   version_store.Job(bar, args.rate))
        return columns(version.summary())


_ALL_COLUMNS = ['version', 'series', 'parent', 'created_at', 'size',
                'blocks_changed', 'bytes_stored']
# What fits into 100 columns.
_NARROW = ['version', 'series', 'created_at', 'size', 'bytes_stored']
_SIZES = ('size', 'bytes_stored')


class _Size(cliff_columns.FormattableColumn):
    """Bytes; in tables with a unit."""

    def human_readable(self) -> str:
        """Return three digits and a unit of powers of 1000."""
        return units.format_size(self._value)


class List(quick.Quick, lister.Lister):
    """List versions, oldest first."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        add_store_options(parser)
        parser.add_argument('--series', metavar='NAME',
                            help='List only versions of this series.')
        parser.add_argument(
            '--long', action='store_true',
            help='Show parents and changed blocks in the table, too; other '
                 'formats always have them.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[list[str], list[list[Any]]]:
        is_narrow = parsed_args.formatter == 'table' and not parsed_args.long
        names = _NARROW if is_narrow else _ALL_COLUMNS
        rows = [version.summary() for version
                in open_to_read(parsed_args).versions(parsed_args.series)]
        return names, [[_Size(row[name]) if name in _SIZES else row[name]
                        for name in names] for row in rows]


class _OfVersion(quick.Quick, show.ShowOne):
    """Arguments of the commands about one version of a store."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        add_store_options(parser)
        parser.add_argument('version', metavar='VERSION',
                            help='ID of a version, or its first digits.')
        return parser


class Show(_OfVersion):
    """Show a version."""

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[list[str], list[Any]]:
        version = open_to_read(parsed_args).version(parsed_args.version)
        return columns(version.summary() | {
            'number': version.number, 'disk_format': version.disk_format,
            'base_id': version.base.id if version.base else None,
            'snapshots': [each.name for each in version.snapshots]})


class Verify(quick.Quick, show.ShowOne):
    """Read a whole store and list damaged objects and versions."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        add_store_options(parser)
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        self._intact = True
        return super().run(parsed_args) or (0 if self._intact else 1)

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[list[str], list[Any]]:
        with progress.of(self, 'verify') as bar:
            result = open_to_read(parsed_args).verify(version_store.Job(bar))
        self._intact = result.intact
        for damage in result.damage:
            self.app.LOG.error('%s: %s', damage.object, damage.reason)
        for version in result.versions_damaged:
            self.app.LOG.error('version %s cannot be restored; save its disk '
                               'again, or restore the damaged objects from '
                               'a copy of the store', version)
        return columns({
            'intact': result.intact,
            'packs_checked': result.packs_checked,
            'bytes_checked': result.bytes_checked,
            'packs_damaged': sorted({damage.object for damage
                                     in result.damage}),
            'versions_damaged': result.versions_damaged,
            'orphans': result.orphans})


class Delete(quick.Quick, lister.Lister):
    """Delete versions; prune frees their space."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        add_store_options(parser)
        parser.add_argument('versions', metavar='VERSION', nargs='+',
                            help='ID of a version, or its first digits.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[list[str], list[list[Any]]]:
        gone = open_store(parsed_args).delete(parsed_args.versions)
        return ['version'], [[version] for version in gone]


_KEPT = {
    'last': 'the last N versions',
    'hourly': 'the last version of each of the last N hours with versions',
    'daily': 'the last version of each of the last N days with versions',
    'weekly': 'the last version of each of the last N weeks with versions',
    'monthly': 'the last version of each of the last N months with versions'}


class Prune(quick.Quick, show.ShowOne):
    """Delete versions by age and free unused space."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        add_store_options(parser)
        parser.add_argument('--series', metavar='NAME',
                            help='Delete only versions of this series.')
        for name, kept in _KEPT.items():
            parser.add_argument(
                f'--keep-{name}', metavar='N', type=numbers.whole(0),
                default=0,
                help=f'Keep {kept}. Without any --keep option no version is '
                     'deleted.')
        parser.add_argument(
            '--dead-share', type=_SHARE, default=upkeep.DEAD_SHARE,
            metavar='S', help='Rewrite packs in which more than this part of '
            'the blocks is unused (default: 0.2).')
        parser.add_argument(
            '--level', type=int, default=0, metavar='N',
            choices=range(1, 20), help='Compress packs of a lower level '
            'again, 1 to 19: higher is smaller and slower (default: do not).')
        parser.add_argument('--dry-run', action='store_true',
                            help='Only report what would be done.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[list[str], list[Any]]:
        args = parsed_args
        policy = retention.Policy(
            args.keep_last, args.keep_hourly, args.keep_daily,
            args.keep_weekly, args.keep_monthly)
        store = open_store(args)
        if args.series is not None and not store.versions(args.series):
            raise exceptions.NotFound(
                f'The store has no series {args.series!r}: list its versions.')
        with progress.of(self, 'prune') as bar:
            return columns(store.prune(
                {args.series: policy},
                upkeep.PruneRule(args.dead_share, args.level), args.dry_run,
                version_store.Job(bar)).to_dict())


class Diff(quick.Quick, show.ShowOne):
    """Show how much two versions differ."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        add_store_options(parser)
        parser.add_argument('old', metavar='OLD',
                            help='ID of a version, or its first digits.')
        parser.add_argument('new', metavar='NEW',
                            help='ID of another version.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[list[str], list[Any]]:
        found = open_to_read(parsed_args).diff(parsed_args.old,
                                               parsed_args.new)
        return columns({
            'old': found.old, 'new': found.new, 'blocks': found.blocks,
            'bytes': found.bytes, 'ranges': found.ranges})


def _check_output(args: argparse.Namespace) -> None:
    """Refuse an output that cannot be written, before the store is read."""
    inputs = {} if args.base is None else {'base': str(args.base)}
    operands.check_output(str(args.output), **inputs)


class Restore(_OfVersion):
    """Write a version to a new file."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('output', metavar='OUTPUT', type=pathlib.Path,
                            help='File to write; it appears when it is '
                                 'complete.')
        # Format of the file; -f selects the format of the command's output.
        group = parser.add_argument_group('the file',
                                          conflict_handler='resolve')
        group.add_argument(
            '--format', dest='disk_format', choices=restoring.FORMATS,
            help='Format of the file (default: raw; qcow2 with --base).')
        parser.add_argument(
            '--base', metavar='IMAGE', type=pathlib.Path,
            help='Base image of the version. A qcow2 file gets it as its '
                 'backing file.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[list[str], list[Any]]:
        args = parsed_args
        _check_output(args)
        with progress.of(self, 'restore') as bar:
            return columns(open_to_read(args).restore(
                args.version, args.output, args.disk_format, args.base,
                job=version_store.Job(bar)).to_dict())


class Manifest(_OfVersion):
    """Create the manifest of a version: the hashes of all its leaves."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('output', metavar='OUTPUT', type=pathlib.Path,
                            help='Manifest to write; the file appears when it '
                                 'is complete.')
        parser.add_argument(
            '--base', metavar='IMAGE', type=pathlib.Path,
            help='Base image of the version, if it has one.')
        parser.add_argument(
            '--keep', action='store_true',
            help='Keep it in the store, too. Saves of later versions then '
                 'carry it on, at the cost of what changed.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[list[str], list[Any]]:
        args = parsed_args
        _check_output(args)
        store = open_store(args) if args.keep else open_to_read(args)
        with progress.of(self, 'manifest') as bar:
            made = store.create_manifest(args.version, args.output, args.base,
                                         job=version_store.Job(bar))
        if args.keep:
            store.keep_manifest(args.version, args.output)
        return columns(made)


class Rollback(_Disk):
    """Restore a disk in place, writing only what differs."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('version', metavar='VERSION',
                            help='ID of a version, or its first digits.')
        parser.add_argument('disk', metavar='DISK', type=pathlib.Path,
                            help='Disk of a stopped guest.')
        parser.add_argument('--dry-run', action='store_true',
                            help='Only report what would be written.')
        parser.add_argument(
            '--discard-current', action='store_true',
            help='Do not save the current state as a version first.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[list[str], list[Any]]:
        args = parsed_args
        store = open_store(args)
        version = store.version(args.version)
        disk = self.disk_of(args, version.series)
        with progress.of(self, 'rollback') as bar:
            job = version_store.Job(bar, args.rate)
            if args.dry_run:
                plan = store.plan_rollback(version.id, disk, job)
                return columns(plan.summary())
            return columns(store.roll_back(
                version.id, disk, not args.discard_current, job).to_dict())
