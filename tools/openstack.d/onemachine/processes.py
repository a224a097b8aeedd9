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
"""Daemons without an init system: started, found again, ended by pid.

What was started is written down with the start time of the process, which
together with the pid names a process for as long as the machine runs.
"""

import collections.abc
import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

from onemachine import errors
from onemachine import layout
from onemachine import shell

_STOP_SECONDS = 20
_LOG_LINES = 40
_POLL = 0.1


@dataclasses.dataclass(frozen=True)
class Daemon:
    """A process to be started.

    :ivar name: of its record and its log
    :ivar command: program and arguments
    :ivar place: ``centre``, ``site`` or a compute host
    :ivar environment: variables over those of this process
    :ivar user: to run as, if not root
    :ivar capabilities: that it keeps as that user, such as ``chown``; it can
        get no others
    :ivar ready: whether it serves by now
    :ivar inputs: files that it reads when it starts; when they change it is
        restarted
    """

    name: str
    command: collections.abc.Sequence[object]
    place: str
    environment: collections.abc.Mapping[str, str] = dataclasses.field(
        default_factory=dict)
    user: str | None = None
    capabilities: tuple[str, ...] | None = None
    ready: collections.abc.Callable[[], bool] = lambda: True
    inputs: tuple[pathlib.Path, ...] = ()

    def digest(self) -> str:
        """Return a checksum over what it is started with."""
        text = repr((self.command, sorted(self.environment.items()),
                     self.user, self.capabilities,
                     [path.read_bytes() for path in self.inputs]))
        return hashlib.sha256(text.encode()).hexdigest()


def start_time(pid: int) -> int | None:
    """Return when a process started, in ticks since boot; None if gone."""
    try:
        text = pathlib.Path(f'/proc/{pid}/stat').read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may contain anything.
    fields = text.rpartition(')')[2].split()
    return None if fields[0] in 'ZX' else int(fields[19])


@dataclasses.dataclass(frozen=True)
class Use:
    """What a process has used since it was started.

    :ivar cpu_seconds: of all processors, its own and the kernel's for it
    :ivar memory_bytes: the most that was resident at a time
    """

    cpu_seconds: float
    memory_bytes: int


def use_of(pid: int) -> Use:
    """Return what a process has used.

    :raises FileNotFoundError: it is gone
    """
    folder = pathlib.Path(f'/proc/{pid}')
    fields = (folder / 'stat').read_text().rpartition(')')[2].split()
    ticks = int(fields[11]) + int(fields[12])
    [peak] = [line.split()[1] for line
              in (folder / 'status').read_text().splitlines()
              if line.startswith('VmHWM:')]
    return Use(ticks / os.sysconf('SC_CLK_TCK'), int(peak) * 1024)


class Processes:
    """The processes of one OpenStack."""

    def __init__(self, where: layout.Layout) -> None:
        self._layout = where
        self._children: dict[str, subprocess.Popen] = {}

    def pid(self, name: str) -> int | None:
        """Return the process of that name if it runs."""
        try:
            record = self._read(name)
        except FileNotFoundError:
            return None
        child = self._children.get(name)
        if child is not None:
            child.poll()
        # One that ended before it was recorded has no time.
        started = start_time(record['pid'])
        alive = started is not None and started == record['start_time']
        return record['pid'] if alive else None

    def names(self) -> list[str]:
        """Return what was started, the latest first."""
        records = sorted(
            self._layout.run.glob('*.json'),
            key=lambda path: path.stat().st_mtime_ns, reverse=True)
        return [path.stem for path in records]

    def started(self, name: str) -> float:
        """Return when a process was started, as time.time() counts."""
        return self._record(name).stat().st_mtime

    def use(self, name: str) -> Use:
        """Return what a process has used so far; nothing if it ended."""
        pid = self.pid(name)
        return Use(0.0, 0) if pid is None else use_of(pid)

    def log(self, name: str) -> pathlib.Path:
        """Return the file with what a process prints."""
        return self._layout.folder('log') / f'{name}.log'

    def ensure(self, daemon: Daemon, seconds: float = 90) -> bool:
        """Start a process unless it runs, and wait until it serves.

        :returns: whether it had to be started
        :raises OpenStackError: it ended, or did not serve in time
        """
        if self.is_current(daemon):
            fresh = False
        else:
            self.stop(daemon.name)
            self._start(daemon)
            fresh = True
        self._wait(daemon, seconds)
        return fresh

    def is_current(self, daemon: Daemon) -> bool:
        """Return whether it runs, with the inputs of today."""
        return (self.pid(daemon.name) is not None
                and self._read(daemon.name)['digest'] == daemon.digest())

    def _start(self, daemon: Daemon) -> None:
        command = [*self.enter(daemon.place),
                   *_as_user(daemon.user, daemon.capabilities),
                   *(str(word) for word in daemon.command)]
        environment = {**os.environ, **daemon.environment}
        with open(self.log(daemon.name), 'ab') as log:
            child = subprocess.Popen(
                command, env=environment, cwd=self._layout.state,
                stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True)
        self._children[daemon.name] = child
        started = start_time(child.pid)
        self._layout.folder('run')
        shell.write(self._record(daemon.name), json.dumps(
            {'pid': child.pid, 'start_time': started,
             'digest': daemon.digest()}))

    def enter(self, place: str) -> list[str]:
        """Start of a command line that runs something at a place.

        :param place: ``centre``, ``site``, ``machine`` or a compute host
        """
        if place == 'machine':
            return []
        net = f'--net=/run/netns/{self._layout.namespace(place)}'
        holder = self.pid(f'{place}-host')
        if holder is None:
            return ['nsenter', net, '--']
        return ['nsenter', net, f'--mount=/proc/{holder}/ns/mnt',
                f'--uts=/proc/{holder}/ns/uts', '--']

    def _wait(self, daemon: Daemon, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not daemon.ready():
            if self.pid(daemon.name) is None:
                raise errors.OpenStackError(
                    f'{daemon.name} has ended; the end of its log'
                    f' {self.log(daemon.name)}:\n{self.tail(daemon.name)}')
            if time.monotonic() > deadline:
                raise errors.OpenStackError(
                    f'{daemon.name} does not answer after {seconds:.0f} s;'
                    f' the end of its log {self.log(daemon.name)}:\n'
                    f'{self.tail(daemon.name)}')
            time.sleep(_POLL)

    def tail(self, name: str) -> str:
        """Return the last lines of a log."""
        with contextlib.suppress(FileNotFoundError):
            text = self.log(name).read_text(errors='replace')
            return '\n'.join(text.splitlines()[-_LOG_LINES:])
        return ''

    def stop(self, name: str, number: int = signal.SIGTERM) -> None:
        """End a process: ask, then kill. Nothing happens if it is gone."""
        self.stop_all([name], number)

    def stop_all(self, names: collections.abc.Iterable[str],
                 number: int = signal.SIGTERM) -> None:
        """End processes at the same time: ask, then kill."""
        pids = {name: self.pid(name) for name in names}
        killed = self._end([pid for pid in pids.values() if pid is not None],
                           number)
        for name, pid in pids.items():
            self._record(name).unlink(missing_ok=True)
            if pid in killed:
                print(f'{name} did not end within {_STOP_SECONDS} s and was'
                      ' killed', file=sys.stderr)

    def _end(self, pids: list[int], number: int = signal.SIGTERM
             ) -> set[int]:
        """End processes; returns those that had to be killed."""
        left = {pid: started for pid in pids
                if (started := start_time(pid)) is not None}
        for attempt, chosen in enumerate((number, signal.SIGKILL)):
            killed = set(left) if attempt else set()
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, chosen)
            deadline = time.monotonic() + _STOP_SECONDS
            while left and time.monotonic() < deadline:
                time.sleep(_POLL)
                self._reap()
                left = {pid: started for pid, started in left.items()
                        if start_time(pid) == started}
            if not left:
                return killed
        pid = min(left)
        raise errors.OpenStackError(
            f'process {pid} cannot be ended: see what it waits for in'
            f' /proc/{pid}/stack')

    def _reap(self) -> None:
        for child in list(self._children.values()):
            child.poll()

    def end_members(self, holder: int) -> None:
        """End every process in the mount namespace of a process, but it.

        Guests and helpers of a compute host are no children of this process;
        they are found by their namespace.
        """
        wanted = os.readlink(f'/proc/{holder}/ns/mnt')
        if wanted == os.readlink('/proc/self/ns/mnt'):
            raise errors.OpenStackError(
                f'process {holder} has no mount namespace of its own')
        members = []
        for entry in os.listdir('/proc'):
            if not entry.isdigit() or int(entry) == holder:
                continue
            with contextlib.suppress(OSError):
                if os.readlink(f'/proc/{entry}/ns/mnt') == wanted:
                    members.append(int(entry))
        self._end(members)

    def _read(self, name: str) -> dict:
        return json.loads(self._record(name).read_text())

    def _record(self, name: str) -> pathlib.Path:
        return self._layout.run / f'{name}.json'


def _as_user(user: str | None, capabilities: tuple[str, ...] | None
             ) -> list[str]:
    if user is None:
        return []
    words = ['setpriv', f'--reuid={user}', f'--regid={user}', '--init-groups']
    if capabilities is not None:
        kept = ','.join(['-all', *(f'+{name}' for name in capabilities)])
        words += [f'--inh-caps={kept}', f'--ambient-caps={kept}',
                  f'--bounding-set={kept}', '--no-new-privs']
    return [*words, '--']


def listens(address: str, port: int) -> bool:
    """Return whether a server accepts connections there."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((address, port)) == 0
