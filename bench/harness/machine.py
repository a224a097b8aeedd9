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
"""The machine that a benchmark ran on, and its load."""

import os
import pathlib
import platform
import re
import sys


def describe() -> str:
    """Return processors, memory, kernel and load averages, in one line."""
    memory = int(_find('/proc/meminfo', r'MemTotal:\s*(\d+) kB')) / 2 ** 20
    model = _find('/proc/cpuinfo', r'model name\s*: (.*)')
    load = ' '.join(f'{average:.1f}' for average in os.getloadavg())
    return (f'machine: {len(os.sched_getaffinity(0))} of {os.cpu_count()}'
            f' processors ({model or platform.machine()}), {memory:.0f} GiB,'
            f' {platform.system()} {platform.release()}; load average {load}'
            f'{_slow_build()}')


def _slow_build() -> str:
    """Return a remark if tools/ compiled the native parts quickly."""
    for name in 'quick', 'module':
        if pathlib.Path(sys.prefix, f'.stamp-{name}').exists():
            return '; native parts compiled quickly, not as released'
    return ''


def _find(path: str, pattern: str) -> str:
    """Return what a file of /proc has for a pattern, or nothing."""
    found = re.search(pattern, pathlib.Path(path).read_text())
    return ' '.join(found[1].split()) if found else ''
