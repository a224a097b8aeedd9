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
"""What fails, for how long, as a seed decides."""

import collections
import collections.abc
import contextlib
import dataclasses
import errno
import logging
import os
import random
import signal
import threading
import time

from tests.functional.agent import family
from tests.functional.chaos import site

LOG = logging.getLogger(__name__)

LONGEST = 12.0
PROCESSES = (*site.CONDUCTORS, *site.AGENTS)


@dataclasses.dataclass(frozen=True)
class Fault:
    """Something that fails.

    :ivar at: seconds after the beginning
    :ivar seconds: until it is mended
    :ivar kind: a key of :data:`KINDS`
    :ivar target: what fails
    """

    at: float
    seconds: float
    kind: str
    target: str

    def __str__(self) -> str:
        return (f'{self.at:.1f} s: {self.kind} {self.target} for '
                f'{self.seconds:.1f} s')


@contextlib.contextmanager
def _killed(where: site.Site, name: str):
    where.kill(name)
    yield
    where.begin(name)


@contextlib.contextmanager
def _stopped(where: site.Site, name: str):
    pid = where.processes[name].pid
    os.kill(pid, signal.SIGSTOP)
    yield
    os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def _partitioned(where: site.Site, name: str):
    for wire in where.wires(name):
        wire.flows.clear()
    yield
    for wire in where.wires(name):
        wire.flows.set()
        wire.cut()


@contextlib.contextmanager
def _reset(where: site.Site, name: str):
    for wire in where.wires(name):
        wire.cut()
    yield


@contextlib.contextmanager
def _flipped(where: site.Site, name: str):
    where.data_wires[name].flip()
    yield


@contextlib.contextmanager
def _damaged(where: site.Site, name: str):
    objects = where.state(name) / 'objects'
    found = [path for path in sorted(objects.glob('*/*'))
             if path.is_file() and len(path.name) == 64]
    if found:
        # It may be evicted meanwhile.
        with contextlib.suppress(FileNotFoundError):
            family.damage(found[0], found[0].stat().st_size // 3)
    yield


@contextlib.contextmanager
def _full(where: site.Site, name: str):
    filler = where.state(name) / 'filler'
    with open(filler, 'wb', buffering=0) as stream:
        try:
            while True:
                stream.write(bytes(1 << 16))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
    yield
    filler.unlink()


@contextlib.contextmanager
def _broker_killed(where: site.Site, _name: str):
    os.kill(where.broker.pid, signal.SIGKILL)
    where.broker.halt()
    yield
    where.start_server(where.broker)


@contextlib.contextmanager
def _database_restarted(where: site.Site, _name: str):
    # Killed it would lose a second's commits: the tests' own writes its log
    # down once a second.
    where.database_server.halt()
    yield
    where.start_server(where.database_server)


#: What can fail, and in which way.
KINDS: dict[str, tuple[collections.abc.Callable, tuple[str, ...]]] = {
    'kill': (_killed, PROCESSES),
    'stop': (_stopped, PROCESSES),
    'partition': (_partitioned, PROCESSES),
    'reset': (_reset, PROCESSES),
    'flip a byte of': (_flipped, site.AGENTS),
    'damage an object of': (_damaged, site.AGENTS),
    'fill the disk of': (_full, site.HOSTS),
    'kill the': (_broker_killed, ('broker',)),
    'restart the': (_database_restarted, ('database',)),
}


def draw(noise: random.Random, seconds: float) -> list[Fault]:
    """Return the faults of a minute or so, in their order.

    No target has two at once.
    """
    free = dict.fromkeys((*PROCESSES, 'broker', 'database'), 0.0)
    drawn, at = [], 0.0
    while True:
        at += noise.expovariate(0.4)
        if at >= seconds:
            return drawn
        kind = noise.choice(sorted(KINDS))
        target = noise.choice(KINDS[kind][1])
        lasts = noise.uniform(0.2, LONGEST)
        if free[target] <= at:
            drawn.append(Fault(at, lasts, kind, target))
            free[target] = at + lasts


class Schedule:
    """Faults that begin and are mended at their times."""

    def __init__(self, where: site.Site,
                 faults: collections.abc.Iterable[Fault]) -> None:
        self._site = where
        self._threads = [threading.Thread(target=self._apply, args=(fault,))
                         for fault in faults]
        # What ends or starts slowly may still do so at the next one's time.
        self._turns = collections.defaultdict(threading.Lock)
        self.errors: list[str] = []

    def run(self) -> None:
        """Return when all is mended."""
        self._start = time.monotonic()
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join()

    def _apply(self, fault):
        time.sleep(max(0.0, self._start + fault.at - time.monotonic()))
        with self._turns[fault.target]:
            LOG.info('%s', fault)
            try:
                with KINDS[fault.kind][0](self._site, fault.target):
                    time.sleep(fault.seconds)
            except Exception as error:
                self.errors.append(f'{fault}: {type(error).__name__}: {error}')
            LOG.info('Mended: %s %s', fault.kind, fault.target)
