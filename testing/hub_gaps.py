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
"""How long eventlet's hub, which runs all of a process, stood still.

As a program it runs a service of OpenStack, and adds a line to a file for each
gap: the time, the seconds, and how many of them the hub's thread computed; in
the others it waited for a disk, a lock, or another thread's Python code. Gaps
of the start are left out. A second file, with "-stacks" at its end, has before
the line of a long gap what the threads do in each second of it, and which of
them wait for a processor (R) or a disk (D)::

    python -m testing.hub_gaps FILE nova.cmd.compute [ARGUMENT...]
"""

import contextlib
import faulthandler
import importlib
import mmap
import os
import pathlib
import signal
import struct
import sys
import threading
import time
import typing

_STEP = 0.05
# Gaps that are worth a line, and how long a service imports and starts.
_NOTED_SECONDS = 0.1
_SHOWN_SECONDS = 1.0
_START_SECONDS = 120.0
# Services of OpenStack use others.
_SIGNAL = signal.SIGRTMIN + 1
_BEAT = struct.Struct('d')


class Meter:
    """A thread of the hub that notices when it is woken late.

    What it waited for a processor, while the machine had other work, is no
    part of a gap.

    :param path: of a file for a line for each gap; None for none
    :param beats: where the time of each waking is written
    :ivar largest: the largest gap, in seconds
    """

    def __init__(self, path: pathlib.Path | None = None,
                 beats: mmap.mmap | None = None) -> None:
        self._path = path
        self._beats = beats
        self._ended = False
        self.largest = 0.0

    def start(self) -> None:
        """Measure until :meth:`stop`."""
        threading.Thread(target=self._measure, daemon=True).start()

    def stop(self) -> None:
        """Measure no more."""
        self._ended = True

    def _measure(self) -> None:
        started = time.monotonic()
        while not self._ended:
            before = _Clocks.now()
            if self._beats is not None:
                _BEAT.pack_into(self._beats, 0, before.wall)
            time.sleep(_STEP)
            passed = _Clocks.now().since(before)
            gap = passed.wall - _STEP - passed.queued
            self.largest = max(self.largest, gap)
            if (gap > _NOTED_SECONDS
                    and before.wall - started > _START_SECONDS):
                self._note(gap, passed.computed)

    def _note(self, gap: float, computed: float) -> None:
        if self._path is None:
            return
        line = f'{time.time():.1f} {gap:.3f} {computed:.3f}\n'
        names = [str(self._path)]
        if gap > _SHOWN_SECONDS:
            names.append(f'{self._path}-stacks')
        for name in names:
            with open(name, 'a') as file:
                file.write(line)


class _Clocks(typing.NamedTuple):
    """Seconds of this thread.

    :ivar wall: that passed
    :ivar computed: on a processor
    :ivar queued: in which it waited for a processor
    """

    wall: float
    computed: float
    queued: float

    @classmethod
    def now(cls) -> '_Clocks':
        """Read the clocks."""
        text = pathlib.Path('/proc/thread-self/schedstat').read_text()
        computed, queued, _ = text.split()
        return cls(time.monotonic(), int(computed) / 1e9, int(queued) / 1e9)

    def since(self, before: '_Clocks') -> '_Clocks':
        """Return what passed since an earlier time."""
        return _Clocks(*(now - then for now, then
                         in zip(self, before, strict=True)))


def _watch(pid: int, beats: mmap.mmap, stacks: typing.TextIO) -> None:
    """Have a process's stacks written in each second without a beat.

    It is a process of its own, since a thread would wait for the interpreter
    with the one that is looked at.

    :param pid: of the process, which is this one's parent
    """
    last, since = b'', time.monotonic()
    while os.getppid() == pid:
        time.sleep(_SHOWN_SECONDS / 4)
        beat, now = beats[:], time.monotonic()
        if beat != last or not any(beat):
            last, since = beat, now
        elif now - since > _SHOWN_SECONDS:
            since = now
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                stacks.write(_states(pid))
                stacks.flush()
                os.kill(pid, _SIGNAL)


def _states(pid: int) -> str:
    """Return the states of a process's first thread and those not asleep."""
    states = {}
    for path in pathlib.Path(f'/proc/{pid}/task').iterdir():
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            text = (path / 'stat').read_text().rpartition(')')[2]
            states[int(path.name)] = text.split()[0]
    return 'No beat; ' + ', '.join(
        f'thread {thread}: {state}' for thread, state in states.items()
        if thread == pid or state != 'S') + '\n'


def _start_watch(path: pathlib.Path) -> mmap.mmap:
    """Start the process that watches this one; return where to write beats."""
    beats = mmap.mmap(-1, _BEAT.size)
    stacks = open(f'{path}-stacks', 'a')
    faulthandler.register(_SIGNAL, stacks)
    pid = os.getpid()
    if os.fork() == 0:
        try:
            _watch(pid, beats, stacks)
        finally:
            os._exit(0)
    return beats


def main() -> None:
    """Run a service as its console script does, with a meter in it."""
    path, name = pathlib.Path(sys.argv[1]), sys.argv[2]
    beats = _start_watch(path)
    # The importing patches, and takes long.
    service = importlib.import_module(name)
    sys.argv = [f'nova-{name.rpartition(".")[2]}', *sys.argv[3:]]
    path.touch()
    Meter(path, beats).start()
    sys.exit(service.main())


if __name__ == '__main__':
    main()
