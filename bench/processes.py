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
"""What processes of a benchmark spend."""

import contextlib
import os
import pathlib

_TICKS = os.sysconf('SC_CLK_TCK')


def _stat(pid: int | str) -> tuple[int, list[int]]:
    """Return the parent, and the ticks: user, system, those of children."""
    text = pathlib.Path(f'/proc/{pid}/stat').read_text()
    fields = text.rsplit(')')[-1].split()
    return int(fields[1]), [int(ticks) for ticks in fields[11:15]]


def cpu_seconds(pid: int) -> float:
    """Return what a process itself has spent."""
    return sum(_stat(pid)[1][:2]) / _TICKS


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
