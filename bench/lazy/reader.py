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
"""Replay the reads of a boot, with O_DIRECT.

``reader.py FILE READS.json`` prints ``ready``, reads from its input when to
start (seconds of the monotonic clock), and prints a line of JSON: the seconds
that it took, its own seconds of CPU, and a checksum of what it read.
"""

import json
import mmap
import os
import pathlib
import sys
import time
import zlib


def replay(descriptor: int, rows: list, buffer: memoryview) -> dict:
    """Replay the reads, beginning at a given time."""
    start = float(sys.stdin.readline())
    time.sleep(max(0, start - time.monotonic()))
    cpu, checksum = time.process_time(), 0
    for think_us, offset, length in rows:
        time.sleep(think_us / 1e6)
        part = buffer[:length]
        if os.preadv(descriptor, [part], offset) != length:
            raise SystemExit(f'short read at {offset}')
        checksum = zlib.crc32(part, checksum)
    return {'seconds': time.monotonic() - start,
            'cpu': time.process_time() - cpu, 'checksum': checksum}


def main() -> None:
    """Run the command line."""
    path, reads = sys.argv[1:]
    rows = json.loads(pathlib.Path(reads).read_text())
    buffer = memoryview(mmap.mmap(-1, max(row[2] for row in rows)))
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    print('ready', flush=True)
    print(json.dumps(replay(descriptor, rows, buffer)))


if __name__ == '__main__':
    main()
