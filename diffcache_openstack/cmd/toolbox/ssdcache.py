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
"""``diffcache ssdcache``: volumes behind a cache on an SSD, over NBD."""

import argparse
import typing

from cliff import columns
from cliff import command
from cliff import show

from diffcache_openstack.cmd.toolbox import numbers
from diffcache_openstack.cmd.toolbox import quick
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import groups
from diffcache_openstack.ssdcache import control
from diffcache_openstack.ssdcache import server
from diffcache_openstack.ssdcache import simulation


# Of a curve in a table, at most.
_SHOWN = 20


class _Device(columns.FormattableColumn):
    """Fields of the device."""

    def human_readable(self) -> str:
        return ', '.join(f'{name} {value}'
                         for name, value in self._value.items())


class _Volumes(columns.FormattableColumn):
    """Fields of each volume, a line each."""

    def human_readable(self) -> str:
        return '\n'.join(
            f'{name}: {volume["mode"]}, {volume["state"]}, {volume["blocks"]}'
            f' of {volume["limit"]} blocks, {volume["dirty"]} dirty,'
            f' {volume["hits"]} hits, {volume["misses"]} misses, export'
            f' {volume["export"]}{_lost(volume["losses"])}'
            f'{_because(volume["reason"])}'
            for name, volume in self._value.items())


def _because(reason: str | None) -> str:
    return f': {reason}' if reason else ''


def _lost(losses: list[tuple[int, int]]) -> str:
    if not losses:
        return ''
    count = sum(length for _, length in losses)
    return f', {count} bytes lost by the origin from {losses[0][0]} on'


_BLOCKS = numbers.whole(0, simulation.MAX_CAPACITY)


def _dirty_max(text: str) -> str:
    try:
        return server.parse_dirty_max(text)
    except server.ServerError as error:
        raise argparse.ArgumentTypeError(str(error))


def _volume(text: str) -> server.Volume:
    try:
        return server.parse_volume(text)
    except server.ServerError as error:
        raise argparse.ArgumentTypeError(str(error))


def _add_discard_dirty(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        '--discard-dirty', action='store_true',
        help='Lose blocks that only the cache has and that cannot be written'
             ' back: the volume has older ones.')


def _add_device(parser: argparse.ArgumentParser) -> None:
    """Add where the cache is, and where it is reached."""
    parser.add_argument(
        '--device', required=True, metavar='FILE',
        help='Block device or file for the cached blocks.')
    parser.add_argument('--socket', required=True, metavar='PATH',
                        help='Unix socket of NBD.')
    parser.add_argument(
        '--socket-group', metavar='GROUP',
        help='Group whose members may connect to the socket of NBD, besides'
             ' this user, who has to belong to it.')
    parser.add_argument('--control', required=True, metavar='PATH',
                        help='Unix socket for the other commands.')
    parser.add_argument(
        '--state', metavar='DIR', default=server.default_state(),
        help='Directory to note in that the device failed, or that it has'
             ' blocks which a volume lacks; must survive a restart of the'
             ' host (default: %(default)s).')
    parser.add_argument(
        '--capacity', required=True, metavar='BLOCKS', type=_BLOCKS,
        help='Size of the cache, in blocks of 4 KiB.')
    parser.add_argument(
        '--format', action='store_true', dest='is_new',
        help='Make the device an empty cache. What it has is lost.')


def _add_rules(parser: argparse.ArgumentParser) -> None:
    """Add which blocks are cached, for how long, and followed."""
    parser.add_argument(
        '--evict', choices=simulation.EVICTIONS, default='lru',
        help='Which block leaves a full partition (default: lru).')
    parser.add_argument(
        '--admission', metavar='N', type=int, default=1,
        choices=range(1, server.MAX_ADMISSION + 1),
        help='Cache a block at the N-th reference to it within as many'
             ' references as the volume\'s limit, unless the volume has'
             ' a number of its own (default: 1).')
    parser.add_argument(
        '--sequential-cutoff', metavar='BYTES', type=_BLOCKS, default=0,
        help='Do not cache what a request adds after this many bytes in'
             ' sequence, unless the volume has a number of its own; 0 for'
             ' never (default: 0).')
    parser.add_argument(
        '--dirty-max', metavar='BLOCKS|PERCENT%', type=_dirty_max,
        default='50%',
        help='The most blocks of a volume in the mode write-back that only'
             ' the cache has, or their share of the volume\'s limit'
             ' (default: 50%%).')
    parser.add_argument(
        '--dirty-age', metavar='SECONDS', type=_BLOCKS, default=30,
        help='Write a block back after this time (default: 30).')
    parser.add_argument(
        '--samples', metavar='BLOCKS', type=_BLOCKS,
        default=server.SAMPLES,
        help='Follow so many blocks of each volume for its curve, at most;'
             ' 0 for none (default: %(default)s).')


class Serve(quick.Quick, command.Command):
    """Serve volumes over NBD behind a cache on an SSD.

    Prints one line of JSON when clients can connect: the
    process's number, and the address of each volume's export. The exports
    keep their names until their volumes are left out or detached. Volumes
    that "diffcache ssdcache attach" added are served again, too.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_device(parser)
        parser.add_argument(
            '--volume', action='append', type=_volume, default=[],
            metavar='NAME=ORIGIN[,mode=MODE][,limit=BLOCKS]'
                    '[,sequential=BYTES][,admission=N]',
            help='Volume, and what it is: see "diffcache ssdcache attach". The'
                 ' mode is'
                 ' write-through (default), write-back, write-around or'
                 ' pass-through; the limit is the most blocks that it has in'
                 ' the cache (default: an equal part of what the limits of'
                 ' others leave); for sequential and admission see'
                 ' --sequential-cutoff and --admission. May be repeated.')
        _add_rules(parser)
        _add_discard_dirty(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        args = parsed_args
        server.become(server.Server(
            device=args.device, socket=args.socket, control=args.control,
            state=args.state, capacity=args.capacity,
            volumes=tuple(args.volume), is_new=args.is_new, evict=args.evict,
            admission=args.admission, sequential=args.sequential_cutoff,
            dirty_max=args.dirty_max,
            dirty_age=args.dirty_age, discard_dirty=args.discard_dirty,
            samples=args.samples, socket_group=groups.number(
                '--socket-group', args.socket_group)))


class _Control(quick.Quick, show.ShowOne):
    """Base of the commands that a running cache executes."""

    COMMAND: str

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--control', required=True, metavar='PATH',
            help='Socket that "diffcache ssdcache serve" was given.')
        return parser

    def _run(self, args: argparse.Namespace, **fields: typing.Any
             ) -> tuple[list[str], list[typing.Any]]:
        status = control.send(args.control, self.COMMAND, **fields)
        return ['device', 'volumes'], [_Device(status['device']),
                                       _Volumes(status['volumes'])]


class _VolumeControl(_Control):
    """Base of the commands that concern one volume."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('name', metavar='NAME', help='Volume.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[list[str], list[typing.Any]]:
        return self._run(parsed_args, volume=parsed_args.name)


class Status(_Control):
    """Show the state of a running cache and of its volumes."""

    COMMAND = 'status'

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[list[str], list[typing.Any]]:
        return self._run(parsed_args)


class Epoch(_Control):
    """End an epoch of all volumes, and begin another.

    "curve" shows what was requested in the one that ended. The agent of a
    compute host does this by itself.
    """

    COMMAND = 'epoch'

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[list[str], list[typing.Any]]:
        return self._run(parsed_args)


class _Steps(columns.FormattableColumn):
    """Sizes where the hits of a curve become more."""

    def human_readable(self) -> str:
        shown = self._value[::-(-len(self._value) // _SHOWN) or 1]
        return '\n'.join(f'{size:>12} blocks {hits:>12} hits'
                         for size, hits in shown)


class Curve(quick.Quick, show.ShowOne):
    """Show what was requested of a volume in its last epoch.

    References to blocks that are cached if there is room, how many different
    blocks they are, the hits of caches of all sizes, and mean latencies.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--control', required=True, metavar='PATH',
            help='Socket that "diffcache ssdcache serve" was given.')
        parser.add_argument('name', metavar='NAME', help='Volume.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[list[str], list[typing.Any]]:
        found = control.curve(parsed_args.control, parsed_args.name)
        if found is None:
            raise exceptions.NotFound(
                f'No epoch of volume {parsed_args.name} has ended; use'
                ' "diffcache ssdcache epoch".')
        return list(found), [
            {'hits': _Steps, 'hit': _Device, 'miss': _Device}.get(
                name, lambda value: value)(value)
            for name, value in found.items()]


def _add_admission(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument(
        '--admission', metavar='N', type=int,
        choices=range(server.MAX_ADMISSION + 1),
        help='Cache a block at the N-th reference to it; 0 for the number that'
             f' the cache was started with{text}.')


class Attach(_VolumeControl):
    """Serve one more volume, until it is detached.

    Its export, shown by its name, is served again after each start of the
    cache. A volume that is attached with the same origin gets the mode, the
    limit and the other options.
    """

    COMMAND = 'attach'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('origin', metavar='ORIGIN',
                            help='What the volume is: path of a file or'
                                 ' block device, nbd://HOST[:PORT]/EXPORT,'
                                 ' nbd+unix:///EXPORT?socket=PATH, or json:'
                                 ' and the options of a block device of'
                                 ' QEMU, which qemu-storage-daemon opens.')
        parser.add_argument('--limit', metavar='BLOCKS', type=_BLOCKS,
                            required=True,
                            help='The most blocks that the volume has in the'
                                 ' cache.')
        parser.add_argument('--mode', choices=server.MODES,
                            default=server.MODES[0],
                            help='What the cache does with reads and writes'
                                 ' (default: %(default)s).')
        parser.add_argument('--sequential-cutoff', metavar='BYTES',
                            type=_BLOCKS, default=0,
                            help='Do not cache what a request adds after this'
                                 ' many bytes in sequence; 0 for never'
                                 ' (default: 0).')
        _add_admission(parser, ' (default: 0)')
        parser.set_defaults(admission=0)
        return parser

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[list[str], list[typing.Any]]:
        args = parsed_args
        return self._run(args, volume=args.name,
                         origin=server.absolute(args.origin), mode=args.mode,
                         limit=args.limit, sequential=args.sequential_cutoff,
                         **({'admission': args.admission} if args.admission
                            else {}))


class Recover(_VolumeControl):
    """Write the dirty blocks of a held volume back.

    The volume stays held, without dirty blocks, until it is attached or
    detached. After a start of the host, the cache of a compute host holds
    volumes that were in write-back: it does not know their present origins,
    nor whether another host has written to them since. Recover a volume only
    if no other host has.
    """

    COMMAND = 'recover'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('origin', metavar='ORIGIN',
                            help='Present origin of the volume, as for'
                                 ' "diffcache ssdcache attach".')
        return parser

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[list[str], list[typing.Any]]:
        return self._run(parsed_args, volume=parsed_args.name,
                         origin=server.absolute(parsed_args.origin))


class Resize(_VolumeControl):
    """Give a volume the size that its origin has now, after it grew.

    Clients see it when they connect again. What is cached stays.
    """

    COMMAND = 'resize'


class Disconnect(_VolumeControl):
    """End the connections of a volume's clients.

    They see the size of the volume when they connect again. QEMU does that by
    itself, and repeats its requests if it has a ``reconnect-delay``; without
    one, requests that are under way fail.
    """

    COMMAND = 'disconnect'


class Set(_VolumeControl):
    """Change settings of a volume while it is in use."""

    COMMAND = 'set'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--limit', metavar='BLOCKS', type=_BLOCKS,
            help='The most blocks that the volume has in the cache.')
        parser.add_argument('--mode', choices=server.MODES,
                            help='What the cache does with reads and writes.')
        parser.add_argument('--sequential-cutoff', metavar='BYTES',
                            type=_BLOCKS,
                            help='Do not cache what a request adds after this'
                                 ' many bytes in sequence; 0 for never.')
        _add_admission(parser, '')
        return parser

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[list[str], list[typing.Any]]:
        args = parsed_args
        fields = {'limit': args.limit, 'mode': args.mode,
                  'sequential': args.sequential_cutoff,
                  'admission': args.admission}
        return self._run(args, volume=args.name, **{
            field: value for field, value in fields.items()
            if value is not None})


class Flush(_VolumeControl):
    """Write the dirty blocks of a volume back, and make its writes durable."""

    COMMAND = 'flush'


class AcceptLoss(_VolumeControl):
    """Accept that a volume's origin lost what was written to it.

    The state of the volume shows what is lost, in ``losses``. Flushes of the
    volume fail until its client has written that again, or until this.
    Accept it only if the client can do without, for example after its file
    systems were checked: it was told nothing else than that a flush failed.
    """

    COMMAND = 'accept-loss'


class GuestEnded(_VolumeControl):
    """Forget what was lost, because the guest has ended.

    A guest without its memory expects to have lost what it did not flush.
    Nova's driver does this by itself.
    """

    COMMAND = 'guest-ended'


class _Discard(_VolumeControl):
    """Base of the commands after which a volume has no cached blocks."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_discard_dirty(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[list[str], list[typing.Any]]:
        fields = {'discard_dirty': True} if parsed_args.discard_dirty else {}
        return self._run(parsed_args, volume=parsed_args.name, **fields)


class Invalidate(_Discard):
    """Remove the blocks of a volume from the cache, written back before."""

    COMMAND = 'invalidate'


class Detach(_Discard):
    """Write a volume's dirty blocks back, flush it, and end its export.

    Clients that are still connected are served without the cache.
    """

    COMMAND = 'detach'
