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
import signal
import subprocess
import sys
import unittest

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.disks import locks
from tests import base
from tests.unit.versions import fixture
from tests import waiting

# Serves a disk, and is killed when it is to meet the server.
_KILLED = '''
import os
import pathlib
import signal
import sys
import time

from diffcache_openstack.versions.disks import disk_writers
from diffcache_openstack.versions.disks import nbd

disk = pathlib.Path(sys.argv[1])


def is_served(connected):
    # The server greets its client once it has the disk.
    return sys.argv[2] != 'served' or connected.recv(8) == b'NBDMAGIC'


def meet(connected):
    assert is_served(connected)
    os.kill(os.getpid(), signal.SIGKILL)


nbd.open_export = meet
with disk_writers.open_disk(disk, 'qcow2'):
    pass
'''


@unittest.skipUnless(fixture.has_qemu(), fixture.NEEDS_QEMU)
class TestServer(base.TestCase):

    def setUp(self):
        super().setUp()
        # Several may serve a raw disk at once.
        self.disk = self.directory / 'disk'
        fixture.make_qcow2(self.disk, 1 << 20)

    def test_nothing_serves_a_disk_whose_client_was_killed_too_early(self):
        for moment in ('starting', 'served'):
            killed = subprocess.run(
                [sys.executable, '-c', _KILLED, self.disk, moment],
                timeout=120)
            self.assertEqual(-signal.SIGKILL, killed.returncode)
            self.await_idle()

    def await_idle(self):
        def is_idle():
            with locks.hold(self.disk):
                return True

        waiting.until(is_idle, 'the server of the disk to end',
                      exceptions.Busy)
