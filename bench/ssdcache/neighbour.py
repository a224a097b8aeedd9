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
"""Cached reads of one volume while something happens to another one."""

import collections.abc
import contextlib
import os
import random
import shutil
import signal
import sys
import threading
import time

import numpy

from bench.harness import processes
from bench.harness import runs
from bench.ssdcache import servers as nbd_servers
from diffcache_openstack.ssdcache import control
from testing import nbd

BLOCK = nbd_servers.BLOCK
# Blocks of the volume that is read, of the cache, and that are written.
QUIET, CAPACITY, DIRTY = 4096, 1 << 17, 1 << 15
GIB = 1 << 30
# Of the other volume, which has no data.
SIZE = 100 * GIB
# Bytes of a request to trim, and of one to write.
TRIM, WRITE = GIB, 1 << 20
_TRIM = 4
# Seconds of reads that are looked at, at least.
LEAST = 0.3
PARTS = (50, 99, 99.9)


class Reader(threading.Thread):
    """Reads cached blocks at random, one at a time, and notes how long."""

    def __init__(self, uri: str) -> None:
        super().__init__(daemon=True)
        self._client = nbd.Client(uri)
        self._ended = threading.Event()
        self._done: list[tuple[float, float]] = []
        for block in range(QUIET):
            self._client.read(block * BLOCK, BLOCK)

    def run(self) -> None:
        """Read until it is stopped, or the server ends."""
        generator = random.Random(1)
        # The end of the server ends the connection.
        with contextlib.suppress(ConnectionError):
            while not self._ended.is_set():
                block, begin = generator.randrange(QUIET), time.monotonic()
                self._client.read(block * BLOCK, BLOCK)
                self._done.append((begin, time.monotonic()))

    def stop(self) -> None:
        """End."""
        self._ended.set()
        self.join()
        self._client.__exit__()

    def within(self, begin: float, end: float) -> list[float]:
        """Return microseconds of the reads that overlap a time."""
        return [(ended - begun) * 1e6 for begun, ended in self._done
                if ended > begin and begun < end]


class Trial:
    """A cache with a volume that is read, and another one.

    :ivar quiet: origin and options of the first
    :ivar origin: the process that serves the origin of the other
    """

    def __init__(self, run: runs.Run, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self._seconds = run.options.seconds
        # The last one was killed with dirty blocks.
        shutil.rmtree(run.work / 'state', ignore_errors=True)
        (run.work / 'device').unlink(missing_ok=True)
        path = nbd_servers.make_file(run.work / 'quiet', QUIET)
        self.quiet = f'{path},limit={2 * QUIET}'
        file = nbd_servers.make_file(run.work / 'other', SIZE // BLOCK)
        # A server of its own, which can be made to hang.
        self.origin, self._uri = stack.enter_context(
            nbd_servers.plugin(run.work, 'other', 'file', str(file)))
        self.cache = stack.enter_context(nbd_servers.cache(
            run.work, CAPACITY, {'quiet': self.quiet}))
        self.reader = Reader(self.cache.exports['quiet'])
        self.reader.start()
        stack.callback(self.reader.stop)

    def command(self, name: str, **fields: object) -> dict:
        """Send the cache a command about the other volume."""
        return control.send(self.cache.control, name, volume='other',
                            **fields)

    def attach(self) -> None:
        """Attach the other volume."""
        self.command('attach', origin=self._uri, mode='write-back',
                     limit=CAPACITY - 4 * QUIET)

    @contextlib.contextmanager
    def client(self) -> collections.abc.Iterator[nbd.Client]:
        """Connect to the other volume."""
        export = self.cache.status()['other']['export']
        with nbd.Client(f'nbd+unix:///{export}?socket={self.cache.socket}'
                        ) as client:
            yield client

    def write(self) -> None:
        """Make blocks of the other volume dirty."""
        with self.client() as client:
            for offset in range(0, DIRTY * BLOCK, WRITE):
                client.send(nbd.WRITE, offset, data=bytes([7]) * WRITE)
                client.receive()

    def wait(self) -> None:
        """Let some time pass."""
        time.sleep(self._seconds)

    # -- what happens: each returns what is measured, once all is ready

    def nothing(self) -> collections.abc.Callable[[], object]:
        """Read alone."""
        return self.wait

    def foreign(self) -> collections.abc.Callable[[], object]:
        """Have a process of another program use a processor."""
        self._stack.enter_context(processes.running(
            sys.executable, '-c', 'while True: pass'))
        return self.wait

    def attached(self) -> collections.abc.Callable[[], object]:
        """Attach."""
        return self.attach

    def detached(self) -> collections.abc.Callable[[], object]:
        """Detach with dirty blocks, which are written back."""
        self.attach()
        self.write()
        return lambda: self.command('detach')

    def resized(self) -> collections.abc.Callable[[], object]:
        """Lower the limit to a tenth, with dirty blocks."""
        self.attach()
        self.write()
        return lambda: self.command('set', limit=DIRTY // 10)

    def flushed(self) -> collections.abc.Callable[[], object]:
        """Write all back."""
        self.attach()
        self.write()
        return lambda: self.command('flush')

    def trimmed(self) -> collections.abc.Callable[[], object]:
        """Trim all of the volume, which has cached blocks."""
        self.attach()
        self.write()
        return self._trim

    def _trim(self) -> None:
        with self.client() as client:
            for offset in range(0, SIZE, TRIM):
                client.send(_TRIM, offset, TRIM)
                client.receive()

    def hung(self) -> collections.abc.Callable[[], object]:
        """Have the origin hang while blocks are to be written back."""
        self.attach()
        self.write()
        self.origin.send_signal(signal.SIGSTOP)
        self._stack.callback(self.origin.send_signal, signal.SIGCONT)
        return self.wait

    def stopped(self) -> collections.abc.Callable[[], object]:
        """End the cache with dirty blocks."""
        self.attach()
        self.write()
        return self._stop

    def _stop(self) -> None:
        server = processes_of(self.cache.process.pid)
        for pid in server:
            os.kill(pid, signal.SIGTERM)
        self.reader.join()


def processes_of(pid: int) -> list[int]:
    """Return the process that serves, which a command may have started."""
    with open(f'/proc/{pid}/task/{pid}/children', encoding='ascii') as file:
        children = [int(child) for child in file.read().split()]
    return children or [pid]


EVENTS = (('nothing', Trial.nothing),
          ('another program on one core', Trial.foreign),
          ('attach', Trial.attached),
          ('detach, 128 MiB dirty', Trial.detached),
          ('resize to a tenth, 128 MiB dirty', Trial.resized),
          ('write-back of 128 MiB', Trial.flushed),
          ('trim of 100 GiB', Trial.trimmed),
          ('hung origin, 128 MiB dirty', Trial.hung),
          ('stop, 128 MiB dirty', Trial.stopped))


def measure(run: runs.Run, event: collections.abc.Callable,
            ) -> dict[str, float]:
    """Return what an event took, and figures of the reads meanwhile."""
    with contextlib.ExitStack() as stack:
        trial = Trial(run, stack)
        act = event(trial)
        begin = time.monotonic()
        act()
        took = time.monotonic() - begin
        # Short ones have the reads after them, which may wait for the same.
        time.sleep(max(0.0, LEAST - took))
        reads = trial.reader.within(begin, time.monotonic())
    return {'took': took, 'reads': len(reads), 'longest': max(reads),
            **{f'p{part}': float(numpy.percentile(reads, part))
               for part in PARTS}}


def restart(run: runs.Run, is_gone: bool) -> dict[str, float]:
    """Return how long a start takes until a volume can be read.

    :param is_gone: whether the origin of another volume, with dirty blocks, is
        gone
    """
    with contextlib.ExitStack() as stack:
        trial = Trial(run, stack)
        trial.attach()
        trial.write()
        trial.cache.process.kill()
        trial.cache.process.wait()
        if is_gone:
            trial.origin.kill()
        begin = time.monotonic()
        again = stack.enter_context(nbd_servers.cache(
            run.work, CAPACITY, {'quiet': trial.quiet}, empty=False))
        with nbd.Client(again.exports['quiet']) as client:
            client.read(0, BLOCK)
        return {'took': time.monotonic() - begin}


def neighbour(run: runs.Run) -> None:
    """Measure cached reads while something happens to another volume."""
    count = run.options.rounds
    found = run.rounds({
        name: lambda event=event: measure(run, event)
        for name, event in EVENTS}, count)
    run.table('Cached reads of a volume while something happens to another', (
        'At the other volume', 'Took, s', 'Reads', *(
            f'p{part}, µs' for part in PARTS), 'Longest, ms'), (
        (name, f'{one["took"]:.2f}', f'{one["reads"]:.0f}', *(
            f'{one[f"p{part}"]:.0f}' for part in PARTS),
         f'{one["longest"] / 1e3:.1f}') for name, one in found.items()))
    starts = run.rounds({
        name: lambda is_gone=is_gone: restart(run, is_gone)
        for name, is_gone in (('there', False), ('gone', True))}, count)
    run.table('From the start of the cache to the first read of a volume', (
        'Origin of the other one', 'Took, s'), (
        (name, f'{one["took"]:.2f}') for name, one in starts.items()))
