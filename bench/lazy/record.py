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
"""Recording what a guest reads from its disk while it boots.

A think time is the time between two requests, so that it includes what a local
disk takes. Without acceleration a guest thinks several times longer than on a
hypervisor: ``--speed`` divides the think times.
"""

import collections.abc
import json
import os
import pathlib
import re
import subprocess
import threading

from bench.harness import errors
from bench.harness import processes
from bench.harness import runs
from bench.lazy import boots

# Of QEMU's trace backend "log": time, then the event of a guest's read.
_READ = re.compile(
    r'@(\d+\.\d+):blk_co_preadv .*offset (\d+) bytes (\d+)')
LINKS = {name: boots.SETTINGS['wan'][name] for name in (
    'wan_mbps', 'wan_rtt_ms', 'lan_mbps', 'lan_rtt_ms')}


def boot(image: pathlib.Path, marker: str, log: str, seconds: float) -> bool:
    """Boot until the marker appears; return whether it did."""
    path = str(image.absolute()).replace(',', ',,')
    with processes.running(
            'qemu-system-x86_64', '-machine', 'pc,accel=tcg', '-cpu', 'max',
            '-smp', '2', '-m', '768', '-nodefaults', '-no-user-config',
            '-no-reboot', '-display', 'none', '-serial', 'stdio',
            '-msg', 'timestamp=on', '-trace', 'enable=blk_co_preadv', '-D',
            log, '-drive', f'file={path},format=raw,if=virtio,snapshot=on',
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as qemu:
        timer = threading.Timer(seconds, qemu.kill)
        timer.start()
        try:
            return any(marker.encode() in line for line in qemu.stdout)
        finally:
            timer.cancel()


def reads_of(lines: collections.abc.Iterable[str]) -> list[list[int]]:
    """Return [think_us, offset, length] of each read in a trace."""
    rows, before = [], None
    for line in lines:
        found = _READ.search(line)
        if found is None or found[3] == '0':
            continue
        now = float(found[1])
        think = 0.0 if before is None else max(0.0, now - before)
        rows.append([round(think * 1e6), int(found[2]), int(found[3])])
        before = now
    return rows


def record(run: runs.Run) -> None:
    """Boot a guest, and write its reads as a scenario."""
    image, options = run.options.image, run.options
    if image is None:
        raise errors.BenchError('give --image, a raw disk that boots')
    log = os.path.join(run.work, 'trace')
    if not boot(image, options.marker, log, options.seconds):
        raise errors.BenchError(
            f'{image}: no {options.marker!r} on the console within'
            f' {options.seconds:g} s')
    with open(log, encoding='utf-8', errors='replace') as lines:
        reads = reads_of(lines)
    path = run.path('-scenario.json')
    path.write_text(json.dumps({
        'image_bytes': image.stat().st_size, 'chunk': boots.CHUNK,
        'threshold': 0.1, 'striped': False, 'links': LINKS, 'profile': None,
        'instances': [{'start_us': 0, 'reads': reads}]}))
    run.table(str(path), ('Reads', 'Bytes', 'Seconds'), [(
        len(reads), sum(row[2] for row in reads),
        f'{sum(row[0] for row in reads) / 1e6:.1f}')])
