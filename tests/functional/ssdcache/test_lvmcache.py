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
"""The engine lvmcache with LVM and the kernel's dm-cache.

Needs root, the packages lvm2 and dmsetup, loop devices, and a kernel with
dm-cache.
"""

import os
import shutil
import subprocess
import uuid

from diffcache_openstack.ssdcache.engines import lvmcache
from tests.unit.ssdcache.engines import conformance

_MIB = 1 << 20


def why_not() -> str | None:
    """Return what this host lacks, if it lacks something."""
    if os.geteuid() != 0:
        return 'needs root'
    for program in ('dmsetup', 'losetup', 'lvcreate', 'modprobe'):
        if shutil.which(program) is None:
            return f'needs {program}'
    subprocess.run(['modprobe', 'dm-cache'], capture_output=True)
    targets = subprocess.run(['dmsetup', 'targets'], capture_output=True,
                             text=True)
    if targets.returncode or not any(
            line.startswith('cache ')
            for line in targets.stdout.splitlines()):
        return 'needs a kernel with dm-cache'
    return None


class TestLvmCache(conformance.EngineConformance):

    def engine(self):
        reason = why_not()
        if reason:
            self.skipTest(reason)
        self.devices = {}
        self.group = f'diffcache-{uuid.uuid4().hex[:8]}'
        self.run_program('vgcreate', self.group, self.device('ssd', 2048))
        self.addCleanup(self.run_program, 'vgremove', '--yes', '--force',
                        self.group)
        engine = lvmcache.LvmCacheEngine(self.group)
        self.addCleanup(lambda: [engine.detach(name)
                                 for name in engine.volumes()])
        return engine

    def run_program(self, *words):
        return subprocess.run(words, check=True, capture_output=True,
                              text=True).stdout.strip()

    def device(self, name, mib=1):
        if name not in self.devices:
            path = self.directory / name
            with open(path, 'wb') as file:
                file.truncate(mib * _MIB)
            self.devices[name] = self.run_program(
                'losetup', '--find', '--show', str(path))
            self.addCleanup(self.run_program, 'losetup', '--detach',
                            self.devices[name])
        return self.devices[name]

    def origin(self, name):
        return self.device(name)

    def change_size(self, name, size):
        os.truncate(self.directory / name, size)
        self.run_program('losetup', '--set-capacity', self.device(name))

    def test_the_origin_has_what_was_written(self):
        device = self.attach('a', 10).device
        written = os.urandom(_MIB)
        self.write(device, written)
        self.assertEqual(written, self.read(self.origin('a')))
        self.set_limit('a', 20)
        self.cache.invalidate('a')
        self.assertEqual(written, self.read(device))

    def write(self, device, content):
        with open(device, 'wb') as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def read(self, device):
        self.run_program('blockdev', '--flushbufs', device)
        with open(device, 'rb') as file:
            return file.read()
