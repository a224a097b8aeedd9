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
"""The command line of the program that serves a cache."""

import collections.abc
import dataclasses
import fcntl
import json
import os
import stat

from diffcache_openstack.cached_volumes import choices
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import programs

PROGRAM = 'diffcache-ssdcached'
OPTIONS = ('mode', 'limit', 'sequential', 'admission')
# Of each volume: some 0.5 MB of memory.
SAMPLES = 8192
# In place of a number of references: no block is cached any more.
NEVER = choices.MAX_ADMISSION + 1
# Origins that are not files begin with one of these.
ADDRESSES = ('nbd://', 'nbd+unix://', 'json:')
# What an address of a unix socket has room for.
MAX_SOCKET_PATH = 107


class ServerError(exceptions.InvalidInput):
    """The cache cannot be served; the message says what to change."""


class DeviceBusy(exceptions.Busy):
    """Another process serves the device."""


@dataclasses.dataclass(frozen=True)
class Volume:
    """A volume to serve.

    :ivar origin: path of a file or a block device, address of an export of
        NBD, or ``json:`` and QEMU's options of a block device
    :ivar mode: one of
        :data:`~diffcache_openstack.cached_volumes.choices.MODES`
    :ivar limit: the most blocks that it has; none for an equal part of what
        the limits of others leave
    :ivar sequential: requests are not cached after this many bytes in
        sequence; 0 for never, none for what the server has
    :ivar admission: a block is cached at this reference to it; none for what
        the server has
    """

    name: str
    origin: str
    mode: str = choices.MODES[0]
    limit: int | None = None
    sequential: int | None = None
    admission: int | None = None


@dataclasses.dataclass(frozen=True)
class Server:
    """What to serve, and where.

    :ivar device: path of the file or block device with the cached blocks
    :ivar socket: of NBD
    :ivar control: socket for commands
    :ivar state: directory where it is noted that the device failed, or has
        blocks which a volume lacks
    :ivar capacity: blocks of the cache
    :ivar volumes: those that this process serves; others are attached while
        it runs
    :ivar is_new: whether the device is made an empty cache
    :ivar evict: which block leaves a full partition
    :ivar admission: a block is cached at this reference to it, of volumes
        that do not give one
    :ivar sequential: what volumes have that do not give it
    :ivar dirty_max: the most dirty blocks of a volume, a number or a
        percentage of its limit
    :ivar dirty_age: seconds after which dirty blocks are written back
    :ivar discard_dirty: whether dirty blocks are lost that cannot be kept
    :ivar holds: whether volumes in write-back that were attached while it ran
        are held after a start of the host, until they are recovered
    :ivar samples: the most blocks of each volume that are followed for its
        curve; 0 for none
    :ivar socket_group: number of the group that may connect to the socket of
        NBD, besides this user
    """

    device: str
    socket: str
    control: str
    state: str
    capacity: int
    volumes: tuple[Volume, ...]
    is_new: bool = False
    evict: str = 'lru'
    admission: int = 1
    sequential: int = 0
    dirty_max: str = '50%'
    dirty_age: int = 30
    discard_dirty: bool = False
    holds: bool = False
    samples: int = SAMPLES
    socket_group: int | None = None


def parse_dirty_max(text: str) -> str:
    """Check a number of blocks, or a percentage, and return it.

    :raises ServerError: it is neither
    """
    number, percent, rest = text.partition('%')
    most = 100 if percent else choices.MAX_BLOCKS
    if rest or not (number.isascii() and number.isdigit()
                    and int(number) <= most):
        raise ServerError(f'{text!r} is neither a number of blocks nor a'
                          ' percentage 0%..100%')
    return text


def parse_volume(text: str) -> Volume:
    """Parse NAME=ORIGIN and options, such as ``mode=MODE``, after commas.

    :raises ServerError: it is not of this form
    """
    name, equals, rest = text.partition('=')
    options: dict[str, str] = {}
    while True:
        origin, comma, option = rest.rpartition(',')
        key, _, value = option.partition('=')
        if not comma or key not in OPTIONS or key in options:
            break
        options[key] = value
        rest = origin
    mode = options.get('mode', choices.MODES[0])
    if not (name and equals and rest):
        raise ServerError(f'{text!r} is not NAME=ORIGIN[,mode=MODE]'
                          '[,limit=BLOCKS][,sequential=BYTES]'
                          '[,admission=N]')
    if mode not in choices.MODES:
        raise ServerError(f'volume {name}: mode {mode!r} is none of'
                          f' {", ".join(choices.MODES)}')
    numbers: dict[str, int] = {}
    for option, most, unit in (
            ('limit', choices.MAX_BLOCKS, 'blocks'),
            ('sequential', choices.MAX_BYTES, 'bytes'),
            ('admission', choices.MAX_ADMISSION, 'references')):
        if option not in options:
            continue
        text = options[option]
        if not (text.isascii() and text.isdigit() and int(text) <= most):
            raise ServerError(f'volume {name}: {option} {text!r} is not a'
                              f' number of {unit}')
        numbers[option] = int(text)
    return Volume(name, rest, mode, **numbers)


def absolute(origin: str) -> str:
    """Return the name of an origin as any process may use it."""
    if origin.startswith(ADDRESSES):
        return origin
    return os.path.abspath(origin)


def limits(volumes: collections.abc.Sequence[Volume], capacity: int
           ) -> list[int]:
    """Return the limit of each volume.

    :raises ServerError: they add up to more than the capacity
    """
    given = sum(volume.limit or 0 for volume in volumes)
    if given > capacity:
        raise ServerError(f'limits add up to {given} blocks, but the cache has'
                          f' {capacity}; lower some')
    without = sum(volume.limit is None for volume in volumes)
    share = (capacity - given) // max(without, 1)
    return [share if volume.limit is None else volume.limit
            for volume in volumes]


def command(server: Server, ready_fd: int) -> list[str]:
    """Return the command line that serves a cache.

    :param ready_fd: descriptor that gets a line when clients can connect
    :raises ServerError: the cache cannot be served like this
    :raises ProgramNotFound: the program is not installed
    """
    program = programs.find(PROGRAM)
    for path in (server.socket, server.control):
        if len(os.fsencode(path)) > MAX_SOCKET_PATH:
            raise ServerError(f'{path}: longer than the {MAX_SOCKET_PATH}'
                              ' bytes of a socket\'s path')
    volumes = zip(server.volumes, limits(server.volumes, server.capacity))
    return [program, 'serve', json.dumps({
        'device': os.path.abspath(server.device),
        'capacity': server.capacity,
        'format': server.is_new,
        'cache': {
            'evict': server.evict,
            'admission': server.admission,
            'dirty_max': server.dirty_max,
            'dirty_age': server.dirty_age,
            'samples': server.samples,
            'discard_dirty': server.discard_dirty},
        'hold': server.holds,
        'state': os.path.abspath(server.state),
        'volumes': [{
            'name': volume.name, 'origin': absolute(volume.origin),
            'mode': volume.mode, 'limit': limit,
            'sequential': server.sequential if volume.sequential is None
            else volume.sequential, 'admission': volume.admission or 0}
            for volume, limit in volumes],
        'control': os.path.abspath(server.control),
        'socket': os.path.abspath(server.socket),
        'socket_group': server.socket_group,
        'ready_fd': ready_fd,
    })]


def lock(server: Server) -> int:
    """Lock the device for this process and what it becomes.

    :returns: a descriptor, which is inherited
    :raises DeviceBusy: another process has it
    :raises ServerError: it cannot be opened
    """
    flags = os.O_RDWR | (os.O_CREAT if server.is_new else 0)
    try:
        descriptor = os.open(server.device, flags | os.O_CLOEXEC, 0o600)
    except OSError as error:
        hint = '' if server.is_new else '; --format creates a file'
        raise ServerError(f'{server.device}: {error.strerror}{hint}')
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise DeviceBusy(f'{server.device}: another process serves it; end'
                         ' that one first')
    os.set_inheritable(descriptor, True)
    return descriptor


def default_state() -> str:
    """Return where failures of devices are noted, for this user."""
    if os.geteuid() == 0:
        return '/var/lib/diffcache/ssdcache'
    home = os.environ.get('XDG_STATE_HOME') \
        or os.path.expanduser('~/.local/state')
    return os.path.join(home, 'diffcache', 'ssdcache')


def make_state(path: str) -> None:
    """Make the directory where failures are noted, if it is not there.

    :raises ServerError: it cannot be made
    """
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    except OSError as error:
        raise ServerError(f'{path}: {error.strerror}; name another directory'
                          f' with --state')


def remove_stale(path: str) -> None:
    """Remove the socket of an earlier process; the device is locked."""
    try:
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            os.unlink(path)
    except FileNotFoundError:
        pass


def become(server: Server) -> None:
    """Replace this process by the one that serves a cache.

    :raises ServerError: the cache cannot be served like this
    :raises DeviceBusy: another process serves the device
    """
    ready_fd = os.dup(1)
    os.set_inheritable(ready_fd, True)
    line = command(server, ready_fd)
    make_state(server.state)
    lock(server)
    remove_stale(server.socket)
    os.execv(line[0], line)
