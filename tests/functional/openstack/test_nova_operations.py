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
"""What users and operators do with servers, on the driver's base images."""

import collections
import hashlib
import json
import os
import subprocess
import time

from tests.functional.openstack import nova_hosts


class OneServer(nova_hosts.NovaTest):
    """Has a server on the first host; its image is a compressed qcow2."""

    shared: dict[str, str] = {}

    def setUp(self):
        super().setUp()
        self.host = self.trial.hosts[0]
        if not self.is_active(self.shared.get('server')):
            with self.for_all_tests():
                type(self).shared = self.make()
        self.web, self.server = self.shared['web'], self.shared['server']

    def is_active(self, server):
        found = server and self.compute.find_server(server)
        return bool(found) and found.status == 'ACTIVE'

    def make(self):
        web = self.image_of('web', 'qcow2')
        with self.assert_delivers(self.host):
            return {'web': web, 'server': self.create(web, self.host)}


class TestOneServer(OneServer):
    """Operations on a server that stays on its host."""

    def test_base_image_is_the_raw_content(self):
        raw = self.raw('web').read_bytes()
        base = self.base(self.host, self.web)
        self.assertEqual(hashlib.sha256(raw).hexdigest(),
                         hashlib.sha256(base.read_bytes()).hexdigest())
        # QEMU may run as a user of its own.
        self.assertTrue(base.stat().st_mode & 0o004)

    def test_hard_reboot(self):
        with (self.assert_delivers(self.host, 0),
              self.assert_boots_again(self.server)):
            self.compute.reboot_server(self.server, 'HARD')
            self.wait_for_status(self.server, 'ACTIVE')

    def test_rebuild_with_another_image_and_back(self):
        other = self.image_of('database')
        with self.assert_delivers(self.host):
            self.compute.rebuild_server(self.server, image=other)
            self.wait_for_status(self.server, 'ACTIVE')
            self.guest(self.server, name='guest-database', boot=1)
            self.compute.rebuild_server(self.server, image=self.web)
            self.wait_for_status(self.server, 'ACTIVE')
            self.guest(self.server, name='guest-web', boot=1)

    def test_rescue_with_another_image_and_back(self):
        other = self.image_of('both')
        with (self.assert_delivers(self.host),
              self.assert_boots_again(self.server)):
            self.compute.rescue_server(self.server, image_ref=other)
            self.wait_for_status(self.server, 'RESCUE')
            self.guest(self.server, name='guest-both', boot=1)
            self.compute.unrescue_server(self.server)
            self.wait_for_status(self.server, 'ACTIVE')

    def test_snapshot_and_a_server_of_it(self):
        """The image is read from a version of the server."""
        boots = self.boots(self.server)
        counts = collections.Counter(self.tally(self.host)['snapshots'])
        snapshot = self.compute.create_server_image(
            self.server, f'snapshot-of-{self.server}', wait=True,
            timeout=nova_hosts.SECONDS)
        self.addCleanup(self.trial.admin.image.delete_image, snapshot.id,
                        ignore_missing=True)
        self.assertEqual(counts + collections.Counter(stored=1),
                         self.tally(self.host)['snapshots'])
        self.wait_until_known(snapshot.id)
        with self.assert_delivers(self.host):
            server = self.create(snapshot.id, self.host)
        # The snapshot has what the guest had written.
        self.assertEqual(boots + 1, self.boots(server))

    def test_a_second_server_and_its_end(self):
        with self.assert_delivers(self.host, 0):
            server = self.create(self.web, self.host)
        self.trial.delete(server)
        disk = self.trial.instances(self.host) / server
        self.wait_until(lambda: not disk.exists(), 'its disk is gone')
        self.assertTrue(self.is_active(self.server))
        self.assertTrue(self.base(self.host, self.web).exists())


class TestMoves(OneServer):
    """Operations that may bring the server to another host."""

    def setUp(self):
        super().setUp()
        self.other = self.trial.hosts[1]

    def moved(self, host=None):
        """Confirm that the server was moved, and see it boot."""
        moved = self.wait_for_status(self.server, 'VERIFY_RESIZE')
        self.assertEqual(host, moved.compute_host)
        self.compute.confirm_server_resize(self.server)
        self.wait_for_status(self.server, 'ACTIVE')

    def test_1_cold_migration_to_a_host_without_the_image_and_back(self):
        with (self.assert_boots_again(self.server),
              self.assert_delivers(self.other)):
            self.compute.migrate_server(self.server, host=self.other)
            self.moved(self.other)
        self.assertTrue(self.base(self.other, self.web).exists())
        with (self.assert_boots_again(self.server),
              self.assert_delivers(self.host, 0)):
            self.compute.migrate_server(self.server, host=self.host)
            self.moved(self.host)

    def test_2_resize(self):
        with self.assert_boots_again(self.server):
            self.compute.resize_server(self.server,
                                       self.trial.flavor('small'))
            resized = self.wait_for_status(self.server, 'VERIFY_RESIZE')
            self.compute.confirm_server_resize(self.server)
            self.wait_for_status(self.server, 'ACTIVE')
        flavor = self.compute.find_flavor('small')
        disk = (self.trial.instances(resized.compute_host) / self.server
                / 'disk')
        self.assertEqual(flavor.disk << 30, _virtual_size(disk))

    def test_3_shelve_and_unshelve(self):
        with self.assert_boots_again(self.server):
            self.compute.shelve_server(self.server)
            shelved = self.wait_for_status(self.server, 'SHELVED',
                                           'SHELVED_OFFLOADED')
            if shelved.status == 'SHELVED':
                self.compute.shelve_offload_server(self.server)
                self.wait_for_status(self.server, 'SHELVED_OFFLOADED')
            self.compute.unshelve_server(self.server)
            host = self.wait_for_status(self.server, 'ACTIVE').compute_host
        # The disk stands on the first image again, not on the snapshot.
        disk = self.trial.instances(host) / self.server / 'disk'
        self.assertEqual(self.base(host, self.web).name, _backing(disk))


class TestImageCache(nova_hosts.NovaTest):

    def test_caching_in_advance(self):
        image = self.image_of('update')
        aggregate = self.compute.create_aggregate(name=f'cache-{image}')
        self.addCleanup(self.compute.delete_aggregate, aggregate)
        for host in self.trial.hosts:
            self.compute.add_host_to_aggregate(aggregate, host)
            self.addCleanup(self.compute.remove_host_from_aggregate,
                            aggregate, host)
        before = {host: self.deliveries(host) for host in self.trial.hosts}
        self.compute.aggregate_precache_images(aggregate, [image])
        for host in self.trial.hosts:
            self.wait_until(self.base(host, image).exists,
                            f'{image} is cached on {host}',
                            nova_hosts.SECONDS)
            self.wait_until(
                lambda host=host: self.deliveries(host) > before[host],
                f'the agent of {host} delivered it')
            self.assertEqual(before[host] + 1, self.deliveries(host))

    def test_aging_removes_what_nobody_uses(self):
        host = self.trial.hosts[0]
        image = self.image_of('update')
        server = self.start(image, host)
        base = self.base(host, image)
        long_ago = time.time() - 3 * 86400
        # In use, it stays, and gets young again.
        os.utime(base, (long_ago, long_ago))
        self.wait_until(lambda: base.stat().st_mtime > long_ago + 86400,
                        'the base in use got young', nova_hosts.SECONDS)
        self.trial.delete(server)
        os.utime(base, (long_ago, long_ago))
        self.wait_until(lambda: not base.exists(),
                        'the unused base is gone', nova_hosts.SECONDS)
        # The agent's copy is its own, and serves the next server.
        with self.assert_delivers(host):
            self.start(image, host)


def _virtual_size(disk):
    """Bytes of a disk that a guest sees; its guest may run."""
    return _info(disk)['virtual-size']


def _backing(disk):
    """The name of the file that a disk stands on."""
    return os.path.basename(_info(disk)['backing-filename'])


def _info(disk):
    return json.loads(subprocess.run(
        ['qemu-img', 'info', '--force-share', '--output', 'json', disk],
        check=True, capture_output=True, text=True).stdout)
