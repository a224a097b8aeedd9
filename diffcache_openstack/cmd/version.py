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
"""``diffcache version``: versions of disks in a store, on files."""

import argparse
import pathlib
from typing import Any

from cliff import lister
from cliff import show

from diffcache_openstack.blocks import files
from diffcache_openstack.cmd import progress
from diffcache_openstack.cmd import quick
from diffcache_openstack.store import registry
from diffcache_openstack.versions import restoring
from diffcache_openstack.versions import retention
from diffcache_openstack.versions import snapshots
from diffcache_openstack.versions import store_access
from diffcache_openstack.versions import upkeep
from diffcache_openstack.versions import version_store

_AUTO = 'auto'
_MB = 1e6


def _columns(fields: dict[str, Any]) -> tuple[list[str], list[Any]]:
    return list(fields), list(fields.values())


def _add_store_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        '--store', metavar='URI', required=True,
        help='Where the versions are: file:///directory, or glance:DRIVER '
             'for a store of glance_store.')
    parser.add_argument(
        '--store-config', metavar='FILE', action='append',
        help='Configuration with the options of [glance_store].')
    parser.add_argument(
        '--key-file', metavar='FILE', type=pathlib.Path,
        help='File with the 32 bytes of the key that blocks are sealed with, '
             'as 64 hex digits or as they are.')


def _open(args: argparse.Namespace, **options: Any
          ) -> version_store.VersionStore:
    key = version_store.read_key(args.key_file) if args.key_file else None
    store = registry.open_store(args.store, args.store_config)
    return version_store.VersionStore.open(store, key, **options)


def _alpha(text: str) -> float | str:
    if text == _AUTO:
        return text
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(
            f'{text!r} is neither {_AUTO} nor a number from 0 to 1')
    return value


def _rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if value <= 0:
        raise argparse.ArgumentTypeError(
            f'{text!r} is no rate: write MB per second')
    return value * _MB


def _size(text: str) -> int:
    # Brings oslo.config, which saving can do without.
    from diffcache_openstack.common import units
    return units.parse_size(text)


class _Disk(quick.Quick, show.ShowOne):
    """Options of the commands that look at a disk."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_store_options(parser)
        parser.add_argument(
            '--base', metavar='IMAGE', type=pathlib.Path,
            help='Base image that the disk lies on. What equals it is not '
                 'stored.')
        parser.add_argument(
            '--rate', type=_rate, metavar='MB/s',
            help='Read the disk no faster than this.')
        parser.add_argument(
            '--scan', action='store_true',
            help='Take no internal snapshot: compare the whole disk as it '
                 'is. Nothing may write it meanwhile.')
        return parser

    @staticmethod
    def disk_of(args: argparse.Namespace, series: str, **options: Any
                ) -> version_store.Disk:
        """The disk that the command is about.

        :raises NotFound: it, or its base, does not exist
        :raises InvalidInput: it is no file and no device
        """
        files.check_readable(str(args.disk), 'disk')
        if args.base is not None:
            files.check_readable(str(args.base), 'base')
        return version_store.Disk(
            args.disk, series, args.base, without_snapshot=args.scan,
            **options)


class Save(_Disk):
    """Save a disk as a new version."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('disk', metavar='DISK', type=pathlib.Path,
                            help='Disk to save: raw or qcow2.')
        parser.add_argument('--series', metavar='NAME', required=True,
                            help='What the versions of one disk are called.')
        parser.add_argument(
            '--parent', metavar='VERSION',
            help='Version to store the difference from (default: the '
                 'newest of the series).')
        parser.add_argument(
            '--alpha', type=_alpha, default=0.0, metavar='A',
            help='Part of the chunk groups that is stored as differential: '
                 '0 takes the least storage (default), 1 restores fastest, '
                 'auto does what keeps restores fast enough.')
        parser.add_argument(
            '--snapshot', metavar='NAME',
            help='Internal snapshot to save; made if there is none of this '
                 'name.')
        parser.add_argument(
            '--qmp', metavar='SOCKET', type=pathlib.Path,
            help='Monitor of the running guest that has the disk: the '
                 'snapshot is taken through it.')
        parser.add_argument(
            '--guest-agent', metavar='SOCKET', type=pathlib.Path,
            help='Channel of its guest agent, which is asked to keep the '
                 'filesystems still meanwhile.')
        parser.add_argument(
            '--block-size', type=_size, metavar='BYTES',
            default=store_access.BLOCK_SIZE,
            help='Size of a block in a store that is yet to be made '
                 '(default: 4096).')
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
        store = _open(args, block_size=args.block_size, level=args.level)
        with progress.of(self, 'save') as bar:
            [version] = store.save([disk], guest, args.alpha,
                                   version_store.Job(bar, args.rate))
        return _columns(version.summary())


class List(quick.Quick, lister.Lister):
    """List versions, oldest first."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_store_options(parser)
        parser.add_argument('--series', metavar='NAME',
                            help='Only the versions of this series.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[list[str], list[list[Any]]]:
        columns = ['version', 'series', 'parent', 'created_at', 'size',
                   'blocks_changed', 'bytes_stored']
        rows = [version.summary() for version
                in _open(parsed_args).versions(parsed_args.series)]
        return columns, [[row[column] for column in columns] for row in rows]


class Show(quick.Quick, show.ShowOne):
    """Describe a version."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_store_options(parser)
        parser.add_argument('version', metavar='VERSION',
                            help='Version, or the beginning of its id.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[list[str], list[Any]]:
        version = _open(parsed_args).version(parsed_args.version)
        return _columns(version.summary() | {
            'number': version.number,
            'base_id': version.base.id if version.base else None,
            'snapshots': [each.name for each in version.snapshots]})


class Verify(quick.Quick, show.ShowOne):
    """Read everything in a store, and name what is damaged."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_store_options(parser)
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        self._intact = True
        return super().run(parsed_args) or (0 if self._intact else 1)

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[list[str], list[Any]]:
        with progress.of(self, 'verify') as bar:
            result = _open(parsed_args).verify(version_store.Job(bar))
        self._intact = result.intact
        for damage in result.damage:
            self.app.LOG.error('%s: %s', damage.object, damage.reason)
        for version in result.versions_damaged:
            self.app.LOG.error('version %s cannot be restored whole; save '
                               'its disk again, or restore the objects from '
                               'a copy of the store', version)
        return _columns({
            'intact': result.intact,
            'packs_checked': result.packs_checked,
            'bytes_checked': result.bytes_checked,
            'packs_damaged': sorted({damage.object for damage
                                     in result.damage}),
            'versions_damaged': result.versions_damaged,
            'orphans': result.orphans})


class Delete(quick.Quick, lister.Lister):
    """Forget versions; prune gives their space back."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_store_options(parser)
        parser.add_argument('versions', metavar='VERSION', nargs='+',
                            help='Version, or the beginning of its id.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[list[str], list[list[Any]]]:
        gone = _open(parsed_args).delete(parsed_args.versions)
        return ['version'], [[version] for version in gone]


class Prune(quick.Quick, show.ShowOne):
    """Drop versions by age, and give back what no version needs."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_store_options(parser)
        parser.add_argument('--series', metavar='NAME',
                            help='Apply the policy to this series only.')
        for name in ('last', 'hourly', 'daily', 'weekly', 'monthly'):
            parser.add_argument(
                f'--keep-{name}', type=int, default=0, metavar='N',
                help=f'Versions to keep: the {name} N. Without any such '
                     'option no version is dropped.')
        parser.add_argument(
            '--dead-share', type=float, default=upkeep.DEAD_SHARE,
            metavar='S', help='Write packs anew when more than this part of '
            'their blocks is dead (default: 0.2).')
        parser.add_argument(
            '--level', type=int, default=0, metavar='N',
            choices=range(1, 20), help='Compress packs of a lower level than '
            'this again, 1 to 19: higher is smaller and slower. Without it '
            'packs stay as they are.')
        parser.add_argument('--dry-run', action='store_true',
                            help='Only tell what would be done.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[list[str], list[Any]]:
        args = parsed_args
        policy = retention.Policy(
            args.keep_last, args.keep_hourly, args.keep_daily,
            args.keep_weekly, args.keep_monthly)
        with progress.of(self, 'prune') as bar:
            return _columns(_open(args).prune(
                {args.series: policy},
                upkeep.PruneRule(args.dead_share, args.level), args.dry_run,
                version_store.Job(bar)).to_dict())


class Diff(quick.Quick, show.ShowOne):
    """Tell in what two versions differ."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_store_options(parser)
        parser.add_argument('old', metavar='OLD', help='A version.')
        parser.add_argument('new', metavar='NEW', help='Another one.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[list[str], list[Any]]:
        found = _open(parsed_args).diff(parsed_args.old, parsed_args.new)
        return _columns({
            'old': found.old, 'new': found.new, 'blocks': found.blocks,
            'bytes': found.bytes, 'ranges': found.ranges})


class Restore(quick.Quick, show.ShowOne):
    """Write a version to a new file."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_store_options(parser)
        parser.add_argument('version', metavar='VERSION',
                            help='Version, or the beginning of its id.')
        parser.add_argument('output', metavar='OUTPUT', type=pathlib.Path,
                            help='File to write; it appears when it is '
                                 'complete.')
        # The output's format; how this command itself answers is told by -f.
        group = parser.add_argument_group('the file',
                                          conflict_handler='resolve')
        group.add_argument(
            '--format', dest='disk_format', choices=restoring.FORMATS,
            help='Format of the file (default: raw; qcow2 with --base).')
        parser.add_argument(
            '--base', metavar='IMAGE', type=pathlib.Path,
            help='Base image that the version lies on. A qcow2 file names '
                 'it as its backing file.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[list[str], list[Any]]:
        args = parsed_args
        with progress.of(self, 'restore') as bar:
            return _columns(_open(args).restore(
                args.version, args.output, args.disk_format, args.base,
                job=version_store.Job(bar)).to_dict())


class Rollback(_Disk):
    """Make a disk be what a version was, writing only what differs."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('version', metavar='VERSION',
                            help='Version, or the beginning of its id.')
        parser.add_argument('disk', metavar='DISK', type=pathlib.Path,
                            help='Disk of a stopped guest.')
        parser.add_argument('--dry-run', action='store_true',
                            help='Only tell what would be written.')
        parser.add_argument(
            '--discard-current', action='store_true',
            help='Do not keep the state before as a version.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[list[str], list[Any]]:
        args = parsed_args
        store = _open(args)
        version = store.version(args.version)
        disk = self.disk_of(args, version.series)
        with progress.of(self, 'rollback') as bar:
            job = version_store.Job(bar, args.rate)
            if args.dry_run:
                plan = store.plan_rollback(version.id, disk, job)
                return _columns(plan.summary())
            return _columns(store.roll_back(
                version.id, disk, not args.discard_current, job).to_dict())
