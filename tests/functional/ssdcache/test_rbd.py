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
"""Volumes in a real Ceph: a monitor and a daemon that keeps data in memory."""

import os
import shutil
import subprocess
import uuid

from diffcache_openstack.cached_volumes import origins
from diffcache_openstack.ssdcache import control
from testing import server
from tests.functional.ssdcache import test_origins
from tests import waiting

CONFIGURATION = '''
[global]
fsid = {fsid}
mon host = 127.0.0.1:{port}
mon initial members = a
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
osd pool default size = 1
osd pool default min size = 1
mon allow pool size one = true
mon data avail crit = 0
mon data avail warn = 0
osd crush chooseleaf type = 0
ms bind ipv6 = false
public network = 127.0.0.0/8
cluster network = 127.0.0.0/8
admin socket =
run dir = {directory}
log file = {directory}/$name.log
keyring = {directory}/keyring
[mon.a]
mon data = {directory}/mon
[osd.0]
osd data = {directory}/osd
osd objectstore = memstore
memstore device bytes = 1073741824
'''
MIB = 1 << 20


class TestRbd(test_origins.OriginTest):
    """Needs Debian's packages of Ceph, and QEMU's driver for RBD."""

    def setUp(self):
        super().setUp()
        for program in ('ceph-mon', 'ceph-osd', 'rbd', 'qemu-storage-daemon'):
            if shutil.which(program) is None:
                self.skipTest(f'needs {program}, of the packages ceph-mon,'
                              ' ceph-osd, ceph-common, qemu-block-extra')
        self.start_ceph()

    def run_ceph(self, *words):
        done = subprocess.run(words, capture_output=True, text=True,
                              timeout=waiting.SECONDS)
        if done.returncode:
            self.fail(f'{words}: {done.stderr}')
        return done.stdout

    def start_ceph(self):
        ceph = self.directory / 'ceph'
        for name in ('mon', 'osd'):
            (ceph / name).mkdir(parents=True)
        port = server.free_port()
        fsid, osd = str(uuid.uuid4()), str(uuid.uuid4())
        configuration = ceph / 'ceph.conf'
        configuration.write_text(CONFIGURATION.format(
            fsid=fsid, port=port, directory=ceph))
        before = os.environ.get('CEPH_CONF')
        os.environ['CEPH_CONF'] = str(configuration)
        self.addCleanup(os.environ.pop, 'CEPH_CONF')
        self.assertIsNone(before)
        keyring, map_ = str(ceph / 'keyring'), str(ceph / 'map')
        every = ('--cap', 'mon', 'allow *', '--cap', 'osd', 'allow *')
        rbd = ('--cap', 'mon', 'profile rbd', '--cap', 'osd', 'profile rbd')
        for name, caps in (('mon.', every[:3]), ('client.admin', every),
                           ('client.cinder', rbd),
                           ('osd.0', (*every[3:], '--cap', 'mon',
                                      'allow profile osd'))):
            create = () if os.path.exists(keyring) else ('--create-keyring',)
            self.run_ceph('ceph-authtool', *create, keyring, '--gen-key',
                          '-n', name, *caps)
        self.run_ceph('monmaptool', '--create', '--add', 'a',
                      f'127.0.0.1:{port}', '--fsid', fsid, map_)
        self.run_ceph('ceph-mon', '--mkfs', '-i', 'a', '--monmap', map_,
                      '--keyring', keyring)
        self.start_daemon('ceph-mon', '-i', 'a')
        self.run_ceph('ceph', 'osd', 'new', osd, '0')
        self.run_ceph('ceph', 'auth', 'import', '-i', keyring)
        self.run_ceph('ceph-osd', '-i', '0', '--mkfs', '--osd-uuid', osd)
        self.start_daemon('ceph-osd', '-i', '0')
        self.run_ceph('ceph', 'osd', 'pool', 'create', 'volumes', '8')
        self.run_ceph('rbd', 'pool', 'init', 'volumes')
        self.run_ceph('rbd', 'create', 'volumes/volume-1', '--size', '16M')

    def start_daemon(self, *words):
        daemon = subprocess.Popen(
            [*words, '-f'], stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        self.addCleanup(daemon.wait)
        self.addCleanup(daemon.kill)

    def exported(self):
        path = self.directory / 'exported'
        path.unlink(missing_ok=True)
        self.run_ceph('rbd', 'export', 'volumes/volume-1', str(path))
        return path.read_bytes()

    def test_a_volume_that_is_written_killed_and_extended(self):
        origin = origins.rbd('volumes/volume-1', 'cinder', [])
        self.assertTrue(origins.is_allowed(origin, ['rbd:volumes']))
        process, _ = self.start('--format', volumes=())
        export = self.attach(origin)
        self.assertTrue(self.io(
            export, 'write -P 7 64k 128k', 'write -P 8 65000 1000', 'flush',
            'read -P 7 66000 1000', 'read -P 0 8M 64k'))
        content = self.exported()
        self.assertEqual(bytes([8]) * 1000, content[65000:66000])
        self.assertEqual(bytes([7]) * 1000, content[66000:67000])
        self.end(process)
        self.start(volumes=())
        self.assertTrue(self.io(export, 'read -P 7 68k 64k',
                                'read -P 0 8M 64k', 'write -P 9 4M 64k'))
        self.assertEqual(0, self.status('v')['misses'] - 16)
        self.run_ceph('rbd', 'resize', 'volumes/volume-1', '--size', '32M')
        control.send(self.control, 'resize', volume='v')
        self.assertTrue(self.io(export, 'write -P 6 24M 64k', 'flush',
                                'read -P 9 4M 64k'))
        control.send(self.control, 'detach', volume='v')
        content = self.exported()
        self.assertEqual(32 * MIB, len(content))
        self.assertEqual([9, 6], [content[at * MIB] for at in (4, 24)])

    def test_an_image_that_is_not_there(self):
        self.start('--format', volumes=())
        self.assertIn('could not open the origin', self.refusal(
            origins.rbd('volumes/other', 'cinder', [])))
