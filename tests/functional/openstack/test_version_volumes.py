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
"""Versions of a server with volumes, one of them cached in write-back.

They need an OpenStack that was brought up with ``--volumes``.
"""

import os

from tests.functional.openstack import test_versions
from tests.functional.openstack import test_volumes
from tests.functional.openstack import test_write_back

_BYTES = test_volumes.BLOCK * test_volumes.BLOCKS


class TestVolumes(test_versions.VersionsTest, test_volumes.VolumeTest):

    def fill(self, volume):
        """Write new data to a volume that no guest uses; return its sum."""
        with open(self.origin(volume), 'r+b') as file:
            file.write(os.urandom(_BYTES))
            file.flush()
            os.fsync(file.fileno())
        return self.sum(volume)

    def stop(self, server):
        self.compute.stop_server(server)
        self.wait_for_status(server, 'SHUTOFF')
        # What the guest has said must not be taken for what it says next.
        console = self.trial.inside(
            self.host, self.trial.where.host / 'instances' / server
            / 'console.log')
        os.truncate(console, 0)

    def finds(self, server, boot):
        """Start a server; return what its guest finds on its volume."""
        self.compute.start_server(server)
        self.wait_for_status(server, 'ACTIVE')
        return self.guest_said(server, 'found=', boot)['found']

    def test_rolled_back_in_place(self):
        cached = self.volume(self.volume_type(test_write_back.WRITE_BACK))
        plain = self.volume()
        first = self.fill(plain)
        server = self.worker()
        for each in (cached, plain):
            self.attach(server, each)
        left = self.guest_said(server, 'done')['left']
        version = self.save(server)['id']
        self.compute.reboot_server(server, 'HARD')
        later = self.guest_said(server, 'done', boot=2)['left']
        self.stop(server)
        second = self.fill(plain)
        self.type(f'server version restore {version} --wait -f json')
        self.assertEqual(first, self.sum(plain))
        # The guest's disk counts on from the version, too.
        self.assertEqual(left, self.finds(server, boot=2))
        [kept] = [each['ID'] for each in self.listed(server)
                  if each['Trigger'] == 'rollback']
        self.addCleanup(self.forget, kept)
        self.stop(server)
        self.type(f'server version restore {kept} --discard-current --wait'
                  ' -f json')
        self.assertEqual(second, self.sum(plain))
        self.assertEqual(later, self.finds(server, boot=3))
        for each in (cached, plain):
            self.detach(server, each)

    def test_saved_by_the_clock(self):
        cached = self.volume(self.volume_type(test_write_back.WRITE_BACK))
        server = self.worker()
        self.attach(server, cached)
        left = self.guest_said(server, 'done')['left']
        self.type(f'server version policy create --server {server} --every 1m'
                  f' -f json')
        self.finally_do(self.forget_all, server)
        version = self.wait_until(lambda: next(
            (each['ID'] for each in self.listed(server)
             if each['State'] == 'available'), None),
            'a version was saved', test_volumes.SECONDS)
        found = self.type(f'server version show {version} -f json')
        self.assertEqual('schedule', found['trigger'])
        self.assertIn(cached, str(found['disks']))
        self.type(f'server version policy create --server {server} --every 1d'
                  f' -f json')
        self.compute.reboot_server(server, 'HARD')
        self.assertNotEqual(left,
                            self.guest_said(server, 'done', boot=2)['left'])
        self.stop(server)
        self.type(f'server version restore {version} --discard-current --wait'
                  ' -f json')
        self.assertEqual(left, self.finds(server, boot=2))
        self.detach(server, cached)
