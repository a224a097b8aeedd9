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
"""Programs that a measurement runs, and what they spend."""

import collections.abc
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import time

from bench.harness import errors

_PIECE = 1 << 20
_TICKS = os.sysconf('SC_CLK_TCK')
# The Debian packages of programs that are not named like them.
PACKAGES = {
    'borg': 'borgbackup', 'cmp': 'diffutils', 'ip': 'iproute2',
    'mariadbd': 'mariadb-server', 'mkfs.xfs': 'xfsprogs',
    'nbdfuse': 'libnbd-bin', 'qemu-img': 'qemu-utils',
    'qemu-io': 'qemu-utils', 'qemu-storage-daemon': 'qemu-system-common',
    'qemu-system-x86_64': 'qemu-system-x86', 'tc': 'iproute2',
}


def require(programs: collections.abc.Iterable[str]) -> None:
    """Check that programs are there.

    :raises BenchError: some are missing; names them and their packages
    """
    missing = [name for name in programs if not shutil.which(name)]
    if missing:
        packages = sorted({PACKAGES.get(name, name) for name in missing})
        raise errors.BenchError(
            f'not installed: {", ".join(missing)}; run: apt install '
            + ' '.join(packages))


def own(name: str, *words: object) -> list[str]:
    """Return a command of this suite, of the environment that runs this."""
    return [str(pathlib.Path(sys.executable).with_name(name)),
            *map(str, words)]


def run(*words: object) -> str:
    """Run a command; return its output.

    :raises BenchError: it failed
    """
    done = subprocess.run([str(word) for word in words], check=False,
                          capture_output=True, text=True)
    if done.returncode:
        raise errors.BenchError(
            f'{words[0]} failed: {done.stderr.strip() or done.stdout}')
    return done.stdout


def copy(source: pathlib.Path, dest: pathlib.Path) -> None:
    """Copy a disk, without its holes."""
    run('cp', '--sparse=always', source, dest)


def write_random(path: pathlib.Path, size: int, seed: object = 1) -> None:
    """Write bytes that cannot be compressed, the same for a seed."""
    chance = random.Random(str(seed))
    with path.open('wb') as file:
        for at in range(0, size, _PIECE):
            file.write(chance.randbytes(min(_PIECE, size - at)))


def same(one: pathlib.Path, other: pathlib.Path) -> bool:
    """Return whether two files are the same."""
    return subprocess.run(['cmp', '-s', one, other],
                          check=False).returncode == 0


@dataclasses.dataclass
class Spent:
    """What commands took: seconds, and megabytes of memory at most."""

    cpu_s: float = 0.0
    wall_s: float = 0.0
    peak_mb: float = 0.0
    output: bytes = b''

    def add(self, other: 'Spent') -> None:
        """Count another command, which ran after these."""
        self.cpu_s += other.cpu_s
        self.wall_s += other.wall_s
        self.peak_mb = max(self.peak_mb, other.peak_mb)
        self.output = other.output

    def figures(self) -> dict[str, float]:
        """Return the numbers."""
        return {'cpu_s': round(self.cpu_s, 3), 'wall_s': round(self.wall_s, 3),
                'peak_mb': round(self.peak_mb, 1)}


def measured(*commands: collections.abc.Sequence[object], **options: object,
             ) -> Spent:
    """Run commands in turn; return what they took together.

    :raises BenchError: one failed
    """
    total = Spent()
    for command in commands:
        started = time.monotonic()
        # Its errors are shown as they come.
        process = subprocess.Popen(
            [str(word) for word in command],
            **{'stdout': subprocess.PIPE, **options})
        output = process.stdout.read() if process.stdout else b''
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.stdout:
            process.stdout.close()
        if process.returncode:
            raise errors.BenchError(
                f'{command[0]} failed ({process.returncode})')
        total.add(Spent(usage.ru_utime + usage.ru_stime,
                        time.monotonic() - started, usage.ru_maxrss / 1024,
                        output))
    return total


@contextlib.contextmanager
def on_one_core() -> collections.abc.Iterator[None]:
    """Use one processor, as do the programs that are started."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def spending() -> collections.abc.Iterator[Spent]:
    """Measure what this process takes meanwhile."""
    spent = Spent()
    cpu, wall = time.process_time(), time.monotonic()
    yield spent
    spent.cpu_s = time.process_time() - cpu
    spent.wall_s = time.monotonic() - wall


@contextlib.contextmanager
def running(*words: object, **options: object,
            ) -> collections.abc.Iterator[subprocess.Popen]:
    """Run a server, and end it."""
    process = subprocess.Popen([str(word) for word in words], **options)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def answer(process: subprocess.Popen) -> dict:
    """Read a line of JSON from a process.

    :raises BenchError: it ended
    """
    line = process.stdout.readline()
    if not line:
        raise errors.BenchError(f'{process.args[0]} ended without an answer')
    return json.loads(line)


def until(holds: collections.abc.Callable[[], bool], what: str,
          seconds: float = 60) -> None:
    """Wait until something holds.

    :raises BenchError: it does not in time
    """
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise errors.BenchError(f'{what}: not within {seconds:g} s')
        time.sleep(0.02)


def _stat(pid: int | str) -> tuple[int, list[int]]:
    """Return the parent, and the ticks: user, system, those of children."""
    text = pathlib.Path(f'/proc/{pid}/stat').read_text()
    fields = text.rsplit(')')[-1].split()
    return int(fields[1]), [int(ticks) for ticks in fields[11:15]]


def cpu_seconds(*pids: int) -> float:
    """Return what processes themselves have spent."""
    return sum(sum(_stat(pid)[1][:2]) for pid in pids) / _TICKS


def cpu_of_descendants(left_out: int | None = None) -> float:
    """Return what this process's children and theirs have spent.

    Those that ended count once their parents have waited for them.

    :param left_out: a child that does not count, nor what it started
    """
    parents, ticks = {}, {}
    for path in pathlib.Path('/proc').glob('[0-9]*'):
        with contextlib.suppress(OSError):
            pid = int(path.name)
            parents[pid], ticks[pid] = _stat(pid)
    counted = {os.getpid()}
    while more := {pid for pid, parent in parents.items()
                   if parent in counted} - counted - {left_out}:
        counted |= more
    ticks[os.getpid()][:2] = 0, 0
    return sum(sum(ticks[pid]) for pid in counted) / _TICKS
