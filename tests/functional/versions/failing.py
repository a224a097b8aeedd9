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
"""Processes whose system calls fail, as those on a failing or full disk do.

strace makes them fail, so that it does not matter which program or library
makes them: Python, the native module or QEMU.
"""

import dataclasses
import functools
import os
import pathlib
import random
import shutil
import signal
import subprocess
import traceback
from typing import Callable

from tests import waiting

_SYNC = 'sync fails'
# Which system calls fail, how, and among how many of a process the first is.
_FAULTS = {
    _SYNC: ('fsync,fdatasync', 'EIO', 8),
    'disk is full': ('write,pwrite64,pwritev,pwritev2,fallocate', 'ENOSPC',
                     60),
    'write fails': ('write,pwrite64,pwritev,pwritev2', 'EIO', 60),
    'read fails': ('read,pread64,preadv,preadv2', 'EIO', 120),
    'name fails': ('rename,renameat,renameat2,link,linkat,unlink,unlinkat',
                   'EIO', 8),
}


@dataclasses.dataclass(frozen=True)
class Fault:
    """A call that fails, by its number, and whether all later ones do."""

    name: str
    first: int
    lasts: bool

    @classmethod
    def choose(cls, noise: random.Random) -> 'Fault':
        """Choose one at random."""
        name = noise.choice(sorted(_FAULTS))
        return cls(name, noise.randint(1, _FAULTS[name][2]),
                   noise.random() < 0.5)

    def __str__(self) -> str:
        return f'{self.name} at {self.first}{"+" if self.lasts else ""}'

    @property
    def is_no_sync(self) -> bool:
        """Whether every sync fails."""
        return self.lasts and self.first == 1 and self.name == _SYNC

    @property
    def injection(self) -> str:
        """The fault in strace's words."""
        calls, error, _ = _FAULTS[self.name]
        when = f'{self.first}{"+" if self.lasts else ""}'
        return f'inject={calls}:error={error}:when={when}'


@dataclasses.dataclass(frozen=True)
class End:
    """How a process ended, and the calls that were made to fail."""

    is_done: bool
    hit: list[str]


@functools.cache
def is_possible() -> bool:
    """Whether system calls can be made to fail here."""
    return shutil.which('strace') is not None and subprocess.run(
        ['strace', '-o', '/dev/null', 'true'],
        stderr=subprocess.DEVNULL).returncode == 0


def run(fault: Fault, work: Callable[[], object], directory: pathlib.Path
        ) -> End:
    """Have a new process do some work while its system calls fail.

    :param directory: where its error and the calls are written to
    """
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        _work_when_continued(work, directory / 'error')
    # One that stops itself after it was continued would stay so.
    os.waitpid(child, os.WUNTRACED)
    log = directory / 'strace'
    calls = _FAULTS[fault.name][0]
    tracer = subprocess.Popen(
        ['strace', '-f', '-qq', '-y', '-o', str(log), '-e', f'trace={calls}',
         '-e', fault.injection, '-p', str(child)])
    try:
        waiting.until(lambda: _is_traced(child), 'strace')
        os.kill(child, signal.SIGCONT)
        waiting.until(lambda: os.waitid(
            os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT),
            'the end of a process whose disk fails')
    finally:
        os.killpg(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        tracer.wait()
    lines = log.read_text(errors='replace').splitlines()
    return End(status == 0, [line for line in lines if '(INJECTED)' in line])


def _work_when_continued(work: Callable[[], object], error: pathlib.Path
                         ) -> None:
    status = 1
    try:
        os.kill(os.getpid(), signal.SIGSTOP)
        work()
        status = 0
    except BaseException:
        # What fails is the model's to judge; for people who look into it.
        error.write_text(traceback.format_exc())
    finally:
        os._exit(status)


def _is_traced(process: int) -> bool:
    status = pathlib.Path(f'/proc/{process}/status').read_text()
    return '\nTracerPid:\t0\n' not in status
