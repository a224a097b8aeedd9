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
of the start are left out. What the threads do in each second of a long gap is
in a second file, with "-stacks" at its end, before the gap's line::

    python -m testing.hub_gaps FILE nova.cmd.compute [ARGUMENT...]
"""

import collections.abc
import faulthandler
import importlib
import pathlib
import sys
import threading
import time
import typing

_STEP = 0.05
# Gaps that are worth a line, and how long a service imports and starts.
_NOTED_SECONDS = 0.1
_SHOWN_SECONDS = 1.0
_START_SECONDS = 120.0


class Meter:
    """A thread of the hub that notices when it is woken late.

    What it waited for a processor, while the machine had other work, is no
    part of a gap.

    :param path: of a file for a line for each gap; None for none
    :ivar largest: the largest gap, in seconds
    """

    def __init__(self, path: pathlib.Path | None = None) -> None:
        self._path = path
        self._ended = False
        self.largest = 0.0

    def start(self) -> None:
        """Measure until :meth:`stop`."""
        threading.Thread(target=self._run, daemon=True).start()

    def stop(self) -> None:
        """Measure no more."""
        self._ended = True

    def _run(self) -> None:
        if self._path is None:
            return self._measure(lambda: None)
        with open(f'{self._path}-stacks', 'a') as file:
            # By a thread that eventlet does not know, unless called in time.
            self._measure(lambda: faulthandler.dump_traceback_later(
                _SHOWN_SECONDS, repeat=True, file=file))
            faulthandler.cancel_dump_traceback_later()

    def _measure(self, begin: collections.abc.Callable[[], None]) -> None:
        """Measure gaps.

        :param begin: called before each wait
        """
        started = time.monotonic()
        while not self._ended:
            begin()
            before = _Clocks.now()
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


def main() -> None:
    """Run a service as its console script does, with a meter in it."""
    path, name = pathlib.Path(sys.argv[1]), sys.argv[2]
    # The importing patches, and takes long.
    service = importlib.import_module(name)
    sys.argv = [f'nova-{name.rpartition(".")[2]}', *sys.argv[3:]]
    path.touch()
    Meter(path).start()
    sys.exit(service.main())


if __name__ == '__main__':
    main()
