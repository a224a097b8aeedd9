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
"""The commands of tools/openstack."""

import argparse
import fcntl
import json
import os
import pathlib
import subprocess
import sys

from onemachine import cloud
from onemachine import errors
from onemachine import layout
from onemachine import place
from onemachine import processes
from onemachine import releases
from onemachine.services import suite
from onemachine import steps
from onemachine import tempest
from onemachine import trial


WAN = 100.0


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parsed = argparse.ArgumentParser(
        prog='tools/openstack',
        description='A real OpenStack on this machine, for tests.')
    parsed.add_argument('--state', type=pathlib.Path, required=True,
                        metavar='DIR', help='folder for all of it')
    commands = parsed.add_subparsers(dest='command', required=True)
    up = commands.add_parser('up', help='bring up what is not up')
    up.add_argument('--computes', type=_number, metavar='N',
                    help='compute hosts of the site (default: as before,'
                         ' or 1)')
    up.add_argument('--series', choices=releases.ALL,
                    help='of the services of OpenStack; a later one than'
                         ' before upgrades them (default: as before, or'
                         f' {releases.LATEST})')
    up.add_argument('--caching', choices=suite.KINDS,
                    help='what caches images besides Nova: this suite, or'
                         " Glance's own cache at the site (default: as"
                         ' before, or diffcache)')
    up.add_argument('--volumes', action='store_true',
                    help='with Cinder, whose volumes are files (default: as'
                         ' before, or without)')
    up.add_argument('--dashboard', action='store_true',
                    help='with Horizon and the panels of this suite'
                         ' (default: as before, or without)')
    up.add_argument('--wan', type=float, metavar='MBITS',
                    help='what the link to the site carries each way, in'
                         f' Mbit/s (default: as before, or {WAN:.0f})')
    down = commands.add_parser('down', help='end all of it')
    down.add_argument('--purge', action='store_true',
                      help='remove what services keep, too')
    commands.add_parser('status', help='what runs')
    commands.add_parser('env', help='variables for OpenStack clients')
    restart = commands.add_parser('restart', help='restart processes')
    restart.add_argument('names', nargs='+', metavar='NAME',
                         help='as shown by status')
    stop = commands.add_parser('stop', help='stop processes')
    stop.add_argument('names', nargs='+', metavar='NAME')
    commands.add_parser(
        'wan', help='bytes that crossed the link to the site so far')
    commands.add_parser(
        'tempest', help="write Tempest's configuration; prints its folder")
    inside = commands.add_parser(
        'shell', help='run a command at the centre, the site or on a host')
    inside.add_argument('place')
    inside.add_argument('words', nargs=argparse.REMAINDER)
    return parsed


def _number(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 9:
        raise argparse.ArgumentTypeError(
            f'"{text}" is no number of hosts from 1 to 9')
    return int(text)


def _chosen(options: argparse.Namespace, name: str, default):
    """Return what was asked for, else what was asked for before."""
    if getattr(options, name, None):
        return getattr(options, name)
    try:
        text = (options.state / 'layout.json').read_text()
    except FileNotFoundError:
        return default
    return json.loads(text).get(name, default)


class Commands:
    """What each command does; methods are named as the commands are."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        where = layout.Layout(options.state,
                              _chosen(options, 'computes', 1),
                              _chosen(options, 'volumes', False),
                              _chosen(options, 'dashboard', False),
                              releases.ALL[_chosen(
                                  options, 'series', releases.LATEST)])
        self._given = place.Place(
            where, processes.Processes(where), steps.Progress())
        caching = _chosen(options, 'caching', suite.DIFFCACHE)
        self._cloud = cloud.Cloud(
            self._given, suite.Caching(caching),
            _chosen(options, 'wan', WAN))

    def up(self) -> int:
        with self._locked():
            self._refuse_older()
            self._cloud.write_environment()
            self._cloud.up()
        if self._given.where.dashboard:
            self._given.progress.say(
                f'Horizon is at {self._given.where.url("horizon")}; the'
                ' password of admin is in tools/openstack env')
        self._given.progress.say(
            'ready: eval "$(tools/openstack env)" and use openstack')
        return 0

    def _refuse_older(self) -> None:
        """Bring no older services up with the databases of newer ones.

        :raises OpenStackError: that was asked for
        """
        where = self._given.where
        path = where.state / 'layout.json'
        if not path.exists() or not (where.data / 'schemas').exists():
            return
        before = json.loads(path.read_text()).get('series', releases.LATEST)
        if where.series.name < before:
            raise errors.OpenStackError(
                f'what is in {where.state} is {before}, and'
                f' {where.series.name} is older: run tools/openstack down'
                ' --purge first')

    def down(self) -> int:
        with self._locked():
            self._cloud.down()
            if self._options.purge:
                self._cloud.purge()
        self._given.progress.say('all processes have ended')
        return 0

    def status(self) -> int:
        names = self._given.processes.names()
        for name in sorted(names):
            pid = self._given.processes.pid(name)
            print(f'{name:24} {f"runs, pid {pid}" if pid else "has ended"}')
        if not names:
            print('nothing was started')
        ended = any(self._given.processes.pid(name) is None
                    for name in names)
        return 1 if ended or not names else 0

    def env(self) -> int:
        print((self._options.state / 'openrc').read_text(), end='')
        return 0

    def restart(self) -> int:
        with self._locked():
            self._given.processes.stop_all(self._named())
            self._cloud.up()
        return 0

    def stop(self) -> int:
        with self._locked():
            self._given.processes.stop_all(self._named())
        return 0

    def _named(self):
        """Return the processes that were named, also those that were stopped.

        :raises OpenStackError: there never was one of a name
        """
        unknown = [name for name in self._options.names
                   if not self._given.processes.log(name).exists()]
        if unknown:
            raise errors.OpenStackError(
                f'no process is called {", ".join(unknown)}: see'
                f' tools/openstack status')
        return self._options.names

    def wan(self) -> int:
        print(self._cloud.network.wan_bytes()['to_site'])
        return 0

    def tempest(self) -> int:
        print(tempest.Tempest(trial.Trial(self._options.state)).configure())
        return 0

    def shell(self) -> int:
        places = ('centre', 'site', 'machine', *self._given.where.hosts)
        if self._options.place not in places:
            raise errors.OpenStackError(
                f'there is no place {self._options.place}: choose one of'
                f' {", ".join(places)}')
        words = self._options.words or ['bash']
        return subprocess.run(
            [*self._given.processes.enter(self._options.place), *words],
            check=False).returncode

    def _locked(self):
        """Lock the state: one command at a time may change it."""
        self._options.state.mkdir(parents=True, exist_ok=True)
        lock = open(self._options.state / 'lock', 'w')
        os.set_inheritable(lock.fileno(), False)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return lock


def main() -> int:
    options = parser().parse_args()
    options.state = options.state.resolve()
    try:
        return getattr(Commands(options), options.command)()
    except errors.OpenStackError as error:
        print(f'tools/openstack: {error}', file=sys.stderr)
        return 1
    except FileNotFoundError as error:
        print(f'tools/openstack: {error.filename} is missing: run'
              ' tools/openstack up', file=sys.stderr)
        return 1
