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
"""Volumes that servers reach without QEMU, by vhost-user.

They need an OpenStack that was brought up with ``--volumes``.
"""

import os
import pathlib
import shutil
import signal
import uuid

from openstack import exceptions

from tests.functional.openstack import test_volumes

SECONDS = test_volumes.SECONDS
FOR_EVER = 'true'


class VhostTest(test_volumes.VolumeTest):
    """Servers whose memory is shared."""

    specs = {'diffcache:shared_memory': 'true'}

    def setUp(self):
        super().setUp()
        self.flavor = f'trial-{uuid.uuid4().hex[:8]}'
        made = self.compute.create_flavor(name=self.flavor, ram=128, vcpus=1,
                                          disk=1)
        self.addCleanup(self.compute.delete_flavor, made)
        self.compute.create_flavor_extra_specs(made, self.specs)

    def assert_vhost(self, server, volume):
        """The volume is reached by vhost-user; return its export."""
        document = self.document(server)
        self.assertIn("type='vhostuser'", document)
        self.assertNotIn("protocol='nbd'", document)
        self.assertIn(f"<alias name='ua-{volume}'/>", document)
        found = self.cached()[volume]
        self.assertEqual(('vhost-user', None), (
            found['guest_path'], found['guest_path_reason']))
        self.assertIn(found['vhost'], document)
        return found['export']

    def assert_nbd(self, server, volume, reason):
        self.assertNotIn('vhostuser', self.document(server))
        found = self.cached()[volume]
        self.assertEqual(('nbd', None), (found['guest_path'], found['vhost']))
        self.assertIn(reason, found['guest_path_reason'])

    def daemon(self):
        return self.trial.processes.pid(f'{self.host}-ssd-cache')

    def processes(self):
        """The processes of guests."""
        found = []
        for path in pathlib.Path('/proc').glob('[0-9]*/stat'):
            try:
                name, _, rest = path.read_text().rpartition(') ')
            except OSError:
                continue  # It has ended.
            if name.endswith('(ssdcache-guest') \
                    and int(rest.split()[1]) == self.daemon():
                found.append(int(path.parent.name))
        return found

    def round(self, server):
        """The last round that the guest said."""
        console = self.trial.inside(
            self.host, self.trial.where.host / 'instances' / server
            / 'console.log')
        said = [line for line in console.read_text(
            errors='replace').split('\n')[:-1] if 'round=' in line]
        self.assertEqual(set(), {line for line in said
                                 if 'wrong=0' not in line})
        return said and int(said[-1].split('round=')[1].split()[0])

    def boot_again(self, server, boot):
        """Have the guest work on a volume that its server is started with."""
        self.trial.admin.compute.reboot_server(server, 'HARD')
        self.guest_said(server, 'round=10', boot)

    def assert_goes_on(self, server, what):
        """The guest goes on, as requests that had begun did at once."""
        before = self.round(server)
        self.wait_until(lambda: self.round(server) > before + 10,
                        f'the guest goes on after {what}', SECONDS)


class TestVhost(VhostTest):

    def begin(self):
        """Have a guest work on a volume; return server, volume and export."""
        volume = self.volume(self.volume_type(test_volumes.TYPE))
        server = self.worker(test_volumes.NOT_GROWN)
        self.attach(server, volume)
        self.assert_nbd(server, volume, 'hard reboot')
        self.boot_again(server, 2)
        return server, volume, self.assert_vhost(server, volume)

    def test_what_ends_meanwhile(self):
        server, volume, export = self.begin()
        [process] = self.processes()
        os.kill(process, signal.SIGKILL)
        self.assert_goes_on(server, 'a kill of its process')
        [again] = self.processes()
        self.assertNotEqual(process, again)
        with self.trial.stopped(f'{self.host}-agent', number=signal.SIGKILL):
            self.assert_goes_on(server, 'a kill of the agent')
        self.trial.kill_ssd_cache(self.host)
        self.assert_goes_on(server, 'a kill of the cache')
        with self.trial.stopped(f'{self.host}-ssd-cache'):
            # As systemd does, with the directory that they are in.
            shutil.rmtree(self.trial.inside(
                self.host,
                self.trial.where.host / 'ssd-cache' / 'nbd.sock.vhost'))
        self.assert_goes_on(server, 'a stop of the cache')
        self.assertEqual(export, self.assert_vhost(server, volume))

    def test_an_extension_and_what_is_refused(self):
        server, volume, export = self.begin()
        self.assert_stays(server, volume)
        self.storage.extend_volume(volume, 2)
        done = self.guest_said(server, 'done', boot=2)
        self.assertEqual('0', done['wrong'])
        self.guest_said(server, f'sectors={2 << 21}', boot=2)
        self.assertEqual(done['left'], self.sum(volume))
        self.trial.admin.compute.reboot_server(server, 'HARD')
        found = self.guest_said(server, 'found=', boot=3)['found']
        self.assertEqual(done['left'], found)
        self.assertNotEqual(export, self.assert_vhost(server, volume))
        self.guest_said(server, 'done', boot=3)
        self.detach(server, volume)
        self.guest_said(server, 'gone', boot=3)
        self.assertNotIn(volume, self.cached())
        self.wait_until(lambda: not self.processes(), 'its process has ended')

    def assert_stays(self, server, volume):
        """What QEMU cannot do is refused before it begins."""
        log = f'{self.host}-nova'
        since = self.end_of_log(log)
        self.assertRaises(
            exceptions.BadRequestException, self.compute.live_migrate_server,
            server, host=self.trial.hosts[1], block_migration='auto')
        # Nova's API says that no host is valid.
        self.assertTrue(self.said(log, 'is reached by vhost-user', since))
        found = self.compute.get_server(server)
        self.assertEqual((self.host, 'ACTIVE'),
                         (found.compute_host, found.status))
        refused = self.refused(
            f'server version create {server} --wait', 'admin')
        self.assertIn('vhost-user', refused)
        self.assertIn(f'--exclude-volume {volume}', refused)

    def test_a_detach_and_a_deletion_under_load(self):
        kind = self.volume_type({'diffcache:ssd_cache': 'write-back'})
        volumes = [self.volume(kind) for _ in range(2)]
        server = self.worker(FOR_EVER)
        self.attach(server, volumes[0])
        self.boot_again(server, 2)
        self.assert_vhost(server, volumes[0])
        self.wait_until(lambda: self.cached()[volumes[0]]['dirty'],
                        'blocks are dirty')
        self.detach(server, volumes[0])
        self.assertNotIn(volumes[0], self.cached())
        self.attach(server, volumes[1])
        self.assert_goes_on(server, 'another volume is attached')
        self.boot_again(server, 3)
        self.assert_vhost(server, volumes[1])
        self.compute.delete_server(server)
        self.storage.wait_for_status(self.storage.get_volume(volumes[1]),
                                     'available', wait=SECONDS)
        self.assertNotIn(volumes[1], self.cached())
        self.assertEqual([], self.processes())


class TestOthers(VhostTest):
    """Volumes with limits, and volumes that servers reach by NBD."""

    def test_a_type_with_limits(self):
        volume = self.volume(self.volume_type({
            **test_volumes.TYPE, 'total_iops_sec': '100000'}))
        server = self.worker()
        self.attach(server, volume)
        self.boot_again(server, 2)
        self.assert_vhost(server, volume)
        self.assertNotIn('<total_iops_sec>', self.document(server))
        self.assertEqual({'total_iops_sec': 100000},
                         self.cached()[volume]['rates'])
        self.assertEqual('0', self.guest_said(server, 'done', boot=2)['wrong'])
        self.detach(server, volume)

    def test_a_plain_flavor(self):
        self.flavor = 'tiny'
        volume = self.volume(self.volume_type(test_volumes.TYPE))
        server = self.worker()
        self.attach(server, volume)
        self.assert_nbd(server, volume, 'memory of its server is not shared')
        self.assertEqual('0', self.guest_said(server, 'done')['wrong'])
        found = self.wait_until(
            lambda: self.trial.admin.session.get(
                f'/v1/volume-caches/{volume}', raise_exc=False,
                endpoint_filter={'service_type': 'diffcache'},
                headers={'OpenStack-API-Version': 'diffcache 1.0'}).ok
            and self.type(f'volume cache show {volume} -f json'),
            'it was reported')
        self.assertEqual('nbd', found['guest_path'])
        self.assertIn('not shared', found['guest_path_reason'])
        self.detach(server, volume)
