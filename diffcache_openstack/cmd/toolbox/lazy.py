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
"""``diffcache lazy``: boots from an image that is still arriving."""

import argparse
import contextlib
import dataclasses
import grp
import json
import os
import pathlib
import sys
import typing

from cliff import columns

from diffcache_openstack.blocks import operands
from diffcache_openstack.cmd.toolbox import quick
from diffcache_openstack.common.commands import cli
from diffcache_openstack.common import control_socket
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import programs
from diffcache_openstack.prefetch import replay
from diffcache_openstack.prefetch import scenarios


_CHUNKS = cli.whole(1, scenarios.MAX_CHUNKS)
# For an answer of diffcached, which asks a process for each image.
_ANSWER_SECONDS = 10.0


class Replay(quick.ShowOne):
    """Simulate boots of many instances that share the links of a site.

    Runs in virtual time with the prefetching policy of the services: needs no
    network, and the same scenario gives the same result.
    """

    examples = ('scenario.json --mode later',)
    arguments = (
        cli.Argument('scenario', metavar='SCENARIO.json',
                     help='Image, links and reads of each instance.'),
        cli.Argument('--mode', required=True, choices=replay.MODES,
                     help='How chunks reach the instances. local: all are'
                          ' present; on-demand: each when it is read; first:'
                          ' prefetched by hints, without a profile; later: the'
                          ' same, with the profile of the scenario or of a'
                          ' first run; broadcast: the whole image before the'
                          ' boot; oracle: requested at the start, in the order'
                          ' in which they will be read; refer: as first, and'
                          ' busy sources refer requests to instances that'
                          ' requested the chunk before.'),
        cli.Argument('--events', action='store_true',
                     help='Show every access to a chunk, and when chunks were'
                          ' requested.'),
        cli.Argument('--in-flight', type=_CHUNKS, metavar='N',
                     help='Let each instance prefetch at most N chunks at once'
                          ' (default: 3).'),
        cli.Argument('--read-ahead', metavar='N',
                     type=cli.whole(0, scenarios.MAX_CHUNKS),
                     help='Read at most N chunks ahead where an instance reads'
                          ' in sequence; 0: none (default: 2).'),
        cli.Argument('--fan-out', type=_CHUNKS, default=2, metavar='N',
                     help='In mode refer, let each instance send a chunk to at'
                          ' most N others (default: 2).'))

    def fields(self, args: argparse.Namespace) -> dict[str, typing.Any]:
        scenario = dataclasses.replace(
            scenarios.load(args.scenario), in_flight=args.in_flight,
            read_ahead=args.read_ahead, fan_out=args.fan_out)
        return replay.replay(scenario, args.mode, args.events)


class NotServed(exceptions.InvalidInput):
    """No daemon answers for a state folder, or at a socket."""


_SECONDS = cli.seconds(0, 1e9)


def _hydrate(text: str) -> typing.Any:
    """Parse when to hydrate, as the daemon's configuration has it."""
    if text in ('none', 'idle'):
        return text
    try:
        seconds = _SECONDS(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f'{text!r} is neither none nor idle nor a number of seconds')
    if seconds == 0:
        raise argparse.ArgumentTypeError('a deadline is more than 0 seconds')
    return {'seconds': seconds}


# Options of serve with their least and largest values.
# Settings of the daemon that options of the same name override.
_TUNING = ('threshold', 'workers', 'restart_backoff')


def _group(name: str) -> int:
    """Return the number of a group."""
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError as error:
        raise argparse.ArgumentTypeError(
            f'there is no group {name}') from error


class Serve(quick.Command):
    """Serve an image or a version over FUSE while it is still arriving.

    Mounts a directory with one read-only file, named by the image's content
    ID, and prints one line of JSON when the file can be read. SIGTERM unmounts
    it.
    """

    examples = (
        'debian-12.raw --manifest debian-12.manifest --mount /mnt/lazy '
        '--state /var/tmp/lazy',
        '114926f1 --store file:///srv/versions --mount /mnt/lazy --state '
        '/var/tmp/lazy --hydrate 1800')
    arguments = (
        cli.Argument('image', metavar='IMAGE',
                     help='Raw image: a path, or a URL of an HTTP server that'
                          ' supports Range requests. With --store: the ID of a'
                          ' version, or its first digits.'),
        cli.Argument('--manifest', metavar='FILE',
                     help='Manifest of the image (diffcache image manifest,'
                          ' diffcache version manifest). Every leaf is'
                          ' verified against it before it is served. May be'
                          ' omitted for a version whose manifest the store'
                          ' keeps.'),
        cli.Argument('--store', metavar='URI',
                     help='Serve a version of this store (file:///directory).'
                          ' It can be read to the end even if it is deleted or'
                          ' its store is pruned meanwhile.'),
        cli.Argument('--key-file', metavar='FILE', type=pathlib.Path,
                     help='File with the key of the store.'),
        cli.Argument('--base', metavar='IMAGE', type=pathlib.Path,
                     help='Base image of the version, if it has one.'),
        cli.Argument('--mount', required=True, metavar='DIR',
                     help='Existing directory to mount at.'),
        cli.Argument('--state', required=True, metavar='DIR',
                     help='Directory for what was fetched; a later run'
                          ' continues with it.'),
        cli.Argument('--group', type=_group, metavar='GROUP',
                     help='Let members of GROUP read the image, besides this'
                          ' user and root (default: the group of this'
                          ' process).'),
        cli.Argument('--no-prefetch', dest='prefetch', action='store_false',
                     help='Fetch chunks only when they are read; do not'
                          ' prefetch by the profile or read ahead.'),
        cli.Argument('--profile', metavar='FILE',
                     help='Profile of earlier boots, such as the output of'
                          ' "diffcache lazy replay": a JSON object with'
                          ' "format" 1, "chunk" 262144 and a list of [chunk,'
                          ' count, mean_us] as "profile".'),
        cli.Argument('--threshold', type=cli.real(0.001, 1e6), metavar='N',
                     help='Prefetch chunks of the profile that at least N'
                          ' instances read; below 1: that part of those that'
                          ' read the most frequent chunk (default: 0.1).'),
        cli.Argument('--record', metavar='FILE',
                     help='On exit, write what was read and when to FILE, as'
                          ' a scenario for "diffcache lazy replay" with one'
                          ' instance for each open handle. Reads bypass the'
                          ' page cache.'),
        cli.Argument('--hydrate', type=_hydrate, default='none',
                     metavar='none|idle|SECONDS',
                     help='When to fetch the rest of the image: never, while'
                          ' no read waits, or within SECONDS (default:'
                          ' none).'),
        cli.Argument('--rate', type=cli.rate(), metavar='RATE',
                     help='Limit how fast the image is hydrated, such as'
                          ' 20MBps (a bare number: bytes per second).'),
        cli.Argument('--wait', type=_SECONDS, default=30.0, metavar='SECONDS',
                     help='Fail a read with EIO when no source serves it'
                          ' within SECONDS (default: 30). Later reads are'
                          ' attempted again.'),
        cli.Argument('--workers', type=cli.whole(1, 64), metavar='N',
                     help='Answer at most N reads at once (default: 64).'),
        cli.Argument('--restart-backoff', type=cli.real(0.01, 300),
                     metavar='SECONDS',
                     help='Maximum delay before the worker, the process that'
                          ' answers reads, is restarted if it ends repeatedly'
                          ' (default: 5).'),
        cli.Argument('--no-resend', dest='resend', action='store_false',
                     help='After a process of the daemon was killed, answer'
                          " pending reads from the daemon's own copies of"
                          ' them. By default the kernel sends them again,'
                          ' where it can (Linux 6.9).'))

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        args = parsed_args
        _check_mount(args.mount)
        for role in ('manifest', 'profile'):
            if path := getattr(args, role):
                operands.check_readable(path, role)
        config = {
            'manifest': args.manifest and os.path.abspath(args.manifest),
            'mount': os.path.abspath(args.mount),
            'state': os.path.abspath(args.state), 'hydrate': args.hydrate,
            'rate': args.rate, 'wait': args.wait, 'group': args.group,
            'prefetch': args.prefetch, 'resend': args.resend,
            'tuning': {name: value for name in _TUNING
                       if (value := getattr(args, name)) is not None},
            'profile': args.profile and os.path.abspath(args.profile),
            'record': args.record and os.path.abspath(args.record)}
        if args.store:
            # Loads the version store, which images do not need.
            from diffcache_openstack.cmd.toolbox import lazy_version
            args.store_config = None
            lazy_version.configure(args, config)
        else:
            _configure_image(args, config)
        daemon = programs.find('diffcached')
        sys.stdout.flush()
        os.execv(daemon, [daemon, 'serve', json.dumps(config)])


def _reason(error: Exception) -> str:
    """Return what an error says, without the number of the system's errors."""
    return getattr(error, 'strerror', None) or str(error)


def _check_mount(path: str) -> None:
    """Check that there is something to mount at.

    What a killed keeper has left there cannot be looked at, and is replaced.

    :raises InvalidInput: there is nothing
    """
    with contextlib.suppress(OSError):
        try:
            os.stat(path)
        except FileNotFoundError as error:
            raise exceptions.InvalidInput(
                f'--mount: there is no directory {path}; create it.'
            ) from error


def _configure_image(args: argparse.Namespace,
                     config: dict[str, typing.Any]) -> None:
    """Let diffcached's configuration name an image as the source.

    :raises InvalidInput: an option is missing, or is one for versions
    """
    if args.manifest is None:
        raise exceptions.InvalidInput(
            'An image needs its manifest: create one with "diffcache image'
            ' manifest", and name it with --manifest.')
    if args.base or args.key_file:
        raise exceptions.InvalidInput(
            '--base and --key-file are for versions: name their store with'
            ' --store.')
    image = args.image
    if not image.startswith(('http://', 'https://')):
        if not os.path.exists(args.state):
            # What an earlier run kept is served without the image.
            operands.check_disk(image, 'image')
        image = os.path.abspath(image)
    config['sources'] = [image]


def _read_status(state: str) -> dict[str, typing.Any]:
    """Return what the daemon of a state folder answers."""
    try:
        # A socket's path is at most 107 bytes long; a directory's is not.
        folder = os.open(state, os.O_PATH | os.O_DIRECTORY)
    except OSError as error:
        raise NotServed(
            f'Cannot open the state directory {state} ({error.strerror}): name'
            f' the --state of a running diffcache lazy serve.') from error
    try:
        return control_socket.ask(f'/proc/self/fd/{folder}/socket',
                                  {'command': 'status'}, _ANSWER_SECONDS)
    except (OSError, ValueError, control_socket.CommandFailed) as error:
        raise NotServed(
            f'No diffcached answers for {state} ({_reason(error)}): start it'
            f' with diffcache lazy serve --state {state}') from error
    finally:
        os.close(folder)


class Hydration(columns.FormattableColumn):
    """How the rest of an image is fetched; in tables as a sentence."""

    def human_readable(self) -> str:
        known = self._value
        text = f'{known["mode"]}, {known["remaining_bytes"]} bytes left'
        if known['rate'] is not None:
            text += f', at {known["rate"]} bytes/s at most'
        if known['deadline_s'] is not None:
            kept = {None: 'maybe kept', True: 'kept', False: 'not kept'}
            text += f', by {known["deadline_s"]} s: {kept[known["kept"]]}'
        if known['earliest_s'] is not None:
            text += f', whole after {known["earliest_s"]} s at the earliest'
        return text


class Sources(columns.FormattableColumn):
    """Where chunks came from; in tables a line for each source."""

    def human_readable(self) -> str:
        return '\n'.join(
            f'{source["url"]}: {source["bytes"]} bytes in'
            f' {source["requests"]} requests, {source["failures"]} failures'
            for source in self._value)


class Status(quick.ShowOne):
    """Show what diffcache lazy serve has served and fetched."""

    examples = ('--state /var/tmp/lazy',)
    cells = {'hydration': Hydration, 'sources': Sources}
    arguments = (
        cli.Argument('--state', required=True, metavar='DIR',
                     help='State directory of a running daemon.'),)

    def fields(self, args: argparse.Namespace) -> dict[str, typing.Any]:
        return _read_status(args.state)


class List(quick.Lister):
    """List the images that the diffcached of this host serves."""

    examples = ('/var/lib/diffcache/lazy/diffcached.sock',)
    arguments = (
        cli.Argument('socket', metavar='SOCKET',
                     help='Control socket of diffcached ([lazy] socket).'),)

    _COLUMNS = ('content_id', 'path', 'complete', 'present', 'data_chunks',
                'instances', 'error')

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        try:
            images = control_socket.ask(
                parsed_args.socket, {'command': 'list'},
                _ANSWER_SECONDS)['images']
        except (OSError, ValueError, KeyError,
                control_socket.CommandFailed) as error:
            raise NotServed(
                f'No diffcached answers at {parsed_args.socket}'
                f' ({_reason(error)}):'
                f' check the service diffcache-lazy, and that this user may'
                f' connect ([lazy] socket_group).') from error
        return self._COLUMNS, [tuple(map(image.get, self._COLUMNS))
                               for image in images]
