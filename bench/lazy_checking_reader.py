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
"""Read a lazy image, and compare what is read with the image.

``lazy_checking_reader.py FILE IMAGE READS.json STOP`` prints ``ready``, and
repeats the reads of a boot, with O_DIRECT, until the file STOP is there. Then
it prints a line of JSON: of each read when it began (seconds of the monotonic
clock) and how many seconds it took, and how many reads failed or had wrong
bytes.
"""

import json
import mmap
import os
import pathlib
import sys
import time


def main() -> None:
    path, image, reads, stop = sys.argv[1:]
    rows = json.loads(pathlib.Path(reads).read_text())
    buffer = memoryview(mmap.mmap(-1, max(row[2] for row in rows)))
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    expected = os.open(image, os.O_RDONLY)
    times, errors, wrong = [], 0, 0
    print('ready', flush=True)
    while not os.path.exists(stop):
        for think_us, offset, length in rows:
            time.sleep(think_us / 1e6)
            part = buffer[:length]
            start = time.monotonic()
            try:
                count = os.preadv(descriptor, [part], offset)
            except OSError:
                errors += 1
                continue
            times.append((start, time.monotonic() - start))
            wrong += part[:count] != os.pread(expected, length, offset)
            if os.path.exists(stop):
                break
    print(json.dumps({'reads': times, 'errors': errors, 'wrong': wrong}))


if __name__ == '__main__':
    main()
