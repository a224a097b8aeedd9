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
"""Volumes as disks of guests by vhost-user, with QEMU and a kernel."""

import os
import pathlib
import re
import signal
import subprocess
import time
import unittest

from diffcache_openstack.ssdcache import control
from tests.functional.fixtures import guest as guests
from tests.functional.fixtures import qemu
from tests.functional.ssdcache import test_attach
from tests import waiting

# Places of this many bytes are written and compared, all of them more than
# the cache has room for.
PLACE = 1 << 19
PLACES = 12
MEMORY = '128M'
_WORK = f'''
round=0
echo "serial $(cat /sys/block/vda/serial)" >/dev/ttyS0
content() {{ yes "round $1 place $2" | head -c {PLACE}; }}
while :; do
    round=$((round + 1))
    for place in $(seq 0 {PLACES - 1}); do
        content $round $place |
            dd of=/dev/vda bs={PLACE} seek=$place conv=fsync 2>/dev/null
    done
    wrong=
    # Twice: the second time, some blocks are cached.
    for place in $(seq 0 {PLACES - 1}) 0 0 1 1; do
        echo 3 >/proc/sys/vm/drop_caches
        content $round $place >/tmp/expected
        dd if=/dev/vda bs={PLACE} skip=$place count=1 2>/dev/null |
            cmp -s - /tmp/expected || wrong="$wrong $place"
    done
    echo "round $round size $(cat /sys/block/vda/size) wrong:$wrong." \\
        >/dev/ttyS0
done
'''


def content(number: int, place: int) -> bytes:
    """Return what the guest writes to a place."""
    line = f'round {number} place {place}\n'.encode()
    return (line * (PLACE // len(line) + 1))[:PLACE]


@unittest.skipUnless(guests.is_there(), guests.NEEDS)
class TestVhost(test_attach.AttachTest):

    def setUp(self):
        super().setUp()
        self.attach('a', limit=900)
        self.path = control.send(self.control, 'vhost-open', volume='a')[
            'volumes']['a']['vhost']
        self.guest = self.useFixture(guests.Guest(_WORK))

    def boot(self):
        """Start QEMU, which connects again when the other side has left."""
        return self.useFixture(qemu.Qemu(
            self.directory / 'monitor', '-m', MEMORY,
            '-machine', 'memory-backend=m', '-object',
            f'memory-backend-memfd,id=m,size={MEMORY},share=on',
            '-chardev', f'socket,id=c,path={self.path},reconnect=1',
            '-device', 'vhost-user-blk-pci,chardev=c',
            '-kernel', str(self.guest.kernel),
            '-initrd', str(self.guest.ramdisk),
            '-append', 'console=ttyS0 quiet panic=-1', '-no-reboot',
            '-serial', f'file:{self.guest.console}'))

    def rounds(self):
        """Return the rounds that the guest has ended, and the disk's size."""
        said = self.guest.said()
        found = re.findall(r'round ([0-9]+) size ([0-9]+) wrong:(.*)\.', said)
        self.assertEqual(set(), {wrong for _, _, wrong in found} - {''}, said)
        self.assertNotIn('I/O error', said)
        return [(int(number), int(size)) for number, size, _ in found]

    def wait_for_rounds(self, more=2):
        """Wait until the guest has written and compared all again."""
        before = len(self.rounds())
        waiting.until(lambda: len(self.rounds()) >= before + more, 'rounds')

    def process_of_guest(self):
        """Return the number of the process that serves the guest."""
        path = f'/proc/{self.process.pid}/task'
        children = [int(word) for task in os.listdir(path)
                    for word in pathlib.Path(
                        path, task, 'children').read_text().split()]
        [child] = children
        return child

    def test_a_guest_reads_what_it_wrote_whatever_happens(self):
        vm = self.boot()
        self.wait_for_rounds()
        self.assertIn('serial a', self.guest.said())
        state = self.status('a')
        # Who knows the name of the volume does not know that of its socket.
        self.assertEqual(state['export'], os.path.basename(self.path))
        self.assertGreater(state['hits'], 0)
        self.assertGreater(state['evictions'], 0)
        control.send(self.control, 'set', volume='a', limit=200)
        self.wait_for_rounds()
        control.send(self.control, 'set', volume='a', mode='write-back')
        self.wait_for_rounds()
        control.send(self.control, 'set', volume='a',
                     rates={'write_bytes_sec': 4 * PLACE})
        begin = time.monotonic()
        self.wait_for_rounds(2)
        # A whole round but for what the bucket holds, and a request.
        self.assertGreaterEqual(time.monotonic() - begin, (PLACES - 2) / 4)
        control.send(self.control, 'set', volume='a', rates={})
        for _ in range(3):
            os.kill(self.process_of_guest(), signal.SIGKILL)
            self.wait_for_rounds(1)
        self.kill()
        self.assertEqual(self.path, self.status('a')['vhost'])
        self.wait_for_rounds()
        os.truncate(self.origins['a'], 2 * test_attach.SIZE)
        control.send(self.control, 'resize', volume='a')
        self.wait_for_rounds()
        self.assertEqual(2 * test_attach.SIZE // 512, self.rounds()[-1][1])
        vm.process.kill()
        vm.process.wait()
        last = len(self.rounds())
        control.send(self.control, 'detach', volume='a')
        self.assertFalse(os.path.exists(self.path))
        data = self.origins['a'].read_bytes()
        for place in range(PLACES):
            found = data[place * PLACE:(place + 1) * PLACE]
            # It may have begun another round.
            self.assertIn(found[:100], (content(last, place)[:100],
                                        content(last + 1, place)[:100]))

    def test_a_volume_that_is_detached_beneath_the_guest(self):
        self.boot()
        self.wait_for_rounds(1)
        child = self.process_of_guest()
        control.send(self.control, 'detach', volume='a')
        self.assertFalse(os.path.exists(f'/proc/{child}/exe'))
        self.assertFalse(os.path.exists(self.path))
        # The cache serves others.
        self.attach('b')
        done = subprocess.run(
            self.command('vhost-open', '--control', self.control, 'b'),
            capture_output=True, text=True, timeout=waiting.SECONDS)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertTrue(os.path.exists(self.status('b')['vhost']))
        done = subprocess.run(
            self.command('vhost-close', '--control', self.control, 'b'),
            capture_output=True, text=True, timeout=waiting.SECONDS)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIsNone(self.status('b')['vhost'])
