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
"""Killed workers: readers compare each read with the image.

SIGKILL ends the worker again and again, at a random time after the one before
had taken over. Every this many kills the host is another one that has nothing
of the image yet, so that kills meet reads that wait for the WAN as well as
reads of what is there.

The pause of a kill is the longest read that was under way between it and the
moment at which the next worker had taken over. Beside it is the longest read
that ended in as much time before the kill.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time

from bench.harness import errors
from bench.harness import processes
from bench.harness import runs
from bench.lazy import boots
from bench.lazy import hosts as lazy_hosts

RATE = 2_000_000


def start_readers(stack: contextlib.ExitStack, site: lazy_hosts.Repository,
                  host: lazy_hosts.Host, readers: list) -> list:
    """Start readers that compare, until the file ``stop`` is there."""
    found = []
    for number, reads in enumerate(readers):
        rows = host.folder / f'reads-{number}'
        rows.write_text(json.dumps(reads))
        found.append(stack.enter_context(processes.running(
            sys.executable, boots.READER, host.path, rows, site.path,
            host.folder / 'stop', stdout=subprocess.PIPE, text=True)))
    for reader in found:
        if reader.stdout.readline() != 'ready\n':
            raise errors.BenchError('a reader did not start')
    return found


def kill(host: lazy_hosts.Host, draw: random.Random, count: int,
         ) -> list[tuple[float, float]]:
    """Return when each kill was, and when the next worker took over."""
    found = []
    for _ in range(count):
        time.sleep(draw.uniform(0.02, 0.4))
        worker = host.status()['worker_pid']
        start = time.monotonic()
        os.kill(worker, signal.SIGKILL)
        while host.status()['worker_pid'] == worker:
            time.sleep(0.005)
        found.append((start, time.monotonic()))
    return found


def longest(reads: list, start: float, end: float) -> float:
    """Return the seconds of the longest read under way within a time."""
    return max((took for began, took in reads
                if began < end and began + took > start), default=0.0)


def measure(site: lazy_hosts.Repository, readers: list, draw: random.Random,
            count: int, resend: bool) -> dict:
    """Kill the workers of one host; return what readers saw."""
    with site.hosts(1, resend=resend) as [host], \
            contextlib.ExitStack() as stack:
        host.serve(site.image, {**site.wanted, 'hydrate': 'idle',
                                'rate': RATE})
        started = start_readers(stack, site, host, readers)
        kills = kill(host, draw, count)
        (host.folder / 'stop').touch()
        found = [processes.answer(reader) for reader in started]
        status = host.status()
    reads = [read for each in found for read in each['reads']]
    return {
        'reads': len(reads), 'restarts': status['worker_restarts'],
        'errors': sum(each['errors'] for each in found) + status['errors'],
        'wrong': sum(each['wrong'] for each in found) + status['corrupt'],
        'pauses': [longest(reads, *each) for each in kills],
        'before': [longest([read for read in reads if sum(read) < start],
                           2 * start - end, start) for start, end in kills]}


def percentile(times: list[float], share: int) -> str:
    """Return the milliseconds within which a share of times is."""
    ranked = sorted(times)
    place = min(len(ranked) - 1, len(ranked) * share // 100)
    return f'{1e3 * ranked[place]:.0f}'


def kills(run: runs.Run) -> None:
    """Kill workers, with a host after another.

    :raises BenchError: a read failed or had wrong bytes
    """
    options = run.options
    boot = boots.recorded_boot(str(boots.RECORDED), options.speed)
    readers = boots.make(boot, options.readers, 'wan', options.seed).reads
    total: dict = {}
    with lazy_hosts.repository(run.work / 'site', boot.image_bytes) as site:
        for first in range(0, options.kills, options.each):
            draw = random.Random(options.seed + first)
            found = run.keep(f'kills from {first} on', lambda: measure(
                site, readers, draw, min(options.each, options.kills - first),
                options.resend == 'on'))
            total = {name: total[name] + value if total else value
                     for name, value in found.items()}
    run.table(f'Killed workers, resend {options.resend}', (
        'Kills', 'Reads', 'Errors', 'Wrong', 'New workers', 'Pause, p50, ms',
        'p99', 'Longest', 'Before, p99'), [(
            options.kills, total['reads'], total['errors'], total['wrong'],
            total['restarts'], *(percentile(total['pauses'], share)
                                 for share in (50, 99, 100)),
            percentile(total['before'], 99))])
    if total['errors'] or total['wrong']:
        raise errors.BenchError(f'{total["errors"]} reads failed, and'
                                f' {total["wrong"]} had wrong bytes')
