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
import os
import typing

from cliff import columns

from diffcache_openstack.cached_volumes import choices
from diffcache_openstack.cached_volumes import rates
from diffcache_openstack.cmd.toolbox import quick
from diffcache_openstack.common.commands import cells
from diffcache_openstack.common.commands import cli
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import groups
from diffcache_openstack.ssdcache import control
from diffcache_openstack.ssdcache import server
from diffcache_openstack.ssdcache import simulation


# Of a curve in a table, at most.
_SHOWN = 20


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


_BLOCKS = cli.blocks(0, simulation.MAX_CAPACITY)
_BYTES = cli.size(0, simulation.MAX_CAPACITY)


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


_DISCARD_DIRTY = cli.Argument(
    '--discard-dirty', action='store_true',
    help='Discard dirty blocks that cannot be written back. The volume keeps'
         ' their older content: the writes are lost.')


_DEVICE = (
    cli.Argument('--device', required=True, metavar='FILE',
                 help='Block device or file for the cached blocks.'),
    cli.Argument('--socket', required=True, metavar='PATH',
                 help='Unix socket of NBD.'),
    cli.Argument('--socket-group', metavar='GROUP',
                 help='Group whose members may connect to the socket of NBD,'
                      ' besides this user, who has to belong to it.'),
    cli.Argument('--control', required=True, metavar='PATH',
                 help='Unix socket for the other commands.'),
    cli.Argument('--state', metavar='DIR', default=server.default_state(),
                 help='Directory in which to record that the device failed or'
                      ' has dirty blocks of a volume; must survive a restart'
                      ' of the host (default: %(default)s).'),
    cli.Argument('--capacity', required=True, metavar='BLOCKS', type=_BLOCKS,
                 help='Size of the cache, such as 100GiB, or a number of'
                      ' blocks of 4 KiB.'),
    cli.Argument('--format', action='store_true', dest='is_new',
                 help='Erase the device and make it an empty cache.'))


_RULES = (
    cli.Argument('--evict', choices=simulation.EVICTIONS, default='lru',
                 help='Which block leaves a full partition (default: lru).'),
    cli.Argument('--admission', metavar='N', type=int, default=1,
                 choices=range(1, choices.MAX_ADMISSION + 1),
                 help='Cache a block at the N-th reference to it within as'
                      " many references as the volume's limit, unless the"
                      ' volume has a number of its own (default: 1).'),
    cli.Argument('--sequential-cutoff', metavar='SIZE', type=_BYTES,
                 default=0,
                 help='Stop caching a sequential stream after this many'
                      ' bytes, unless the volume has a limit of its own; 0:'
                      ' cache all (default: 0).'),
    cli.Argument('--dirty-max', metavar='BLOCKS|PERCENT%', type=_dirty_max,
                 default='50%',
                 help='Maximum number of dirty blocks of a volume in'
                      " write-back mode, or their share of the volume's limit"
                      ' (default: 50%%).'),
    cli.Argument('--dirty-age', metavar='SECONDS', type=cli.whole(0),
                 default=30,
                 help='Write a dirty block back after this time (default:'
                      ' 30).'),
    cli.Argument('--samples', metavar='BLOCKS', type=_BLOCKS,
                 default=server.SAMPLES,
                 help='Maximum number of blocks of each volume to sample for'
                      ' its curve; 0 for none (default: %(default)s).'))


class Serve(quick.Command):
    """Serve volumes over NBD behind a cache on an SSD.

    Prints one line of JSON when clients can connect: the
    process's number, and the address of each volume's export. The exports
    keep their names until their volumes are left out or detached. Volumes
    that "diffcache ssdcache attach" added are served again, too.
    """

    examples = (
        '--device /dev/nvme0n1p3 --socket nbd.sock --control cache.sock '
        '--capacity 100GiB --volume '
        'database=/dev/vg/database,mode=write-back',)
    arguments = (
        *_DEVICE,
        cli.Argument('--volume', action='append', type=_volume, default=[],
                     metavar='NAME=ORIGIN[,mode=MODE][,limit=BLOCKS]'
                             '[,sequential=BYTES][,admission=N]',
                     help='Volume, and what it is: see "diffcache ssdcache'
                          ' attach". The mode is write-through (default),'
                          ' write-back, write-around or pass-through; the'
                          ' limit is its maximum number of blocks in the cache'
                          ' (default: an equal part of what the limits of'
                          ' other volumes leave); for sequential and admission'
                          ' see --sequential-cutoff and --admission. May be'
                          ' repeated.'),
        *_RULES,
        _DISCARD_DIRTY)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        args = parsed_args
        for volume in args.volume:
            if not (volume.origin.startswith(server.ADDRESSES)
                    or os.path.exists(volume.origin)):
                raise exceptions.InvalidInput(
                    f'--volume {volume.name}: there is no file or device'
                    f' {volume.origin}; check the path, and the names of the'
                    ' options after it.')
        server.become(server.Server(
            device=args.device, socket=args.socket, control=args.control,
            state=args.state, capacity=args.capacity,
            volumes=tuple(args.volume), is_new=args.is_new, evict=args.evict,
            admission=args.admission, sequential=args.sequential_cutoff,
            dirty_max=args.dirty_max,
            dirty_age=args.dirty_age, discard_dirty=args.discard_dirty,
            samples=args.samples, socket_group=groups.number(
                '--socket-group', args.socket_group)))


_CONTROL = cli.Argument(
    '--control', required=True, metavar='PATH',
    help='Socket that "diffcache ssdcache serve" was given.')
_NAME = cli.Argument('name', metavar='NAME', help='Volume.')
_ORIGIN = (
    'path of a file or block device, nbd://HOST[:PORT]/EXPORT,'
    ' nbd+unix:///EXPORT?socket=PATH, or json: and the options of a block'
    ' device of QEMU, which qemu-storage-daemon opens.')


class _Control(quick.ShowOne):
    """Base of the commands that a running cache executes.

    :cvar COMMAND: what the cache calls it
    """

    COMMAND: str
    cells = {'device': cells.Line, 'volumes': _Volumes}
    arguments: cli.Arguments = (_CONTROL,)

    def request(self, args: argparse.Namespace) -> dict[str, typing.Any]:
        """Return what the cache is sent with the command."""
        return {}

    def fields(self, args: argparse.Namespace) -> dict[str, typing.Any]:
        status = control.send(args.control, self.COMMAND,
                              **self.request(args))
        return {name: status[name] for name in ('device', 'volumes')}


class _VolumeControl(_Control):
    """Base of the commands that concern one volume."""

    arguments: cli.Arguments = (_NAME,)

    def request(self, args: argparse.Namespace) -> dict[str, typing.Any]:
        return {'volume': args.name}


class Status(_Control):
    """Show the state of a running cache and of its volumes."""

    examples = ('--control cache.sock',)
    COMMAND = 'status'


class Epoch(_Control):
    """End an epoch of all volumes, and begin another.

    "curve" shows what was requested in the one that ended. The agent of a
    compute host does this by itself.
    """

    examples = ('--control cache.sock',)
    COMMAND = 'epoch'


class _Steps(columns.FormattableColumn):
    """Sizes where the hits of a curve become more."""

    def human_readable(self) -> str:
        shown = self._value[::-(-len(self._value) // _SHOWN) or 1]
        return '\n'.join(f'{size:>12} blocks {hits:>12} hits'
                         for size, hits in shown)


class Curve(quick.ShowOne):
    """Show what was requested of a volume in its last epoch.

    References to blocks that are cached if there is room, how many different
    blocks they are, the hits of caches of all sizes, and mean latencies.
    """

    examples = ('--control cache.sock database',)
    cells = {'hits': _Steps}
    arguments = (_CONTROL, _NAME)

    def fields(self, args: argparse.Namespace) -> dict[str, typing.Any]:
        found = control.curve(args.control, args.name)
        if found is None:
            raise exceptions.NotFound(
                f'No epoch of volume {args.name} has ended; use'
                ' "diffcache ssdcache epoch".')
        return found


def _settings(**defaults: typing.Any) -> list[cli.Argument]:
    """Return the options of a volume that can be changed while it is in use.

    :param defaults: of a new volume; what has none is required
    """
    def option(name: str, text: str, **more: typing.Any) -> cli.Argument:
        if name in defaults:
            more['default'] = defaults[name]
            text += ' (default: %(default)s)'
        return cli.Argument(
            f'--{name}', help=f'{text}.',
            required=bool(defaults) and name not in defaults, **more)

    return [
        option('limit', 'Maximum cache size of the volume, such as 2GiB, or a'
               ' number of blocks of 4 KiB', metavar='BLOCKS',
               type=_BLOCKS),
        option('mode', 'What the cache does with reads and writes',
               choices=choices.MODES),
        option('sequential-cutoff', 'Do not cache what a request adds after'
               ' this many bytes in sequence; 0 for never', metavar='SIZE',
               type=_BYTES),
        option('admission', 'Cache a block at the N-th reference to it; 0 for'
               ' the number that the cache was started with', metavar='N',
               type=int, choices=range(choices.MAX_ADMISSION + 1)),
        cli.Argument('--rates', metavar='NAME=NUMBER,...', type=_rates,
                     help='Limits of what the volume does per second, named as'
                          ' those of a volume type, such as'
                          ' total_iops_sec=500,total_iops_sec_max=2000; none'
                          ' for no limits.')]


def _rates(text: str) -> rates.Rates:
    """Parse limits.

    :raises ArgumentTypeError: they cannot be enforced
    """
    specs = {} if text == 'none' else dict(
        pair.partition('=')[::2] for pair in text.split(','))
    try:
        for name in specs.keys() - set(rates.NAMES):
            raise exceptions.InvalidInput(
                f'there is no limit {name!r}; give NAME=NUMBER, such as'
                f' total_iops_sec=500')
        return rates.parse(specs)
    except exceptions.InvalidInput as error:
        raise argparse.ArgumentTypeError(f'{text!r}: {error}') from error


def _given(args: argparse.Namespace) -> dict[str, typing.Any]:
    """Return the settings that the options are, as the cache calls them."""
    found = {'limit': args.limit, 'mode': args.mode,
             'sequential': args.sequential_cutoff,
             'admission': args.admission, 'rates': args.rates}
    return {name: value for name, value in found.items()
            if value is not None}


class Attach(_VolumeControl):
    """Serve one more volume, until it is detached.

    Its export, shown by its name, is served again after each start of the
    cache. A volume that is attached with the same origin gets the mode, the
    limit and the other options.
    """

    examples = (
        '--control cache.sock database nbd://10.0.0.5/database --limit '
        '10GiB',)
    COMMAND = 'attach'

    arguments = (
        cli.Argument('origin', metavar='ORIGIN',
                     help=f'What the volume is: {_ORIGIN}'),
        *_settings(**{'mode': choices.MODES[0], 'sequential-cutoff': 0,
                      'admission': 0}))

    def request(self, args: argparse.Namespace) -> dict[str, typing.Any]:
        wanted = {**super().request(args), **_given(args),
                  'origin': server.absolute(args.origin)}
        if not args.admission:
            del wanted['admission']
        return wanted


class Recover(_VolumeControl):
    """Write the dirty blocks of a held volume back.

    The volume stays held, without dirty blocks, until it is attached or
    detached. After a start of the host, the cache of a compute host holds
    volumes that were in write-back: it does not know their present origins,
    nor whether another host has written to them since. Recover a volume only
    if no other host has.
    """

    examples = ('--control cache.sock database /dev/vg/database',)
    COMMAND = 'recover'

    arguments = (
        cli.Argument('origin', metavar='ORIGIN',
                     help='Present origin of the volume, as for "diffcache'
                          ' ssdcache attach".'),)

    def request(self, args: argparse.Namespace) -> dict[str, typing.Any]:
        return {**super().request(args),
                'origin': server.absolute(args.origin)}


class Resize(_VolumeControl):
    """Give a volume the size that its origin has now, after it grew.

    Clients see it when they connect again. What is cached stays.
    """

    examples = ('--control cache.sock database',)
    COMMAND = 'resize'


class Disconnect(_VolumeControl):
    """End the connections of a volume's clients.

    They see the size of the volume when they connect again. QEMU does that by
    itself, and repeats its requests if it has a ``reconnect-delay``; without
    one, requests that are under way fail.
    """

    examples = ('--control cache.sock database',)
    COMMAND = 'disconnect'


class VhostOpen(_VolumeControl):
    """Serve a volume by vhost-user, too, until it is detached.

    The state of the volume shows the socket, in ``vhost``. It is for a guest
    whose memory is shared, as the chardev of a ``vhost-user-blk-pci`` device
    of QEMU with ``reconnect=1``, and takes one connection at a time.
    """

    examples = ('--control cache.sock database',)
    COMMAND = 'vhost-open'


class VhostClose(_VolumeControl):
    """Stop serving a volume by vhost-user; a connected guest gets no answer.

    Clients of its export are served as before.
    """

    examples = ('--control cache.sock database',)
    COMMAND = 'vhost-close'


class Set(_VolumeControl):
    """Change settings of a volume while it is in use."""

    examples = ('--control cache.sock database --limit 20GiB',)
    COMMAND = 'set'

    arguments = _settings()

    def request(self, args: argparse.Namespace) -> dict[str, typing.Any]:
        return {**super().request(args), **_given(args)}


class Flush(_VolumeControl):
    """Write the dirty blocks of a volume back, and make its writes durable."""

    examples = ('--control cache.sock database',)
    COMMAND = 'flush'


class AcceptLoss(_VolumeControl):
    """Accept that a volume's origin lost what was written to it.

    The state of the volume shows what is lost, in ``losses``. Flushes of the
    volume fail until its client has written that again, or until this. Accept
    it only if the client can do without, for example after its file systems
    were checked: it only knows that a flush failed.
    """

    examples = ('--control cache.sock database',)
    COMMAND = 'accept-loss'


class GuestEnded(_VolumeControl):
    """Forget what was lost, because the guest has ended.

    A guest that starts again expects to have lost what it did not flush.
    Nova's driver does this by itself.
    """

    examples = ('--control cache.sock database',)
    COMMAND = 'guest-ended'


class _Discard(_VolumeControl):
    """Base of the commands after which a volume has no cached blocks."""

    arguments = (_DISCARD_DIRTY,)

    def request(self, args: argparse.Namespace) -> dict[str, typing.Any]:
        discard = {'discard_dirty': True} if args.discard_dirty else {}
        return {**super().request(args), **discard}


class Invalidate(_Discard):
    """Remove the blocks of a volume from the cache, written back before."""

    examples = ('--control cache.sock database',)
    COMMAND = 'invalidate'


class Detach(_Discard):
    """Write a volume's dirty blocks back, flush it, and end its export.

    Clients that are still connected are served without the cache.
    """

    examples = ('--control cache.sock database',)
    COMMAND = 'detach'
